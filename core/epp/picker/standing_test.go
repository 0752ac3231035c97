package picker_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

const standingProfiles = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: prefix-cache-scorer}
- {type: queue-scorer}
- {type: running-requests-size-scorer}
- {type: kv-cache-utilization-scorer}
- {type: load-aware-scorer}
schedulingProfiles:
- name: default
  plugins: [%s]
`

// A picker of whose decisions only the choice is read chooses as one does that
// scores every endpoint each time, whatever comes in of them meanwhile.
func TestBriefDecisionsChooseTheSame(t *testing.T) {
	t.Parallel()
	scorers := []string{"prefix-cache-scorer", "queue-scorer", "running-requests-size-scorer",
		"kv-cache-utilization-scorer", "load-aware-scorer"}
	rapid.Check(t, func(t *rapid.T) {
		refs := ""
		for _, name := range scorers {
			if w := rapid.IntRange(-1, 3).Draw(t, name); w >= 0 {
				refs += fmt.Sprintf("{pluginRef: %s, weight: %d}, ", name, w)
			}
		}
		cfg, err := config.Read("picker.yaml", fmt.Appendf(nil, standingProfiles, refs))
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 40).Draw(t, "endpoints")
		build := func(brief bool) *picker.Picker {
			p, err := picker.New(cfg, plugins.Builtin(), picker.Options{Brief: brief})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		set := func(p *picker.Picker, n int) {
			var list []*picker.Endpoint
			for i := range n {
				list = append(list, picker.NewEndpoint("default", fmt.Sprintf("w%02d", i),
					fmt.Sprintf("10.0.0.%d", i+1), "8000", nil))
			}
			p.Pool().Set(list)
		}
		whole, brief := build(false), build(true)
		set(whole, n)
		set(brief, n)
		for i := range 100 {
			now := machine.Time(i)
			switch rapid.IntRange(0, 20).Draw(t, "what") {
			case 0:
				n = rapid.IntRange(1, 40).Draw(t, "endpoints")
				set(whole, n)
				set(brief, n)
			case 1:
				k := rapid.IntRange(0, n-1).Draw(t, "expires")
				whole.Pool().Expire(k, picker.Metrics{}, false)
				brief.Pool().Expire(k, picker.Metrics{}, false)
			}
			for range rapid.IntRange(0, 5).Draw(t, "updates") {
				k := rapid.IntRange(0, n-1).Draw(t, "endpoint")
				m := picker.Metrics{Waiting: rapid.Int64Range(0, 3).Draw(t, "waiting"),
					Running: rapid.Int64Range(0, 9).Draw(t, "running"),
					KVUsage: float64(rapid.IntRange(0, 8).Draw(t, "usage")) / 7}
				whole.Pool().Update(now, k, m)
				brief.Pool().Update(now, k, m)
			}
			r := prompt(rapid.IntRange(0, 6).Draw(t, "prompt"))
			a, b := whole.Pick(now, r, whole.Pool().View(), nil, nil), brief.Pick(now, r, brief.Pool().View(), nil, nil)
			if a.Err != nil || b.Err != nil {
				t.Fatal(a.Err, b.Err)
			}
			if x, y := a.Targets[0], b.Targets[0]; x.HostPort != y.HostPort || x.Score != y.Score {
				t.Fatalf("decision %d: %s with %v; each time scored again it is %s with %v", i, y.HostPort, y.Score,
					x.HostPort, x.Score)
			}
			_, _ = whole.Commit(now, a), brief.Commit(now, b)
			_, _ = whole.Release(now, a), brief.Release(now, b)
		}
	})
}
