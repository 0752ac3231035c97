package epp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// faulty is a plug-in of every kind that panics at one point, for requests
// whose model is bad.
type faulty struct {
	picker.Base
	at string
}

func (f *faulty) panics(point string, r *picker.Request) {
	if f.at == point && r.Body != nil && r.Body.Model == "bad" {
		panic("at " + point)
	}
}

func (f *faulty) always(point string) {
	if f.at == point {
		panic("at " + point)
	}
}

func (f *faulty) RequestHeader(r *picker.Request) { f.panics("RequestHeader", r) }
func (f *faulty) Needs(_ machine.Time, r *picker.Request, _ *picker.View) []picker.Need {
	f.panics("Needs", r)
	return nil
}
func (f *faulty) Produce(c *picker.Cycle)                       { f.panics("Produce", c.Request) }
func (f *faulty) Score(c *picker.Cycle, _ []int32, _ []float64) { f.panics("Score", c.Request) }
func (f *faulty) PreRequest(c *picker.Cycle)                    { f.panics("PreRequest", c.Request) }
func (f *faulty) Commit(_ machine.Time, d *picker.Decision)     { f.panics("Commit", d.Request) }
func (f *faulty) Release(_ machine.Time, d *picker.Decision)    { f.panics("Release", d.Request) }
func (f *faulty) ResponseHeader(_ machine.Time, r *picker.Response) {
	f.panics("ResponseHeader", r.Decision.Request)
}
func (f *faulty) ResponseBody(_ machine.Time, r *picker.Response) {
	f.panics("ResponseBody", r.Decision.Request)
}

// MatchOf is asked for the metrics, the log and the response headers.
func (f *faulty) MatchOf(d *picker.Decision, _ *picker.State) (int, int, int) {
	f.panics("MatchOf", d.Request)
	return 0, 0, 0
}
func (f *faulty) IndexSize() int           { f.always("IndexSize"); return 0 }
func (f *faulty) EndpointGone(int, bool)   { f.always("EndpointGone") }
func (f *faulty) Affinity() (int64, int64) { f.always("Affinity"); return 0, 0 }
func (f *faulty) Wants(string) bool        { f.always("Wants"); return true }
func (f *faulty) Extract(metrics.Page, map[string]string, *picker.Metrics) error {
	f.always("Extract")
	return nil
}

// ledger counts what was committed and not released.
type ledger struct {
	picker.Base
	mu   sync.Mutex
	open map[string]int
}

func (l *ledger) Commit(_ machine.Time, d *picker.Decision)  { l.count(d, 1) }
func (l *ledger) Release(_ machine.Time, d *picker.Decision) { l.count(d, -1) }
func (l *ledger) count(d *picker.Decision, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[d.Request.ID] += n
}

const withFaulty = `
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {name: before, type: ledger}
- {type: faulty}
- {name: after, type: ledger}
- {type: active-request-scorer}
- {type: metrics-data-source}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: active-request-scorer}, {pluginRef: faulty}]}
dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: faulty}]}]}
flowControl: {saturationDetector: {pluginRef: concurrency-detector}, defaultRequestTTL: 60s}
`

// faultyPicking is a picking with flow control and a plug-in that panics.
func faultyPicking(t *testing.T, at string, log *lockedBuffer, change ...func(*PickingOptions)) *Picking {
	t.Helper()
	reg := plugins.Builtin()
	reg["faulty"] = picker.Registration{
		New: func(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
			return &faulty{picker.Base{}, at}, nil
		}}
	reg["ledger"] = picker.Registration{
		New: func(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
			return &ledger{open: map[string]int{}}, nil
		}}
	cfg, err := config.Read("epp.yaml", []byte(withFaulty))
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(log, nil))
	p, err := picker.New(cfg, reg, picker.Options{Panicked: logPanics(logger)})
	if err != nil {
		t.Fatal(err)
	}
	return picking(t, "", 1, append(change, func(o *PickingOptions) {
		o.Picker, o.Log, o.Metrics = p, logger, NewPickMetrics(prometheus.NewRegistry(), "pool")
	})...)
}

// checkSettled checks that nothing is charged to anybody any more.
func (k *Picking) checkSettled(t *testing.T) {
	t.Helper()
	k.With(func(m *core.Machine, _ machine.Time) {
		if n := m.InFlight(); n != 0 {
			t.Errorf("%d requests are still in flow control", n)
		}
		for _, pl := range m.Picker().Plugins() {
			if l, ok := pl.(*ledger); ok {
				for id, n := range l.open {
					if n != 0 {
						t.Errorf("%s: request %s was committed %+d times more than released", l.Name(), id, n)
					}
				}
			}
			if f, ok := pl.(interface{ Load(slot int) (int64, int64) }); ok {
				if r, n := f.Load(0); r != 0 || n != 0 {
					t.Errorf("%s: the endpoint is still charged %d requests, %d tokens", pl.Name(), r, n)
				}
			}
		}
	})
}

