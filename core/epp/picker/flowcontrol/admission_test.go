package flowcontrol_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// TestRecordedAdmission decides the recorded requests of the runs without flow
// control: the shedding below priority zero (its subset too), and the share
// that the probabilistic-admitter drops.
func TestRecordedAdmission(t *testing.T) {
	shed, passed, draws := 0, 0, 0
	for _, r := range readRecordings(t, "kubernetes-priority") {
		config, probabilistic, gate := r.config(t)
		if gate || r.Errors != nil || r.ID == "objective-changes" {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			objectives := r.objectives()
			loads := make([]Load, len(r.Endpoints))
			for i := range loads {
				loads[i].Scraped = true
			}
			worker, address := map[string]int{}, map[string]int{}
			for i, e := range r.Endpoints {
				worker[e.Name], address[e.Address] = i, i
			}
			held := map[string]int{}
			for _, step := range r.Steps {
				if m, ok := field[map[string]struct {
					Waiting int
					KV      float64
				}](step, "metrics"); ok {
					for name, v := range m {
						loads[worker[name]].Waiting, loads[worker[name]].KVUsage = v.Waiting, machine.Float(v.KV)
					}
				}
				if name, ok := field[string](step, "finish"); ok {
					loads[held[name]].Requests--
				}
				if _, ok := step["burst"]; ok {
					draws += checkBurst(t, config, probabilistic, loads, objectives, step)
				}
				q, ok := field[recordedRequest](step, "request")
				if !ok || q.Body == nil || !strings.HasPrefix(*q.Body, "{") || strings.HasPrefix(q.ID, "bad") {
					continue
				}
				candidates := loads
				if subset, ok := q.Context["envoy.lb.subset_hint"]; ok {
					candidates = nil
					for _, hint := range subset["x-gateway-destination-endpoint-subset"] {
						ip, _, _ := strings.Cut(hint, ":")
						if i, ok := address[ip]; ok {
							candidates = append(candidates, loads[i])
						}
					}
				}
				want := recordedAnswer(step["observed"])
				got := answer{text: "dispatched"}
				a := q.arrival(0, objectives)
				if refusal := Shed(a.Priority, config.Detector.Saturation(candidates, 0)); refusal != nil {
					got.text = refusalText(refusal.Status, refusal.Error(), refusal.Reason)
					shed++
				} else {
					passed++
				}
				if got.text != want.text {
					t.Errorf("%s at %+v: %q, recorded %q", q.ID, candidates, got.text, want.text)
				}
				if hold, _ := field[bool](step, "hold"); hold && want.endpoint != "" {
					ip, _, _ := strings.Cut(want.endpoint, ":")
					held[q.ID] = address[ip]
					loads[address[ip]].Requests++
				}
			}
		})
	}
	t.Logf("%d shed, %d passed, %d burst requests", shed, passed, draws)
	if shed < 30 || passed < 100 || draws < 5000 {
		t.Error("fewer recordings were played than there are")
	}
}

// checkBurst compares a burst's drops with their chance: within four standard
// deviations, and exactly where the chance is 0 or 1.
func checkBurst(t *testing.T, config Config, p Probabilistic, loads []Load, objectives map[string]int,
	step map[string]json.RawMessage) int {
	t.Helper()
	burst, _ := field[struct {
		N       int
		Headers map[string]string
	}](step, "burst")
	counts, _ := field[map[string]int](step, "counts")
	priority := objectives[burst.Headers["x-llm-d-inference-objective"]]
	want := map[string]float64{}
	if Shed(priority, config.Detector.Saturation(loads, 0)) != nil {
		want["429"] = 1
	} else if priority < 0 {
		_, want["500"] = p.Chance(loads)
	}
	for _, status := range []string{"429", "500"} {
		mean := want[status] * float64(burst.N)
		slack := 4 * math.Sqrt(mean*(1-want[status]))
		if got := float64(counts[status]); math.Abs(got-mean) > slack+1e-9 {
			t.Errorf("%s: %v of %d for priority %d, expected %.1f ± %.1f", status, got, burst.N, priority, mean, slack)
		}
	}
	if samples, ok := field[map[string]struct{ Body string }](step, "rejections"); ok && samples["500"].Body != "" {
		if got := Denied(p.Admit(priority, loads, 0)).Error(); got != samples["500"].Body {
			t.Errorf("body %q, recorded %q", got, samples["500"].Body)
		}
	}
	return burst.N
}

