package epp

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// maxAnswerBytes bounds what a tokeniser or a remote scorer may answer.
const maxAnswerBytes = 32 << 20

// PickingOptions configure a Picking besides its picker.
type PickingOptions struct {
	core.Config
	// Now is the run's clock.
	Now func() machine.Time
	// Service is the time that the picker takes for each request, on top of what it
	// takes anyway.
	Service core.ServiceConfig
	// PoolName names the pool in metrics.
	PoolName string
	// Metrics takes the real EPP's metrics; nil makes some that nobody reads.
	Metrics *PickMetrics
	// Hosts, if not nil, is the address for host:port of a URL that a plug-in
	// asks, or "": then it is looked up as usual.
	Hosts func(string) string
	// KV configures the reception of KV events.
	KV KVOptions
	// Made describes in a log of inputs how the picker was built.
	Made inputlog.Header
	// Inputs, if not nil, takes down what enters the picker, from the beginning.
	Inputs *InputLog
	// Fetch, if not nil, has the page of a URL in place of HTTP.
	Fetch func(url string) ([]byte, error)
	// Scraped, if not nil, gets the time that fetching and reading a page took.
	Scraped func(took time.Duration)
	Log     *slog.Logger
}

// Picking is an endpoint picker in wall time: core/epp's Machine, driven by live/drive, with the code that carries out
// its effects. A decision holds its lock (for microseconds). No goroutine waits for anything outside under the lock.
type Picking struct {
	openRequests
	o         PickingOptions
	client    *http.Client
	scraper   *scraper
	kv        *kvEvents
	number    atomic.Uint64
	senders   sync.WaitGroup
	sending   atomic.Int32 // messages that wait for no answer
	coalescer coalescer
	ctx       context.Context // of these
	cancel    context.CancelFunc
	written   atomic.Pointer[inputlog.Options] // how requests are written down; nil where they are not

	drive *drive.Driver[core.Message, *core.Effects]
	m     *core.Machine // the driver's
	// service models the picker's additional time for a request; nil is none.
	service *drive.Driver[*core.Request, *machine.Effects[core.Attended]]
	inputs  *InputLog // guarded by drive
}

// NewPicking makes the picker. It is wrong to use its picker.Picker elsewhere
// afterwards, except through With.
func NewPicking(o PickingOptions) (*Picking, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Metrics == nil {
		o.Metrics = NewPickMetrics(prometheus.NewRegistry(), o.PoolName)
	}
	m, err := core.New(o.Config)
	if err != nil {
		return nil, err
	}
	k := &Picking{openRequests: openRequests{idle: make(chan struct{})}, o: o, m: m,
		client: &http.Client{CheckRedirect: serve.Stay,
			Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
				DialContext: dialer(o.Hosts)}}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.scraper = newScraper(k)
	k.drive = drive.New(drive.Options[core.Message, *core.Effects]{Machine: m, Effects: new(core.Effects), Now: o.Now,
		Panicked: k.panicked,
		Carry: func(_ machine.Time, fx *core.Effects, i int) {
			_ = guarded(o.Log, "an effect of the picker's", "", func() { k.effect(&fx.List[i]) })
		}})
	if o.Service.Given() {
		k.service = drive.New(drive.Options[*core.Request,
			*machine.Effects[core.Attended]]{Machine: core.NewService(o.Service),
			Effects: new(machine.Effects[core.Attended]), Now: o.Now,
			Carry: func(_ machine.Time, fx *machine.Effects[core.Attended], i int) {
				close(fx.List[i].Request.Owner.(*waiter).attended)
			}})
	}
	if k.kv, err = listenKV(k, o.KV); err != nil {
		k.Close()
		return nil, err
	}
	k.Record(o.Inputs)
	return k, nil
}

// Take implements Pickers: there is no other.
func (k *Picking) Take() (*Picking, func()) { return k, func() {} }

// Input implements core/epp's Door: a message enters the machine, and what it
// brings about is carried out.
func (k *Picking) Input(msg core.Message) { k.drive.Input(msg) }

// report is Input for what no request waits for: a panic is logged.
func (k *Picking) report(msg core.Message) {
	_ = guarded(k.o.Log, "the picker", "", func() { k.Input(msg) })
}

// With runs f with the machine, alone, to look at it.
func (k *Picking) With(f func(m *core.Machine, now machine.Time)) {
	k.drive.With(func(now machine.Time, _ *core.Effects) { f(k.m, now) })
}

// Hold stops all decisions until release is called.
func (k *Picking) Hold() (release func()) { return k.drive.Hold() }

// SetEndpoints replaces the pool's endpoints.
func (k *Picking) SetEndpoints(list []*picker.Endpoint) { k.Input(core.Endpoints{List: list}) }

// Close refuses waiting requests and stops the goroutines beside the requests.
func (k *Picking) Close() {
	if k.service != nil {
		k.service.Stop()
	}
	k.Input(core.Shutdown{})
	k.drive.Quiet()
	k.With(func(*core.Machine, machine.Time) { k.inputs.forget(k) })
	k.cancel()
	k.senders.Wait()
	k.scraper.close()
	k.kv.close()
	k.client.CloseIdleConnections()
}

// panicked logs a panic that has no other recipient. The sender of a message gets the panics that its message causes.
func (k *Picking) panicked(_ machine.Time, v any, rang bool) {
	if !rang {
		panic(v)
	}
	logPanic(k.o.Log, "the picker", "", v)
}

