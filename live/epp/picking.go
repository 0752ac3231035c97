package epp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/core/stream"
)

// maxAnswerBytes bounds what a tokeniser or a remote scorer may answer.
const maxAnswerBytes = 32 << 20

// PickingOptions are what a Picking needs besides its picker.
type PickingOptions struct {
	Picker *picker.Picker
	// Now is the run's clock.
	Now func() machine.Time
	// Errors is the form of refusals.
	Errors stream.ErrorStyle
	// EmitScores puts the scores into the dynamic metadata (--emit-endpoint-scores).
	EmitScores bool
	// PoolName names the pool in metrics.
	PoolName string
	// Explain adds the choice's reasons to the record of the request.
	Explain bool
	// DocumentHeaders adds the destination headers of documents 002 and 003 to
	// the request and the response.
	DocumentHeaders bool
	// Metrics takes the real EPP's figures; nil keeps none.
	Metrics *PickMetrics
	// History is how many decisions /debug/decisions remembers; 0 is none.
	History int
	// Hosts are addresses for host:port of the URLs that plug-ins ask; others
	// are looked up as usual.
	Hosts map[string]string
	Log   *slog.Logger
}

// Picking is the Director of a pool with an EndpointPickerConfig: core/picker
// and its flow control behind one lock. The lock is held for a decision
// (microseconds), never while something outside is awaited.
type Picking struct {
	openRequests
	o      PickingOptions
	client *http.Client
	number atomic.Uint64

	mu      sync.Mutex
	p       *picker.Picker
	hooks   picker.Hooks
	affine  []affine
	fc      *flowcontrol.Controller
	fx      flowcontrol.Effects
	waiting map[flowcontrol.RequestID]*waiter
	timer   *time.Timer
	history []*picker.Decision // the newest last
	others  int                // of the oldest, also remembered elsewhere
	spare   sync.Pool          // of decisions that nobody reads any more
	closed  bool
	pumping bool
}

// waiter is a request in flow control: queued, then on its way.
type waiter struct {
	id      flowcontrol.RequestID
	req     *picker.Request
	answers []picker.Answer
	done    chan struct{}
	d       *picker.Decision
	refusal *flowcontrol.Refusal
	evicted chan struct{}
	// admission says in words how flow control let it in.
	admission string
	// kept and moved are whether the decision kept a session where it was.
	kept, moved int64
}

// refused is flow control's refusal as the picker's error.
func (w *waiter) refused() *picker.Error {
	return &picker.Error{Code: picker.Code(w.refusal.Code), Message: w.refusal.Message, Reason: w.refusal.Reason, Bare: w.refusal.Code == ""}
}

// NewPicking makes the director. It is wrong to use the picker elsewhere
// afterwards, except through With.
func NewPicking(o PickingOptions) (*Picking, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Picking{openRequests: openRequests{idle: make(chan struct{})}, o: o, p: o.Picker, hooks: o.Picker.Hooks(), waiting: map[flowcontrol.RequestID]*waiter{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DialContext: dialer(o.Hosts)}}}
	for _, pl := range o.Picker.Plugins() {
		if a, ok := pl.(affine); ok {
			k.affine = append(k.affine, a)
		}
	}
	if o.Picker.FlowControl() {
		cfg, err := plugins.FlowControl(o.Picker)
		if err != nil {
			return nil, err
		}
		if k.fc, err = flowcontrol.NewController(cfg); err != nil {
			return nil, fmt.Errorf("flowControl: %w", err)
		}
	}
	return k, nil
}

// With runs f with the picker, alone. Use it to change endpoints, figures or
// objects; flow control sees the change before With returns.
func (k *Picking) With(f func(p *picker.Picker, now machine.Time)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.o.Now()
	f(k.p, now)
	k.loads(now)
	k.pump(now)
}

// Close refuses what waits and stops the timer.
func (k *Picking) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.fc != nil {
		k.fc.Input(k.o.Now(), flowcontrol.Shutdown{}, &k.fx)
		k.pump(k.o.Now())
	}
	if k.timer != nil {
		k.timer.Stop()
	}
	k.client.CloseIdleConnections()
}

