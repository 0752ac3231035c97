package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// Two models in two pools, an adapter, two replicas of the picker in one of them.
const twoPools = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: chat
    model: m
    flow: held
    replicas: 2
    modelServer: {prefill: 20ms, interTokenLatency: 2ms, outputTokens: 4, loraAdapters: [sql]}
    epp: {replicas: 2}
  - name: code
    model: coder
    servedModelNames: [coder-latest]
    modelServer: {batching: continuous, prefill: 10ms, interTokenLatency: 2ms, outputTokens: 4, numGPUBlocks: 4096, maxModelLen: 16384}
`

// Requests find their pools by the models that they ask for, the same in both
// times; Envoy asks a pool's pickers by turns.
func TestPoolsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := liveAsVirtual(t, twoPools+`
workload:
  requests: 40
  concurrency: 4
  prompt: {characters: 400}
  classes:
    - {name: chat, share: 50%}
    - {name: sql, share: 20%, model: sql}
    - {name: code, share: 20%, model: coder}
    - {name: latest, share: 10%, model: coder-latest}
`)
	choices := func(events []record.Event) (pools map[string]string, pickers map[string]int) {
		pools, pickers = map[string]string{}, map[string]int{}
		for _, e := range events {
			if e.Hop == record.EPP && e.Step == record.RequestReceived {
				pools[e.Request] = fmt.Sprint(e.Details.Get("pool"))
				pickers[fmt.Sprint(e.Details.Get("picker"))]++
			}
		}
		return pools, pickers
	}
	a, asked := choices(live)
	b, turns := choices(played)
	n := map[string]int{}
	for id := range a {
		if n[a[id]]++; a[id] != b[id] {
			t.Errorf("%s: pool %s live and %s in virtual time", id, a[id], b[id])
		}
	}
	if n["chat"]+n["code"] != 40 || n["code"] == 0 || n["chat"] < n["code"] {
		t.Errorf("the pools got %v", n)
	}
	if d := turns["chat-epp-0"] - turns["chat-epp-1"]; d < 0 || d > 1 || turns["<nil>"] != n["code"] {
		t.Errorf("in virtual time the pickers got %v", turns)
	}
	for _, e := range live {
		if timeline, ok := e.Details.Get("timeline_us").(map[string]any); ok && timeline["router_request"] == nil {
			t.Errorf("%s: Envoy does not say how long the body-based router took: %v", e.Request, timeline)
		}
	}
	if asked["chat-epp-0"] == 0 || asked["chat-epp-1"] == 0 { // Envoy's threads each take turns of their own
		t.Errorf("the pickers got %v", asked)
	}
}

// Bodies of all sizes pass both the body-based router and the picker whole, held and plain; a request for a model that
// no pool serves is refused.
func TestBodyBasedRouting(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("test.yaml", []byte(twoPools))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	body := func(model string, n int) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":2,"model":%q}`,
			strings.Repeat("x", n), model)
	}
	sizes := []int{1, 1 << 10, 60_000, 1 << 16, 1 << 20, 3 << 20}
	if raced { // the picker would read the largest for longer than the 10 s that it has
		sizes = sizes[:5]
	}
	for _, model := range []string{"m", "sql", "coder", "coder-latest"} {
		for _, n := range sizes {
			want := 200
			if strings.HasPrefix(model, "coder") && n >= 1<<16 {
				want = 400 // longer than maxModelLen
			}
			// A header with another model has no effect.
			if a := r.post(chatPath, body(model, n), "x-gateway-base-model-name", "coder", "x-gateway-model-name",
				"coder"); a.status != want || a.err != nil {
				t.Errorf("%s, %d bytes: %d %v %.200s", model, n, a.status, a.err, a.body)
			}
		}
	}
	for _, c := range []struct {
		body string
		want int
		says string
	}{
		{body("m", 5<<20), 413, "more than 4194304 bytes"},
		{body("nobody", 1), 404, "The model `nobody` does not exist."},
		{`{"messages":[]}`, 400, ""},
		{`no JSON`, 400, ""},
	} {
		if a := r.post(chatPath, c.body); a.status != c.want || !strings.Contains(a.body, c.says) {
			t.Errorf("%.60s: %d %v %.200s", c.body, a.status, a.err, a.body)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if a := do(r.request(ctx, http.MethodGet, "/v1/models", "", "x-gateway-base-model-name",
		"coder")); a.status != 200 || strings.Contains(a.body, "coder") {
		t.Errorf("who asks without a body is led by a header of their own: %d %s", a.status, a.body)
	}
	for _, p := range r.Stack.Pools {
		for _, k := range p.Pickers {
			r.until("the picker has nothing in flight", func() bool { return k.Server().Active() == 0 })
		}
	}
	r.idle()
}

// A picker dies and restarts: its requests are cut with a 503, requests while it is down get one, too, and later
// requests are served, in both times.
func TestRestartedPickerLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, pool, server, down, want string }{
		{"held", "flow: held", "prefill: 2s, interTokenLatency: 1ms, outputTokens: 3", "6s",
			"[unavailable unavailable completed]"},
		{"plain", "flow: plain", "prefill: 2s, interTokenLatency: 1ms, outputTokens: 3", "6s",
			"[unavailable unavailable completed]"},
		{"it takes its time", "flow: plain, epp: {serviceTime: 2s}",
			"prefill: 1ms, interTokenLatency: 1ms, outputTokens: 3", "6s", "[unavailable unavailable completed]"},
		{"the answer is under way", "flow: plain", "prefill: 1ms, interTokenLatency: 200ms, outputTokens: 10", "6s",
			"[broken unavailable completed]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			live, played := liveInStep(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - {name: pool, model: m, %s, modelServer: {%s}, incidents: [{at: 1s, what: restart-epp, for: %s}]}
workload: {requests: 3, conversations: {turns: 3, thinkTime: 4s}}
`, c.pool, c.server, c.down))
			for name, events := range map[string][]record.Event{"live": live, "in virtual time": played} {
				var ended []any
				for _, e := range events {
					if e.Step == record.Finished {
						ended = append(ended, e.Details.Get("outcome"))
					}
					if e.Step == record.StreamFailed && e.Details.Get("reason") != stream.Killed {
						t.Errorf("%s a stream failed because of %q", name, e.Details.Get("reason"))
					}
				}
				if fmt.Sprint(ended) != c.want {
					t.Errorf("%s the requests ended with %v, expected %s", name, ended, c.want)
				}
			}
		})
	}
}

// Of two pickers one dies. Envoy asks the other alone once it has seen that, and both
// again once the one is back. Requests that come before Envoy has seen it get a 503; in wall
// time there need be none.
func TestOneOfTwoPickersDies(t *testing.T) {
	t.Parallel()
	live, played := bothTimes(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - {name: pool, model: m, modelServer: {prefill: 1ms, interTokenLatency: 1ms, outputTokens: 3}, epp: {replicas: 2}, incidents: [{at: 2s, what: restart-epp, replica: 1, for: 2s}]}
workload: {requests: 720, rate: 30, arrivals: constant}
`, func(o *Options) {
		rec := o.Recorder.(*recording)
		o.moment = func(ctx context.Context, step record.Step) { // it is back once the other has answered 15 in a row
			for ended := func() (n, well int) {
				for _, e := range rec.all() {
					if e.Step == record.Finished {
						if n++; e.Details.Get("outcome") == string(record.Completed) {
							well++
						} else {
							well = 0
						}
					} else if e.Step == record.IncidentBegan {
						well = 0
					}
				}
				return n, well
			}; ctx.Err() == nil; pause.For(ctx, 100*time.Millisecond) {
				if n, well := ended(); step == record.IncidentBegan && n >= 40 || step == record.IncidentEnded &&
					well >= 15 {
					return
				}
			}
		}
	})
	for name, events := range map[string][]record.Event{"live": live, "in virtual time": played} {
		phase, unavailable, broken := 0, 0, 0 // before, while it is dead, after
		var asked [3]map[string]int
		for i := range asked {
			asked[i] = map[string]int{}
		}
		for _, e := range events {
			switch e.Step {
			case record.IncidentBegan, record.IncidentEnded:
				phase++
			case record.RequestReceived:
				if e.Hop == record.EPP {
					asked[phase][fmt.Sprint(e.Details.Get("picker"))]++
				}
			case record.Finished:
				switch o := fmt.Sprint(e.Details.Get("outcome")); o {
				case "unavailable":
					unavailable++
				case "broken": // its answer was under way when the picker died
					broken++
				case "completed":
				default:
					t.Errorf("%s: %s ended as %s", name, e.Request, o)
				}
			}
		}
		if name != "live" && (unavailable == 0 || unavailable > 60 || broken > 10) {
			t.Errorf("%s %d requests of 720 got a 503, and %d broke off", name, unavailable, broken)
		}
		// What a picker got before it died may be recorded late in wall time.
		if asked[0]["pool-epp-1"] == 0 || asked[1]["pool-epp-0"] == 0 || asked[1]["pool-epp-1"] > 20 ||
			asked[2]["pool-epp-1"] == 0 || asked[2]["pool-epp-0"] == 0 {
			t.Errorf("%s the pickers were asked %v", name, asked)
		}
	}
}

