package stack

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/chaos"
	"github.com/windtunnel/windtunnel/scenario"
)

// lastAfter is a recorder that keeps clients from sending the last 10 of 300 requests until the last incident has
// ended, however busy the machine is.
type lastAfter struct {
	*recording
	t *testing.T
}

func (r lastAfter) Record(e record.Event) {
	if e.Hop == record.Client && e.Step == record.RequestSent && e.Request > "req-1-000290" {
		r.await(r.t, "the end of the last incident", func(all []record.Event) bool {
			return slices.ContainsFunc(all, func(e record.Event) bool {
				return e.Step == record.IncidentEnded && fmt.Sprint(e.Details.Get("what")) == "delay-clients"
			})
		})
	}
	r.recording.Record(e)
}

// Servers and pickers are killed, paused, cut off and slow, metrics are false, and events are lost, one after another:
// each incident happens, each request has one outcome, and those after the last incident complete.
func TestTroubles(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("x.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  flow: plain
  replicas: 2
  modelServer: {batching: continuous, prefill: 2ms, interTokenLatency: 1ms, outputTokens: 5, kvEvents: {format: msgpack, interval: 1ms}}
  incidents:
  - {at: 100ms, what: kill-server, server: 0, for: 200ms}
  - {at: 400ms, what: pause-server, server: 1, for: 200ms}
  - {at: 450ms, what: crash, server: 1, for: 200ms}
  - {at: 700ms, what: cut-server, server: 0, for: 200ms}
  - {at: 1s, what: delay-server, server: 0, delay: 20ms, for: 200ms}
  - {at: 1300ms, what: pause-epp, for: 200ms}
  - {at: 1600ms, what: cut-epp, for: 200ms}
  - {at: 1900ms, what: delay-epp, delay: 20ms, for: 200ms}
  - {at: 2200ms, what: cut-clients}
  - {at: 2300ms, what: delay-clients, delay: 20ms, for: 200ms}
  - {at: 2400ms, what: false-metrics, server: 1, for: 100ms}
  - {at: 2400ms, what: lose-events, server: 1, for: 100ms}
workload: {requests: 300, rate: 100, arrivals: constant, timeout: 10s}
`))
	if err != nil {
		t.Fatal(err)
	}
	rec := &recording{}
	st, err := Start(context.Background(), Options{Scenario: s, Recorder: lastAfter{rec, t}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	st.Pools[0].Pickers[0].now().With(func(m *epp.Machine, _ machine.Time) {
		if x := m.Sources()[len(m.Sources())-1]; x.Path != "/health" || x.Interval != 5*machine.Second {
			t.Errorf("the picker of a pool whose servers stop requests %s every %v, and no /health", x.Path, x.Interval)
		}
	})
	if err := st.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	checks := st.CheckKV(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := st.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	began, ended, completed := map[string]int{}, map[string]int{}, map[string]bool{}
	sent := map[string]bool{} // after the last incident
	watch := chaos.NewWatch()
	for _, e := range rec.all() {
		watch.Record(e)
		what := fmt.Sprint(e.Details.Get("what"))
		switch e.Step {
		case record.IncidentBegan:
			began[what]++
		case record.IncidentEnded:
			ended[what]++
		case record.RequestSent:
			sent[e.Request] = ended["delay-clients"] > 0
		case record.Finished:
			completed[e.Request] = e.Details.Get("outcome") == string(record.Completed)
		}
		if reason := e.Details.Get("reason"); reason != nil && what != "<nil>" {
			t.Errorf("%s did not happen: %v", what, reason)
		}
	}
	if len(began) != 12 || len(ended) != 11 || len(sent) != 300 {
		t.Errorf("%d kinds of incidents began, %d ended, and %d requests were sent; expected 12, 11, 300",
			len(began), len(ended), len(sent))
	}
	if broken := watch.Broken(); broken != "" {
		t.Error(broken)
	}
	after := 0
	for id, late := range sent {
		if late {
			if after++; !completed[id] {
				t.Errorf("%s, sent after all incidents, has not completed", id)
			}
		}
	}
	if after == 0 {
		t.Error("no request was sent after the incidents")
	}
	for _, c := range checks {
		if !c.OK() {
			t.Errorf("%+v", c)
		}
	}
}