// A plug-in that panics, wherever that is, fails its own request, which names
// it. The request beside it is served, and so is the one that waits behind it.
func TestPluginPanicFailsItsOwnRequest(t *testing.T) {
	for _, at := range []string{"RequestHeader", "Needs", "Produce", "Score", "PreRequest", "Commit", "ResponseHeader",
		"ResponseBody", "Release", "MatchOf"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			log := &lockedBuffer{}
			k := faultyPicking(t, at, log)
			rig := startWire(t, k)
			good := rig.open("x-request-id", "good")
			for good.next().GetRequestBody() == nil {
			}
			bad := rig.openFor("bad", "x-request-id", "bad", picker.HeaderExplain, "true")
			said := bad.untilOver("data: {}\n\n")
			if ends := at != "Release" && at != "MatchOf"; ends &&
				!strings.Contains(said, "plugin faulty (faulty) panicked: at "+at) {
				t.Errorf("the request was told %q", said)
			} else if !ends && said != "passed" {
				t.Errorf("what its client does not see failed the request: %q", said)
			}
			until(t, "its stream is over", func() bool { return rig.Active() == 1 })
			behind := rig.open("x-request-id", "behind")
			for behind.next().GetRequestBody() == nil {
			}
			for _, s := range []wireStream{good, behind} {
				s.respond("data: {}\n\n", true)
				if said := s.untilOver(""); said != "passed" {
					t.Errorf("another request was told %q", said)
				}
			}
			until(t, "all streams are over", func() bool { return rig.Active() == 0 })
			k.checkSettled(t)
			if text := log.String(); !strings.Contains(text, "at "+at) || !strings.Contains(text, "panic_test.go") {
				t.Errorf("the log does not say where the panic was: %s", text)
			}
		})
	}
}

// A request that waits is placed when another one's end makes room for it. A
// panic meanwhile is the waiting one's.
func TestPluginPanicOfAWaitingRequest(t *testing.T) {
	for _, at := range []string{"Produce", "Score", "Commit"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			k := faultyPicking(t, at, &lockedBuffer{})
			var held []*asked
			for i := range 2 {
				held = append(held, k.testAsk(t.Context(), chat(i), hello))
			}
			answered := make(chan *asked, 1)
			go func() {
				answered <- k.testAsk(context.Background(), chat(2), strings.Replace(hello, `"m"`, `"bad"`, 1))
			}()
			until(t, "it waits", func() (waits bool) {
				k.With(func(m *core.Machine, _ machine.Time) { waits = m.InFlight() == 3 })
				return waits
			})
			held[0].leave()
			if x := <-answered; x.answer == nil || x.answer.Status != 500 ||
				!strings.Contains(string(x.answer.Body), "plugin faulty (faulty) panicked: at "+at) {
				t.Errorf("got %+v", x.answer)
			}
			held[1].leave()
			x := k.testAsk(t.Context(), chat(3), hello)
			if x.answer != nil {
				t.Fatalf("flow control is stuck: %s", x.answer.Body)
			}
			x.leave()
			k.checkSettled(t)
		})
	}
}

// What a plug-in does on a goroutine of the picker's own may panic, too: when an
// endpoint leaves, over a scraped page, for the page of metrics, while a session
// is counted. Nobody's request fails for it.
func TestPluginPanicBetweenRequests(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"EndpointGone", "Extract", "Wants", "IndexSize", "Affinity"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			log := &lockedBuffer{}
			k := faultyPicking(t, at, log, func(o *PickingOptions) {
				o.Fetch = func(string) ([]byte, error) { return []byte("vllm:num_requests_waiting 1\n"), nil }
			})
			reg := prometheus.NewRegistry()
			if err := ObservePool(reg, k, "pool"); err != nil {
				t.Fatal(err)
			}
			if page, err := reg.Gather(); err != nil || len(page) == 0 {
				t.Errorf("the page of metrics has %d families, %v", len(page), err)
			}
			k.SetEndpoints([]*picker.Endpoint{picker.NewEndpoint("default", "other", "127.0.0.9", "8000", nil)})
			if x := k.testAsk(t.Context(), chat(1), hello); x.endpoint != "127.0.0.9:8000" {
				t.Errorf("got %+v", x.answer)
			} else {
				x.leave()
			}
			until(t, "the panic is told", func() bool {
				return strings.Contains(log.String(), "at "+at) && strings.Contains(log.String(), "panic_test.go")
			})
			k.checkSettled(t)
		})
	}
}