func TestLatencySLOAdmitter(t *testing.T) {
	busy := SLOEndpoint{KVUsage: 0.5, Running: 3, Predicted: true}
	good, idle, cold, blind := busy, busy, busy, busy
	good.MeetsSLO, idle.Running, cold.KVUsage, blind.Predicted = true, 0, 0.01, false
	for _, c := range []struct {
		name       string
		priority   int
		ttft, tpot float64
		endpoints  []SLOEndpoint
		denied     bool
	}{
		{"nobody meets it", -1, 100, 0, []SLOEndpoint{busy, busy}, true},
		{"one without prediction", -1, 0, 5, []SLOEndpoint{busy, blind}, true},
		{"not sheddable", 0, 100, 0, []SLOEndpoint{busy}, false},
		{"no objective", -1, 0, 0, []SLOEndpoint{busy}, false},
		{"an unreadable objective", -1, math.NaN(), 0, []SLOEndpoint{busy}, false},
		{"one meets it", -1, 100, 0, []SLOEndpoint{busy, good}, false},
		{"one is idle", -1, 100, 0, []SLOEndpoint{busy, idle}, false},
		{"one is cold", -1, 100, 0, []SLOEndpoint{busy, cold}, false},
		{"no predictions", -1, 100, 0, []SLOEndpoint{blind}, false},
		{"no endpoints", -1, 100, 0, nil, false},
	} {
		if err := AdmitLatencySLO(c.priority, c.ttft, c.tpot, c.endpoints); (err != nil) != c.denied {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if got := Denied(AdmitLatencySLO(-1, 1, 0, []SLOEndpoint{busy})); got.Status != 500 ||
		got.Error() != "inference error: Internal - request cannot be admitted: no valid endpoint available to serve "+
			"the request" {
		t.Errorf("%d %s", got.Status, got.Error())
	}
}

func TestDetectorsAsFilters(t *testing.T) {
	u := DefaultUtilization()
	load := func(waiting int, kv machine.Float) Load { return Load{Scraped: true, Waiting: waiting, KVUsage: kv} }
	for _, c := range []struct {
		l    Load
		now  machine.Time
		keep bool
	}{
		{load(4, 0.79), 0, true}, {load(5, 0), 0, false}, {load(0, 0.8), 0, false},
		{load(0, 0), 200 * machine.Millisecond, true}, {load(0, 0), 201 * machine.Millisecond, false},
		{Load{}, 0, false}, {load(0, machine.Float(math.NaN())), 0, false},
	} {
		if got := u.Keep(c.l, c.now); got != c.keep {
			t.Errorf("utilization keeps %+v at %v: %v", c.l, c.now, got)
		}
	}
	u.Headroom = 0.5
	if !u.Keep(load(7, 1.1), 0) || u.Keep(load(8, 0), 0) {
		t.Error("headroom 0.5 is not half as much again")
	}
	for mode, want := range map[string]bool{ModeRequests: true, ModeTokens: false, ModeHybrid: false} {
		c := Concurrency{Mode: mode, MaxConcurrency: 2, MaxTokenConcurrency: 10}
		if got := c.Keep(Load{Requests: 1, Tokens: 10}); got != want {
			t.Errorf("%s keeps: %v", mode, got)
		}
		if got := c.Saturation([]Load{{Requests: 1, Tokens: 30}, {Requests: 1}}); got != map[string]float64{
			ModeRequests: 0.5, ModeTokens: 1.5, ModeHybrid: 1.5}[mode] {
			t.Errorf("%s saturation: %v", mode, got)
		}
	}
	if got := u.Saturation([]Load{load(0, machine.Float(math.NaN())), load(0, 0)}, 0); got != 0.5 {
		t.Errorf("a KV usage that is not a number gives saturation %v", got)
	}
	if got := u.Saturation(nil, 0); got != 1 {
		t.Errorf("an empty pool has saturation %v", got)
	}
}
