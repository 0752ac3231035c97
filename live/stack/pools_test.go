package stack

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
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
	told := func(events []flow.Event) (pools map[string]string, pickers map[string]int) {
		pools, pickers = map[string]string{}, map[string]int{}
		for _, e := range events {
			if e.Hop == flow.EPP && e.Step == flow.RequestReceived {
				pools[e.Request] = fmt.Sprint(e.Details.Get("pool"))
				pickers[fmt.Sprint(e.Details.Get("picker"))]++
			}
		}
		return pools, pickers
	}
	a, asked := told(live)
	b, turns := told(played)
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
	if asked["chat-epp-0"] == 0 || asked["chat-epp-1"] == 0 { // Envoy's threads each take turns of their own
		t.Errorf("the pickers got %v", asked)
	}
}

// Bodies of all sizes pass both the body-based router and the picker whole, held and
// plain; who asks for what nobody serves is told so.
func TestBodyBasedRouting(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("test.yaml", []byte(twoPools))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	body := func(model string, n int) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":2,"model":%q}`, strings.Repeat("x", n), model)
	}
	for _, model := range []string{"m", "sql", "coder", "coder-latest"} {
		for _, n := range []int{1, 1 << 10, 60_000, 1 << 16, 1 << 20, 3 << 20} {
			want := 200
			if strings.HasPrefix(model, "coder") && n >= 1<<16 {
				want = 400 // longer than maxModelLen
			}
			// Who claims another model by header is not believed.
			if a := r.post(chatPath, body(model, n), "x-gateway-base-model-name", "coder", "x-gateway-model-name", "coder"); a.status != want || a.err != nil {
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
	for _, p := range r.Stack.Pools {
		for _, k := range p.Pickers {
			r.until("the picker has nothing in flight", func() bool { return k.Active() == 0 })
		}
	}
	r.idle()
}

// A picker dies and begins anew: what it has in hand breaks off with a 503, what comes
// while it is dead gets one too, and what comes then is served, in both times.
func TestRestartedPickerLiveAsVirtual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, pool, server, down, want string }{
		{"held", "flow: held", "prefill: 2s, interTokenLatency: 1ms, outputTokens: 3", "2s", "[unavailable unavailable completed]"},
		{"plain", "flow: plain", "prefill: 2s, interTokenLatency: 1ms, outputTokens: 3", "2s", "[unavailable unavailable completed]"},
		{"it takes its time", "flow: plain, epp: {serviceTime: 2s}", "prefill: 1ms, interTokenLatency: 1ms, outputTokens: 3", "2s", "[unavailable unavailable completed]"},
		{"the answer is under way", "flow: plain", "prefill: 1ms, interTokenLatency: 200ms, outputTokens: 10", "3s", "[broken unavailable completed]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			live, played := liveAsVirtual(t, fmt.Sprintf(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - {name: pool, model: m, %s, modelServer: {%s}, incidents: [{at: 1s, what: restart-epp, for: %s}]}
workload: {requests: 3, conversations: {turns: 3, thinkTime: 1500ms}}
`, c.pool, c.server, c.down))
			for name, events := range map[string][]flow.Event{"live": live, "in virtual time": played} {
				var ended []any
				for _, e := range events {
					if e.Step == flow.Finished {
						ended = append(ended, e.Details.Get("outcome"))
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
// again once the one is back: in both times some requests get a 503, and no more.
func TestOneOfTwoPickersDies(t *testing.T) {
	t.Parallel()
	live, played := bothTimes(t, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - {name: pool, model: m, modelServer: {prefill: 1ms, interTokenLatency: 1ms, outputTokens: 3}, epp: {replicas: 2}, incidents: [{at: 2s, what: restart-epp, replica: 1, for: 2s}]}
workload: {requests: 600, rate: 100, arrivals: constant}
`, nil)
	for name, events := range map[string][]flow.Event{"live": live, "in virtual time": played} {
		phase, unavailable := 0, 0 // before, while it is dead, after
		var asked [3]map[string]int
		for i := range asked {
			asked[i] = map[string]int{}
		}
		for _, e := range events {
			switch e.Step {
			case flow.IncidentBegan, flow.IncidentEnded:
				phase++
			case flow.RequestReceived:
				if e.Hop == flow.EPP {
					asked[phase][fmt.Sprint(e.Details.Get("picker"))]++
				}
			case flow.Finished:
				switch o := fmt.Sprint(e.Details.Get("outcome")); o {
				case "unavailable":
					unavailable++
				case "completed":
				default:
					t.Errorf("%s: %s ended as %s", name, e.Request, o)
				}
			}
		}
		if unavailable == 0 || unavailable > 100 {
			t.Errorf("%s %d requests of 600 got a 503", name, unavailable)
		}
		if asked[0]["pool-epp-1"] == 0 || asked[1]["pool-epp-0"] == 0 || asked[1]["pool-epp-1"] > 2 || asked[2]["pool-epp-1"] == 0 || asked[2]["pool-epp-0"] == 0 {
			t.Errorf("%s the pickers were asked %v", name, asked)
		}
	}
}