// A panic anywhere in a stream, also in windtunnel's own code, ends that stream with an error. The stream releases what
// it held, and the others and the server's end proceed. Here the recorder panics, at each step of it.
func TestPanicEndsItsOwnStream(t *testing.T) {
	t.Parallel()
	for _, step := range []record.Step{record.RequestReceived, record.EndpointPicked, record.RequestPassed,
		record.Part1Sent,
		record.ResponseHeadersSeen, record.FirstTokenSeen,
		record.Part2Sent, record.ResponseEndSeen} {
		for _, hold := range []bool{false, true} {
			t.Run(fmt.Sprint(step, hold), func(t *testing.T) {
				t.Parallel()
				k := faultyPicking(t, "", &lockedBuffer{}, func(o *PickingOptions) {
					o.Stream = stream.Config{Hold: hold, MetadataBytes: 4, Recorder: record.Func(func(e record.Event) {
						if e.Step == step && e.Request == "bad" {
							panic("at " + string(step))
						}
					})}
				})
				rig := startWire(t, k)
				good := rig.open("x-request-id", "good")
				for good.next().GetRequestBody() == nil {
				}
				bad := rig.open("x-request-id", "bad")
				said := bad.untilOver("data: {}\n\n")
				if step == record.Part1Sent && !hold || step == record.Part2Sent && !hold ||
					step == record.RequestPassed &&
						hold {
					if said != "passed" {
						t.Errorf("a step that is not taken: %q", said)
					}
				} else if !strings.Contains(said, "at "+string(step)) {
					t.Errorf("the stream ended with %q", said)
				}
				until(t, "its stream is over", func() bool { return rig.Active() == 1 })
				good.respond("data: {}\n\n", true)
				if said := good.untilOver(""); said != "passed" {
					t.Errorf("the other stream ended with %q", said)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := rig.Stop(ctx); err != nil {
					t.Error(err)
				}
				k.checkSettled(t)
			})
		}
	}
}

// A deadline rings on a timer's goroutine. A panic there ends the stream, not
// the process.
func TestPanicAtADeadline(t *testing.T) {
	t.Parallel()
	k := faultyPicking(t, "", &lockedBuffer{}, func(o *PickingOptions) {
		o.Stream = stream.Config{Hold: true, HoldLimit: machine.Millisecond, MetadataBytes: 4,
			Recorder: record.Func(func(e record.Event) {
				if e.Step == record.Answered {
					panic("in the recorder")
				}
			})}
	})
	rig := startWire(t, k)
	if said := rig.open().untilOver(""); !strings.Contains(said, "in the recorder") {
		t.Errorf("the stream ended with %q", said)
	}
	until(t, "its stream is over", func() bool { return rig.Active() == 0 })
	k.checkSettled(t)
}

// A plug-in that never comes back does not keep the server from stopping.
func TestStopWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	never, asked := make(chan struct{}), make(chan struct{})
	k := faultyPicking(t, "", &lockedBuffer{}, func(o *PickingOptions) {
		o.Stream.Recorder = record.Func(func(e record.Event) {
			if e.Step == record.RequestReceived {
				close(asked)
				<-never
			}
		})
	})
	rig := startWire(t, k)
	rig.open()
	<-asked
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := rig.Stop(ctx); err == nil || !strings.Contains(err.Error(), "1 requests were still held") {
		t.Errorf("got %v", err)
	}
	close(never)
	until(t, "its stream is over", func() bool { return rig.Active() == 0 })
}

// untilOver answers the request with one piece, if there is one, and returns the stream's outcome: "passed", or the
// error.
func (s wireStream) untilOver(piece string) string {
	s.t.Helper()
	answered, responded := false, false
	for {
		m, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			if answered {
				return "passed"
			}
			return "nothing"
		case err != nil:
			return err.Error()
		case m.GetImmediateResponse() != nil:
			if err := s.CloseSend(); err != nil {
				return err.Error()
			}
			return string(m.GetImmediateResponse().Body)
		case m.GetRequestBody() != nil && piece != "" && !responded:
			responded = true
			s.respond(piece, true)
		case m.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream():
			answered = true
			if err := s.CloseSend(); err != nil {
				return err.Error()
			}
		}
	}
}