// effect carries out one effect, without waiting for anything.
func (k *Picking) effect(e *core.Effect) {
	var w *waiter
	if e.Request != nil {
		w, _ = e.Request.Owner.(*waiter)
	}
	switch e.Kind {
	case core.Ask, core.Decided:
		if w != nil { // else its stream was over before it could wait
			w.ready <- struct{}{}
		}
	case core.Evict:
		close(w.evicted)
	case core.Failed:
		k.o.Log.Error("epp: a plug-in failed when its request was over", "request", e.Request.ID, "error",
			e.Request.Err)
	case core.Send:
		k.send(e.Needs)
	case core.Scrape:
		k.scraper.scrape(e.Target, e.Source)
	case core.Departed:
		k.scraper.departed(e.Target)
	case core.Unread:
		k.scraper.unread(e)
	case core.Forgotten:
		k.o.Log.Warn("epp: metrics are older than their ttl and are forgotten", "scraper",
			k.m.Sources()[e.Source].Source.Name(), "endpoint", e.Target.ID())
	case core.Dial:
		k.kv.dial(e.Source, e.Target)
	case core.Hangup:
		k.kv.hangup(e.Source, e.Target)
	case core.Mismatch:
		k.kv.mismatch(e)
	case core.Queued:
		k.o.Metrics.queued(e.Request, e.Flow.Outcome)
	case core.Left:
		k.o.Metrics.left(e.Request, &e.Flow)
	case core.Revoked:
		k.o.Metrics.revocation(&e.Flow)
	}
}

// waiter is a stream's goroutine that waits for the machine's word.
type waiter struct {
	ready    chan struct{} // pending notifications: Ask and Decided at most
	attended chan struct{} // closed when the picker has taken its time
	evicted  chan struct{} // closed when flow control wants the request ended
}

// decide hands a request to the machine and returns when it has decided. What
// waits returns ends when the client has left, or the stream's deadline has passed.
func (k *Picking) decide(waits func() context.Context, r *core.Request) {
	w := &waiter{ready: make(chan struct{}, 2), evicted: make(chan struct{})}
	if k.service != nil {
		w.attended = make(chan struct{})
	}
	r.Owner = w
	if o := k.written.Load(); o != nil {
		r.Note = o.AppendRequest(make([]byte, 0, 2048), r.Request)
	}
	if k.service != nil && k.service.Input(r) {
		select {
		case <-w.attended:
		case <-waits().Done(): // no client waits for the decision; the service time passes all the same
		}
	}
	k.Input(core.Arrive{Request: r})
	_ = guarded(k.o.Log, "the metrics", r.ID, func() { k.o.Metrics.rewritten(r.Request) })
	for {
		select {
		case <-w.ready: // as a rule it has decided at once
		default:
			select {
			case <-w.ready:
			case <-waits().Done():
				k.Input(core.Leave{Request: r})
				<-w.ready
			}
		}
		if !r.Asking() {
			return
		}
		k.Input(k.m.Answer(r, k.ask(waits(), r.Needs)))
	}
}

// measure takes the metrics of a decision and logs it. Others wait neither for
// the lock nor for Envoy meanwhile.
func (k *Picking) measure(r *core.Request) {
	switch {
	case r.Body != nil:
		k.o.Metrics.parsed(r.Body.Parser, "RequestParsing", r.Parsing.Duration(), 1)
	case r.Decision == nil && r.Err != nil: // the parser refused the body
		k.o.Metrics.parsed(k.o.Picker.ParserName(r.Request), "RequestParsing", r.Parsing.Duration(), 1)
	}
	if r.Decision != nil {
		k.o.Metrics.decided(k.o.Picker, r)
		k.log(r.Decision)
	}
	if r.Err != nil {
		k.o.Metrics.refused(r.Request, r.Err)
	}
}

// ask puts the plug-ins' questions to the outside, all at once.
func (k *Picking) ask(ctx context.Context, needs []picker.Need) []picker.Answer {
	answers := make([]picker.Answer, len(needs))
	var wg sync.WaitGroup
	for i := range needs {
		wg.Go(func() {
			n := &needs[i]
			answers[i] = picker.AnswerTo(n)
			began := time.Now()
			if n.Together > 0 {
				answers[i].Latencies, answers[i].Err = k.coalescer.predict(ctx, k, n)
			} else {
				answers[i].Value, answers[i].Err = k.call(ctx, n)
			}
			answers[i].Took = machine.FromDuration(time.Since(began))
			if err := answers[i].Err; err != nil {
				k.o.Log.Warn("epp: a plug-in's question was not answered", "plugin", n.Plugin, "url", n.URL, "error",
					err)
			}
		})
	}
	wg.Wait()
	return answers
}

// maxSending bounds how many messages wait for a service that takes them slowly.
const maxSending = 8

// send starts sending the plug-ins' messages. Messages that do not arrive are lost.
func (k *Picking) send(needs []picker.Need) {
	for i := range needs {
		n := &needs[i]
		if k.sending.Add(1) > maxSending {
			k.sending.Add(-1)
			k.o.Log.Warn("epp: what a plug-in sends is lost: earlier messages are still on their way", "plugin",
				n.Plugin, "url", n.URL)
			continue
		}
		k.senders.Go(func() {
			defer k.sending.Add(-1)
			if _, err := k.call(k.ctx, n); err != nil && k.ctx.Err() == nil {
				k.o.Log.Warn("epp: what a plug-in sends did not arrive, and is lost", "plugin", n.Plugin, "url", n.URL,
					"error", err)
			}
		})
	}
}

func (k *Picking) call(ctx context.Context, n *picker.Need) ([]byte, error) {
	if n.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, n.Timeout.Duration())
		defer cancel()
	}
	var body []byte
	if n.Body != nil {
		var err error
		if body, err = n.Body(); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, n.Method, n.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	for _, h := range n.Headers {
		req.Header.Set(h.Name, h.Value)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err == nil && resp.StatusCode/100 != 2 {
		err = serve.Status(resp)
	}
	return body, err
}