func (k *Picking) loads(now machine.Time) {
	if k.fc != nil {
		k.fc.Input(now, flowcontrol.Pool{Loads: plugins.Loads(k.p, k.p.Pool().View())}, &k.fx)
	}
}

// pump plays what flow control wants done by now and sets its alarm. The lock
// is held.
func (k *Picking) pump(now machine.Time) {
	if k.fc == nil || k.pumping {
		return
	}
	k.pumping = true
	began := time.Now()
	defer func() { k.o.Metrics.round(time.Since(began)) }()
	k.fc.Advance(now, &k.fx)
	for i := 0; i < len(k.fx.List); i++ { // what an effect brings about joins the list
		e := k.fx.List[i]
		k.effect(now, &e)
	}
	k.fx.Reset()
	k.pumping = false
	at, ok := k.fc.Next()
	switch {
	case !ok || k.closed:
		if k.timer != nil {
			k.timer.Stop()
		}
	case k.timer == nil:
		k.timer = time.AfterFunc((at - now).Duration(), k.alarm)
	default:
		k.timer.Reset(max(0, (at - now).Duration()))
	}
}

// alarm plays what is due. It may have rung for a moment that is past, while
// the alarm was being set anew: then nothing is, and pump sets it again.
func (k *Picking) alarm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.pump(k.o.Now())
	}
}

func (k *Picking) effect(now machine.Time, e *flowcontrol.Effect) {
	w := k.waiting[e.ID]
	k.o.Metrics.revocation(e)
	k.o.Metrics.flowControl(e, w)
	if w == nil {
		return
	}
	switch e.Kind {
	case flowcontrol.Decided:
		if r, refused := e.Refusal(); refused {
			w.refusal = &r
			delete(k.waiting, e.ID)
			k.remember(&picker.Decision{Request: w.req, View: k.p.Pool().View(), At: now, Primary: -1, Saturation: -1,
				Err: w.refused(), Admission: e.Admission()})
		} else {
			w.admission = e.Admission()
			k.place(now, w)
			k.fc.Input(now, flowcontrol.Placed{ID: w.id}, &k.fx)
			if w.d.Err != nil {
				k.fc.Input(now, flowcontrol.Done{ID: w.id}, &k.fx)
				delete(k.waiting, e.ID)
			}
			k.loads(now)
		}
		close(w.done)
	case flowcontrol.Evict:
		select {
		case <-w.evicted:
		default:
			close(w.evicted)
		}
	}
}

// place picks and commits. The lock is held.
func (k *Picking) place(now machine.Time, w *waiter) {
	started := time.Now()
	kept, moved := k.affinity()
	// With an old one's memory a decision makes no garbage, and so holds the
	// lock for half the time.
	old, _ := k.spare.Get().(*picker.Decision)
	w.d = k.p.Pick(now, w.req, k.p.Pool().View(), w.answers, old)
	if w.d.Err == nil {
		k.p.Commit(now, w.d)
	}
	w.d.Took, w.d.Admission = machine.Time(time.Since(started)), w.admission
	w.kept, w.moved = k.affinity()
	w.kept, w.moved = w.kept-kept, w.moved-moved
	k.remember(w.d)
}

// affinity is how many requests were kept where their session was, and how many
// were not. The lock is held.
func (k *Picking) affinity() (kept, moved int64) {
	for _, a := range k.affine {
		hits, misses := a.Affinity()
		kept, moved = kept+hits, moved+misses
	}
	return kept, moved
}

// note takes the figures of a decision and logs it. Others wait neither for
// the lock nor for Envoy meanwhile.
func (k *Picking) note(w *waiter) {
	k.o.Metrics.decided(k.p, w)
	k.log(w.d)
}

// maxRemembered bounds the history by rows (decisions times endpoints), since
// each decision keeps the view that it was made for.
const maxRemembered = 200_000

