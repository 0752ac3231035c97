package stack

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/virtual"
)

// examples are three that differ most, and all at night or where a test asks for them.
func examples(t *testing.T) (files []string) {
	t.Helper()
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(err, files)
	}
	if nightly.On() || os.Getenv(replayTime) != "" {
		return files
	}
	return slices.DeleteFunc(files, func(file string) bool {
		return !slices.Contains([]string{"held.yaml", "pd.yaml", "kv-aware.yaml"}, filepath.Base(file))
	})
}

var shortTimeout = regexp.MustCompile(`\btimeout: [0-9]+ms`)

// Every example (see examples) says the same in both times, request by request and hop by hop:
// the same steps with the same details.
func TestExamplesLiveAsVirtual(t *testing.T) {
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			read := func() *scenario.Scenario {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				// What a picker asks is answered in time on a busy machine, too. The name is that of
				// no file: the stack would take the file's own time limits over again.
				s, err := scenario.Parse(file+".patient", shortTimeout.ReplaceAll(text, []byte("timeout: 10s")))
				if err != nil {
					t.Fatal(err)
				}
				// One request after the other: which of several is first is a race in wall
				// time, and nobody waits here for half a minute of prefill.
				w, m := &s.Workload, &s.Pools[0].ModelServer
				w.Requests, w.Concurrency, w.Rate = min(w.Requests, 8), 1, 0
				w.OutputTokens = mustCount("16..32")
				if m.Accelerator == "" && m.Coefficients == (scenario.Coefficients{}) && m.StepTimes == "" {
					m.Prefill = dist.Fixed(20e6)
				}
				return s
			}
			if why := incomparable[filepath.Base(file)]; why != "" {
				t.Skip(why)
			}
			var r *rig
			r = start(t, read(), func(o *Options) {
				o.Explain = record.Explained(record.Func(nil))
				all := o.Recorder
				o.Recorder = record.Func(func(e record.Event) {
					all.Record(e)
					if e.Hop == record.Client && e.Step == record.Finished { // before the client's next request
						r.forgotten()
					}
				})
			})
			live := r.load()
			r.settled()
			var played []record.Event
			if err := virtual.Run(unhurriedly(read()),
				record.Func(func(e record.Event) { played = append(played, e) }), nil); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(steps(t, live), steps(t, played)); d != "" {
				t.Errorf("live (-) and virtual (+) differ: %s", d)
			}
		})
	}
}

// forgotten waits until nobody has a request and every picker has metrics that say so.
func (r *rig) forgotten() {
	r.t.Helper()
	r.settled()
	r.until("the pickers' metrics show no request", func() bool {
		idle := true
		for _, p := range r.Pools {
			for _, k := range p.Pickers {
				k.now().With(func(m *core.Machine, _ machine.Time) {
					for i := range m.Picker().Pool().View().States {
						x := &m.Picker().Pool().View().States[i].Metrics
						idle = idle && x.Waiting+x.Running == 0 && x.KVUsage == 0 &&
							(x.LoRA == nil || len(x.LoRA.Running)+len(x.LoRA.Waiting) == 0)
					}
				})
			}
		}
		return idle
	})
}

// unhurriedly lets requests be over, and pickers know it, before the next one comes: the same in virtual time as
// forgotten in wall time.
func unhurriedly(s *scenario.Scenario) *scenario.Scenario {
	w := &s.Workload
	w.Rate, w.Arrivals = 0.2, scenario.ConstantArrivals
	if w.Conversations.Turns.Quantile(1) > 1 {
		w.Rate, w.Conversations.ThinkTime = 0.02, dist.Fixed(3e9)
	}
	return s
}

// incomparable are the examples that cannot be held against each other, and why.
var incomparable = map[string]string{
	"own-model-servers.yaml": "its model servers are external",
	"pools.yaml": "Envoy's threads take turns of their own at the pickers, each of which knows other " +
		"prefixes",
	"autoscaling.yaml": "the autoscaler looks at times of its own, and in wall time a request is answered " +
		"sooner or later",
	"manifests.yaml": "its routes draw among weighted pools",
	"incidents.yaml": "what happens by the clock meets another request in wall time",
}

// steps lists the events of each request at each hop, in the order of time, without the details that differ between any
// two runs.
func steps(t *testing.T, events []record.Event) map[string][]string {
	sorted := slices.Clone(events)
	slices.SortStableFunc(sorted, func(x, y record.Event) int { return int(max(-1, min(1, x.Time-y.Time))) })
	out := map[string][]string{}
	for _, e := range sorted {
		if e.Hop == record.Envoy || e.Request == "" {
			continue
		}
		line := string(e.Step)
		for _, d := range e.Details {
			switch {
			case d.Key == "bytes" && e.Step != record.RequestSent: // answers are not written out in virtual time
			case d.Key == "kv_handle": // made of names that servers draw for themselves in wall time
			case d.Key == "fetched_us": // a time
			case d.Key == "explanation":
				line += " explanation=" + untimed(t, d.Value)
			default:
				line += fmt.Sprintf(" %s=%v", d.Key, d.Value)
			}
		}
		of := e.Request + " " + string(e.Hop)
		out[of] = append(out[of], strings.TrimSpace(addresses.ReplaceAllString(line, "ADDRESS")))
	}
	return out
}

// scraped matches what an endpoint's last scrape found, which hangs on when it was.
var scraped = regexp.MustCompile(`"inputs":\{[^}]*\},?`)

// untimed is an explanation without the times in it: those of the decision and of scrapes, and
// how long plug-ins took, which in virtual time is nothing.
func untimed(t *testing.T, explanation any) string {
	text, err := json.Marshal(explanation)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, key := range []string{"at_seconds", "plugin_seconds", "point_seconds", "decision_seconds"} {
		delete(fields, key)
	}
	if text, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return scraped.ReplaceAllString(string(text), "")
}

var addresses = regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}:\d+\b`)
