package stack

import (
	"context"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
)

// byFrontend routes by what a Dynamo frontend answers.
const byFrontend = `
plugins:
- {type: dynamo-frontend-scorer, parameters: {timeout: 10s}}
- {type: max-score-picker}
`

// The Dynamo frontend names the worker. While it is gone requests go on without it, and once
// it is back, and workers have pushed, it is heard again.
func TestDynamoFrontendLost(t *testing.T) {
	t.Parallel()
	for _, where := range []scenario.DynamoFrontend{scenario.SidecarFrontend, scenario.ExternalFrontend} {
		t.Run(string(where), func(t *testing.T) {
			t.Parallel()
			r := start(t, quick(func(s *scenario.Scenario) {
				p := &s.Pools[0]
				p.EPP.Config.Text = []byte(byFrontend)
				p.Dynamo.Frontend, p.Dynamo.PushInterval = where, 20*time.Millisecond
			}), nil)
			failed := func(what string, want bool) {
				t.Helper()

				before := r.rec.count(flow.EPP, flow.CallFailed)
				if a := r.post("/v1/chat/completions", chat); a.err != nil || a.status != 200 {
					t.Fatalf("%s a request was lost: %d %v %.300q", what, a.status, a.err, a.body)
				}
				if n := r.rec.count(flow.EPP, flow.CallFailed) - before; n > 0 != want {
					t.Errorf("%s %d calls failed", what, n)
				}
			}
			failed("at first", false)
			x := &scenario.Incident{What: scenario.RestartFrontend, For: time.Second}
			if err := r.happen(context.Background(), x); err != nil {
				t.Fatal(err)
			}
			failed("while it is gone", true)
			if err := r.recover(x); err != nil {
				t.Fatal(err)
			}
			r.until("all workers have pushed again", func() bool { return r.frontend.Workers() == len(r.Fleet.Servers()) })
			failed("once it is back", false)
			r.until("it has heard that all requests are over", func() bool { return r.frontend.Running() == 0 })
			x.For = 0
			if err := r.happen(context.Background(), x); err != nil {
				t.Fatal(err)
			}
			r.until("all workers have pushed again", func() bool { return r.frontend.Workers() == len(r.Fleet.Servers()) })
			failed("after another restart", false)
		})
	}
}
