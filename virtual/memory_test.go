package virtual

import (
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

// A run takes memory for the requests in flight, whatever their total number. The memory of a request whose client has
// left is not used again, because events may still refer to it.
func TestMemoryIsUsedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		workload string
		steps    bool   // every one is taken
		pool     string // further lines of the pool
		least    int    // requests' memory that is free in the end
		most     int
	}{
		"all end":               {"requests: 300, concurrency: 5", false, "", 5, 6},
		"all end, in all steps": {"requests: 300, concurrency: 5", true, "", 5, 6},
		"all end, at servers that come and go": {"requests: 300, concurrency: 5", false,
			"autoscaling: {signal: queue, minReplicas: 1, maxReplicas: 4, targets: {running: 1}}\n  lifecycle: " +
				"{startup: 50ms}", 5, 6},
		"all leave": {"requests: 300, concurrency: 5, leaving: {after: 1ms, rate: 100%}",
			false, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Parse("x.yaml", []byte(`apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  replicas: 2
  modelServer: {prefill: 10ms}
  `+c.pool+`
workload: {`+c.workload+`}
`))
			if err != nil {
				t.Fatal(err)
			}
			w, err := newWorld(s, nil, Options{})
			if err != nil {
				t.Fatal(err)
			}
			w.pools[0].direct = w.pools[0].direct && !c.steps
			if err := w.run(nil); err != nil {
				t.Fatal(err)
			}
			if n := len(w.memories) + len(w.freeDirects); w.done != 300 || n < c.least || n > c.most {
				t.Errorf("%d requests have ended, and the memory of %d is free; expected 300, and %d to %d", w.done, n,
					c.least, c.most)
			}
			for _, sv := range w.pools[0].servers {
				for _, a := range sv.has {
					if a.r == nil {
						t.Errorf("%s still has a request whose memory is free", sv.Name)
					}
				}
			}
			for _, m := range w.memories {
				if m.request.ID != "" || m.answering.r != nil {
					t.Error("free memory still knows of a request")
				}
			}
		})
	}
}