// Servers that are not alike take as long as their group says, whether they prefill
// for others or do all of it, in pools side by side, the same in both times.
func TestGroupsLiveAsVirtual(t *testing.T) {
	t.Parallel()
	live, played := liveAsVirtual(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: apart
    model: m
    sidecar: routing
    disaggregation: {holdBlocks: 10s}
    modelServer: {batching: continuous, prefill: 20ms, interTokenLatency: 2ms, outputTokens: 8, numGPUBlocks: 4096, maxModelLen: 16384}
    groups:
      - {name: fill, role: prefill, modelServer: {prefill: 60ms}}
      - {name: fast}
  - name: mixed
    model: n
    modelServer: {batching: continuous, prefill: 10ms, outputTokens: 4, numGPUBlocks: 4096, maxModelLen: 16384}
    groups:
      - {name: a, modelServer: {interTokenLatency: 2ms}}
      - {name: b, modelServer: {interTokenLatency: 30ms}}
workload:
  requests: 12
  prompt: {characters: 2000}
  classes: [{name: apart, share: 40%}, {name: mixed, share: 60%, model: n}]
`)
	// took is how long each request's prefills and its answer took at the servers.
	took := func(events []record.Event) map[string]string {
		began, out := map[string]machine.Time{}, map[string]string{}
		for _, e := range events {
			if e.Hop != record.Server || e.Request == "" {
				continue
			}
			switch e.Step {
			case record.PrefillStarted, record.DecodeStarted:
				began[e.Request] = e.Time
			case record.PrefillFinished, record.LastTokenSent:
				out[e.Request] += fmt.Sprint(" ", (e.Time - began[e.Request]).Duration())
			}
		}
		return out
	}
	a, b := took(live), took(played)
	kinds := map[string]int{}
	for id := range b {
		if kinds[b[id]]++; a[id] != b[id] {
			t.Errorf("%s: live%s, virtual%s", id, a[id], b[id])
		}
	}
	if kinds[" 10ms 6ms"] == 0 || kinds[" 10ms 90ms"] == 0 || len(kinds) != 3 {
		t.Errorf("requests took %v", kinds)
	}
}

// Every replica of a picker receives KV events by itself, and a restarted one says why its index is incomplete.
func TestReplicasIndexes(t *testing.T) {
	t.Parallel()
	text := strings.Replace(indexed, "    epp:\n", "    epp:\n      replicas: 2\n", 1) + `
workload: {requests: 6, prompt: {characters: 2000, shared: {groups: 2, characters: 1000}}, conversations: {turns: 6, thinkTime: 50ms}}
`
	s, err := scenario.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	r.load()
	r.settled()
	checks, err := virtual.Play(s, nil, virtual.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]int{"live": 0, "in virtual time": 1} {
		got := checks
		if list == 0 {
			got = r.Stack.CheckKV(context.Background())
		}
		for i, c := range got {
			if want := fmt.Sprintf("precise-prefix-cache-producer of pool-epp-%d", i); c.Index != want ||
				c.Blocks == 0 || c.Missing+c.Extra > 0 {
				t.Errorf("%s %+v, expected all blocks in %s", name, c, want)
			}
		}
		if len(got) != 2 {
			t.Errorf("%s there are %d indexes", name, len(got))
		}
	}
}

// A body that trickles is not waited for by the router for longer than by a picker.
func TestSlowBodyBeforeRouting(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("test.yaml",
		[]byte(strings.ReplaceAll(strings.Replace(twoPools, "epp: {replicas: 2}", "epp: {bodyIdleTimeout: 3s}", 1),
			"    servedModelNames: [coder-latest]", "    epp: {bodyIdleTimeout: 3s}")))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	body, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req := r.request(ctx, http.MethodPost, chatPath, "x")
	req.Body, req.ContentLength = body, -1
	go func() { _, _ = w.Write([]byte(`{"model":"m",`)) }()
	if a := do(req); a.status != 408 || !strings.Contains(a.body, "came to a halt") {
		t.Errorf("got %d %v %q", a.status, a.err, a.body)
	}
	r.healthy()
}
