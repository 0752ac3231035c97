package stack

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/scenario"
)

func TestMain(m *testing.M) {
	if servers := os.Getenv(pickerVar); servers != "" {
		servePicker(strings.Fields(servers))
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction(
			"github.com/windtunnel/windtunnel/internal/child.startChildren")); err != nil {
			println("goroutines outlive the stacks:", err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds every wait; no test waits for a time to pass.
const patience = time.Minute

const chat = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`

// recording keeps every event.
type recording struct {
	mu     sync.Mutex
	events []record.Event
	more   chan struct{} // closed at the next event; nil while nobody waits
}

func (r *recording) Record(e record.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// await waits until the events meet a condition. If they do not, it fails the test; what names the condition. Any
// goroutine may call it.
func (r *recording) await(t *testing.T, what string, ok func([]record.Event) bool) {
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		r.mu.Lock()
		if r.more == nil {
			r.more = make(chan struct{})
		}
		more, events := r.more, slices.Clone(r.events)
		r.mu.Unlock()
		if ok(events) {
			return
		}
		select {
		case <-more:
		case <-end.C:
			t.Errorf("waited %v for: %s", patience, what)
			return
		}
	}
}

func (r *recording) all() []record.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// count is how often a step was recorded.
func (r *recording) count(hop record.Hop, step record.Step) int {
	n := 0
	for _, e := range r.all() {
		if e.Hop == hop && e.Step == step {
			n++
		}
	}
	return n
}

// rig is a stack under test.
type rig struct {
	*Stack
	*Pool          // the first
	Picker *Picker // its first; nil with an external one
	t      *testing.T
	rec    *recording
	inputs *inputs
	played inputlog.Counts // once it has been played again
}

// quick is a scenario whose prefill takes a millisecond.
func quick(change func(*scenario.Scenario)) *scenario.Scenario {
	text := `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: default
    model: m
    flow: held
    replicas: 2
    modelServer: {batching: independent, prefill: 1ms, interTokenLatency: 1ms, outputTokens: 4}
    epp: {config: {plugins: [{type: health-data-source}, {type: round-robin-picker}], dataLayer: {sources: [{pluginRef: health-data-source}]}}}
`
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err != nil {
		panic(err)
	}
	if change != nil {
		change(s)
	}
	return s
}

func start(t *testing.T, s *scenario.Scenario, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, rec: &recording{}}
	o := Options{Scenario: s, Recorder: r.rec, Dir: t.TempDir(), Describe: true, Explain: record.DefaultExplained}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	r.Stack, r.Pool = st, st.Pools[0]
	if len(r.Pickers) > 0 {
		r.Picker = r.Pickers[0]
	}
	r.record()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := st.Stop(ctx); err != nil {
			t.Error(err)
		}
		r.playAgain(t, o.Plugins)
		if t.Failed() {
			for _, e := range r.rec.all() {
				t.Logf("%v %s %s %s %v", e.Time, e.Request, e.Hop, e.Step, e.Details)
			}
		}
		// testing keeps what a parallel test's cleanup refers to until all tests have ended.
		st, o, *r = nil, Options{}, rig{t: t, played: r.played}
	})
	return r
}

// answer is a response to a client.
type answer struct {
	status int
	head   http.Header
	body   string
	err    error // of sending, or of reading the body
}

func (r *rig) request(ctx context.Context, method, path, body string, head ...string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.Gateway.Addr+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("content-type", "application/json")
	}
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	return req
}

func do(req *http.Request) answer {
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	_, err = io.Copy(&b, resp.Body)
	return answer{resp.StatusCode, resp.Header, b.String(), err}
}

// post sends a body and waits for the whole answer. Headers come in pairs.
func (r *rig) post(path, body string, head ...string) answer {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return do(r.request(ctx, http.MethodPost, path, body, head...))
}

// postTo is post to one part alone.
func (r *rig) postTo(url, path, body string, head ...string) answer {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req := r.request(ctx, http.MethodPost, path, body, head...)
	req.URL.Host, req.Host = strings.TrimPrefix(url, "http://"), ""
	return do(req)
}

// fault asks the model server to spoil a request.
func (r *rig) fault(kind string) answer {
	r.t.Helper()
	return r.post("/v1/chat/completions", chat, "X-Windtunnel-Fault", kind)
}

// until waits for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	eventually.Is(r.t, what, ok)
}

// idle waits until nobody has a request any more: gauges are zero at Envoy,
// the EPP and every model server.
func (r *rig) idle() {
	r.t.Helper()
	r.until("nothing in flight anywhere", func() bool {
		active, err := r.Gateway.Active(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		if !active.Idle() || r.Picker != nil && r.Picker.Server().Active() > 0 {
			return false
		}
		for _, s := range r.Fleet.Servers() {
			if s.InFlight() > 0 {
				return false
			}
		}
		return true
	})
}

// healthy checks the state after every fault: nothing is left in flight, and the next request succeeds.
func (r *rig) healthy() {
	r.t.Helper()
	r.idle()
	a := r.post("/v1/chat/completions", chat)
	if a.err != nil || a.status != 200 || !strings.Contains(a.body, "[DONE]") {
		r.t.Fatalf("the next request: %d %v %q", a.status, a.err, a.body)
	}
	r.idle()
}

// planned is an incident as a pool executes it.
func planned(t *testing.T, p *Pool, x scenario.Incident) *plan.Incident {
	t.Helper()
	i, err := p.o.Scenario.Incident(p.index, &x)
	if err != nil {
		t.Fatal(err)
	}
	return &i
}

// compiled is the plan of a scenario.
func compiled(t *testing.T, s *scenario.Scenario) *plan.Plan {
	t.Helper()
	p, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// picking configures a picker whose streams share a configuration.
func picking(streams stream.Config) epp.PickingOptions {
	return epp.PickingOptions{Config: core.Config{Stream: streams}}
}