func (k *Picking) remember(d *picker.Decision) {
	if k.o.History <= 0 {
		return
	}
	k.history = append(k.history, d)
	keep := max(16, min(k.o.History, maxRemembered/(len(d.View.States)+1)))
	if n := len(k.history) - keep; n > 0 {
		for _, old := range k.history[min(n, k.others):n] {
			if old.Err == nil && !old.Held() {
				k.spare.Put(old)
			}
		}
		k.others = max(0, k.others-n)
		clear(k.history[:n])
		k.history = k.history[n:]
	}
}

// Decide parses the request, waits for its turn and picks.
func (k *Picking) Decide(ctx context.Context, r *Request) (stream.Decision, Exchange) {
	w := &waiter{done: make(chan struct{}), evicted: make(chan struct{})}
	began := k.o.Now()
	withBody := !r.HeadersOnly
	started := time.Now()
	req, perr := k.p.NewRequest(r.Head, r.Body, withBody, k.number.Add(1))
	if withBody {
		k.o.Metrics.parsed(k.p, req, "RequestParsing", time.Since(started), 1)
	}
	w.req = req
	if perr != nil {
		k.o.Metrics.refused(req, perr)
		return k.refuse(perr), nil
	}
	if withBody {
		req.Subset, req.HasSubset = subsetOf(r.Metadata)
	}
	needs, perr, again := k.enter(w, withBody)
	if again {
		w.answers = k.ask(ctx, needs)
		k.proceed(w, withBody)
	}
	if perr != nil {
		k.o.Metrics.refused(req, perr)
		return k.refuse(perr), nil
	}
	if w.id != 0 {
		k.await(ctx, w)
	}
	if w.refusal != nil {
		perr := w.refused()
		k.o.Metrics.refused(req, perr)
		return k.refuse(perr), nil
	}
	if w.d.Err != nil {
		k.note(w)
		k.o.Metrics.refused(req, w.d.Err)
		return k.refuse(w.d.Err), nil
	}
	x := &exchange{k: k, w: w, began: began}
	d, bytes, err := k.decision(w, r.Body)
	x.bytes = bytes
	if req.Body != nil { // the prompt has done its work; a held request should not hold it
		req.Body.Raw, req.Body.Prompts = nil, nil
	}
	if err != nil {
		x.End(stream.Failed)
		return k.refuse(&picker.Error{Code: picker.Internal, Message: err.Error()}), nil
	}
	return d, x
}

// enter prepares a request and, unless plug-ins need answers first (again),
// lets it proceed, all in one turn: the fewer turns a request takes, the fewer
// others it waits behind.
func (k *Picking) enter(w *waiter, withBody bool) (needs []picker.Need, perr *picker.Error, again bool) {
	k.mu.Lock()
	defer k.mu.Unlock() // a plug-in may panic
	now := k.o.Now()
	needs, perr = k.p.Prepare(now, w.req)
	if perr == nil && len(needs) == 0 {
		k.admit(now, w, withBody)
	}
	return needs, perr, perr == nil && len(needs) > 0
}

// proceed goes on with a request whose plug-ins have their answers.
func (k *Picking) proceed(w *waiter, withBody bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.admit(k.o.Now(), w, withBody)
}

// admit gives a request to flow control, or places it. The lock is held.
func (k *Picking) admit(now machine.Time, w *waiter, withBody bool) {
	if k.fc == nil || !withBody {
		k.place(now, w)
		return
	}
	w.id = flowcontrol.RequestID(k.number.Add(1))
	k.waiting[w.id] = w
	k.o.Metrics.queued(w)
	k.fc.Input(now, flowcontrol.Arrive{ID: w.id, Priority: w.req.Objective.Priority, FairnessID: w.req.FairnessID,
		Bytes: int64(w.req.SizeBytes), Tokens: int64(w.req.Tokens), TTFT: machine.Time(w.req.TTFTMs * float64(machine.Millisecond))}, &k.fx)
	k.pump(now)
}

// await waits for flow control's word.
func (k *Picking) await(ctx context.Context, w *waiter) {
	select {
	case <-w.done:
	case <-ctx.Done():
		k.mu.Lock()
		k.fc.Input(k.o.Now(), flowcontrol.Gone{ID: w.id}, &k.fx)
		k.pump(k.o.Now())
		k.mu.Unlock()
		<-w.done // flow control decides every arrival exactly once
	}
}

