package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/scenario"
)

const reloaded = `
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: default
    model: m
    replicas: 2
    modelServer: {batching: independent, prefill: 1ms, interTokenLatency: 1ms, outputTokens: 4}
    epp:
      config: %s
workload: {requests: 400, concurrency: 4}
`

const pickerFile = `
plugins:
- {type: queue-scorer}
schedulingProfiles:
- {name: one, plugins: [{pluginRef: queue-scorer, weight: 1}]}
`

const pickerInline = `
        plugins:
        - {type: queue-scorer}
        schedulingProfiles:
        - {name: one, plugins: [{pluginRef: queue-scorer, weight: 1}]}`

// The picker's configuration is edited in the middle of a run, in its own file
// or in the scenario: the valid one decides from then on, the invalid one is refused and reported, and no request is
// affected.
func TestConfigurationIsEditedInARun(t *testing.T) {
	t.Parallel()
	for _, inline := range []bool{false, true} {
		t.Run(fmt.Sprintf("in the scenario %v", inline), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, edited := filepath.Join(dir, "scenario.yaml"), filepath.Join(dir, "picker.yaml")
			text := fmt.Sprintf(reloaded, edited)
			write := func(path, text string) {
				t.Helper()
				err := os.WriteFile(path+"~", []byte(text), 0o600)
				if err == nil {
					err = os.Rename(path+"~", path) // whole at once, as editors do it
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			first := pickerFile
			if inline {
				text = fmt.Sprintf(reloaded, pickerInline)
				edited, first = path, text
			} else {
				write(edited, first)
			}
			write(path, text)
			s, err := scenario.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			reloaded := make(chan error, 16)
			r := start(t, s, func(o *Options) {
				o.Reloaded = func(file string, err error) {
					if file != edited {
						t.Errorf("told of %s", file)
					}
					reloaded <- err
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			loaded := make(chan error, 1)
			go func() { loaded <- r.Load(ctx) }()
			by := func(profile string) int {
				n := 0
				for _, e := range r.rec.all() {
					if e.Step == record.EndpointPicked && fmt.Sprint(e.Details.Get("profile")) == profile {
						n++
					}
				}
				return n
			}
			r.until("decisions by the first", func() bool { return by("one") > 10 })

			write(edited, strings.Replace(first, "type: queue-scorer", "type: no-such-scorer", 1))
			if err := <-reloaded; err == nil || !strings.Contains(err.Error(), "no-such-scorer") {
				t.Errorf("a bad configuration: told %v", err)
			}
			before := by("one")
			r.until("decisions by the first still", func() bool { return by("one") > before+10 })

			write(edited, strings.Replace(first, "name: one", "name: two", 1))
			if err := <-reloaded; err != nil {
				t.Errorf("a good configuration is refused: %v", err)
			}
			r.until("decisions by the second", func() bool { return by("two") > 10 })
			if err := <-loaded; err != nil {
				t.Fatal(err)
			}
			if n := by("one") + by("two"); n != 400 {
				t.Errorf("%d decisions of 400 requests", n)
			}
			if _, finished := r.found(); finished != 400 ||
				r.rec.count(record.Client, record.LastTokenReceived) != 400 {
				t.Errorf("%d of 400 requests finished, %d whole", finished,
					r.rec.count(record.Client, record.LastTokenReceived))
			}
			r.idle()
		})
	}
}

// A configuration whose index takes events at an address of the picker's is replaced by another one with the same
// address.
func TestConfigureWithTheSameEventsAddress(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("bound.yaml", []byte(strings.Replace(indexed, "{podDiscoveryConfig: {socketPort: 5557}}",
		fmt.Sprintf(`{discoverPods: false, zmqEndpoint: "tcp://127.0.0.1:%d"}`, freeport.Row(t, 1)), 1)))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	if err := r.Configure(0, strings.ReplaceAll(string(r.text), "weight: 2", "weight: 3")); err != nil {
		t.Error(err)
	}
}
