package stack

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// A pool without a picker is a plain Service: Envoy takes its servers by turns, and leaves one
// out that its health checks find dead. Nobody's header chooses for it. The pool beside
// it asks its picker.
func TestServiceWithoutPicker(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("test.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - {name: service, model: m, replicas: 2, epp: {replicas: 0}, modelServer: {prefill: 5ms, interTokenLatency: 1ms, outputTokens: 3}}
  - {name: picked, model: other, modelServer: {prefill: 5ms, interTokenLatency: 1ms, outputTokens: 3}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, s, nil)
	served := func(endpoint string) (n int) {
		for _, e := range r.rec.all() {
			if e.Hop == record.Server && e.Step == record.RequestReceived && e.Endpoint == endpoint {
				n++
			}
		}
		return n
	}
	one, two := r.Pools[0].Endpoints[0], r.Pools[0].Endpoints[1]
	r.until("both servers have had some", func() bool {
		if a := r.post(chatPath, chat, "x-gateway-destination-endpoint", one); a.err != nil || a.status != 200 {
			t.Fatalf("%d %v %.300q", a.status, a.err, a.body)
		}
		return served(one) > 0 && served(two) > 0
	})
	if n := r.rec.count(record.EPP, record.RequestReceived); n != 0 {
		t.Errorf("a picker was asked about %d requests; the pool has none", n)
	}
	other := `{"model":"other","messages":[{"role":"user","content":"x"}]}`
	if a := r.post(chatPath, other); a.err != nil || a.status != 200 {
		t.Fatalf("%d %v %.300q", a.status, a.err, a.body)
	}
	if n := r.rec.count(record.EPP, record.EndpointPicked); n != 1 {
		t.Errorf("the other pool's picker picked %d times", n)
	}
	crash := planned(t, r.Pools[0], scenario.Incident{What: scenario.Crash})
	if err := r.Pools[0].happen(crash); err != nil {
		t.Fatal(err)
	}
	well := 0
	r.until("Envoy has found the server dead", func() bool {
		if a := r.post(chatPath, chat); a.status == 200 {
			well++
		} else {
			well = 0
		}
		return well == 20 // one of two or more of Envoy's threads may have the dead one's turn rarely
	})
}