// decision turns a pick into the header mutation and metadata of the stream.
func (k *Picking) decision(w *waiter, raw []byte) (stream.Decision, int, error) {
	var out stream.Decision
	body, err := w.req.ForwardBody()
	if err != nil {
		return out, 0, fmt.Errorf("the model could not be rewritten: %w", err)
	}
	set, remove := w.d.RequestHeaders(len(body))
	out.Endpoint = w.d.Destination()
	out.Remove = slices.Clone(remove)
	out.Leave = w.req.Body != nil && w.req.Body.SkipResponse
	if k.o.DocumentHeaders {
		set = append(set, header.Of(picker.HeaderTargetPod, out.Endpoint, picker.HeaderSelectedPod, w.d.Targets[0].Endpoint.Name)...) // documents 002 and 003
	}
	out.Set = set
	if w.req.Body != nil && !bytes.Equal(body, raw) {
		out.Body, out.Replace = body, true
	}
	lb := map[string]*structpb.Value{picker.HeaderDestination: structpb.NewStringValue(out.Endpoint)}
	var scores map[string]float64
	if k.o.EmitScores {
		scores = w.d.Scores()
	}
	if scores != nil {
		fields := make(map[string]*structpb.Value, len(scores))
		for a, v := range scores {
			fields[a] = structpb.NewNumberValue(v)
		}
		lb[picker.KeyScores] = structpb.NewStructValue(&structpb.Struct{Fields: fields})
	}
	out.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		picker.NamespaceLB: structpb.NewStructValue(&structpb.Struct{Fields: lb})}}
	if k.o.Explain {
		out.Details = w.d.Recorded(true)
	}
	return out, len(body), nil
}

func (k *Picking) refuse(e *picker.Error) stream.Decision {
	a := k.o.Errors.Answer(e.Code.Status(), e.Message)
	if k.o.Errors == stream.EPPErrors || e.Bare {
		a = stream.Answer{Status: e.Code.Status(), Body: []byte(e.Error())}
		if e.Bare {
			a.Status = 429
		}
	}
	if e.Reason != "" {
		a.Set = append(a.Set, header.Header{Name: picker.HeaderDropReason, Value: e.Reason})
	}
	return stream.Decision{Answer: &a, Reason: string(e.Code) + ": " + e.Message}
}

// subsetOf reads the subset hint: a list of "ip:port". A string in its place
// is no hint; what is no string in the list matches nothing.
func subsetOf(m Metadata) ([]string, bool) {
	v := m[picker.NamespaceSubset].GetFields()[picker.KeySubset]
	list, ok := v.GetKind().(*structpb.Value_ListValue)
	if !ok {
		return nil, false
	}
	var out []string
	for _, e := range list.ListValue.GetValues() {
		if s, ok := e.GetKind().(*structpb.Value_StringValue); ok {
			out = append(out, s.StringValue)
		}
	}
	return out, true
}

// ask puts the plug-ins' questions to the outside, all at once.
func (k *Picking) ask(ctx context.Context, needs []picker.Need) []picker.Answer {
	answers := make([]picker.Answer, len(needs))
	var wg sync.WaitGroup
	for i := range needs {
		wg.Go(func() {
			n := &needs[i]
			answers[i] = picker.Answer{Plugin: n.Plugin, Key: n.Key}
			answers[i].Value, answers[i].Err = k.call(ctx, n)
			if err := answers[i].Err; err != nil {
				k.o.Log.Warn("epp: a plug-in's question was not answered", "plugin", n.Plugin, "url", n.URL, "error", err)
			}
		})
	}
	wg.Wait()
	return answers
}

func (k *Picking) call(ctx context.Context, n *picker.Need) ([]byte, error) {
	if n.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, n.Timeout.Duration())
		defer cancel()
	}
	req, err := http.NewRequestWithContext(ctx, n.Method, n.URL, bytes.NewReader(n.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return body, err
}

// Undecided is the exchange of a response to a request that was not decided:
// Envoy's own answer, or a model server that no one chose.
func (k *Picking) Undecided() Exchange { return &exchange{k: k} }
