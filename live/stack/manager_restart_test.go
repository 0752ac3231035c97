package stack

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/live/kvmanager"
	"github.com/windtunnel/windtunnel/report"
)

// byManager routes by what the KV-Cache Manager answers.
const byManager = `
plugins:
- {type: kv-cache-manager-scorer, parameters: {endpoint: "http://kv-cache-manager:8080", timeout: 2s, cache_threshold: 0}}
- {type: queue-scorer}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: kv-cache-manager-scorer, weight: 2}, {pluginRef: queue-scorer, weight: 1}]}
`

// The KV-Cache Manager goes down in the middle of a run and comes back at its address, with an empty index. No request
// fails, its readiness is right at every moment, and the index becomes whole again: by replays if the engines'
// addresses show where to ask, otherwise by later events.
func TestManagerRestarts(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "msgpack"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := cacheScenario(t, format, true)
			s.Pools[0].EPP.Config.Text = []byte(byManager)
			s.Workload.Requests = 120
			r := start(t, s, nil)
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			loaded := make(chan error, 1)
			go func() { loaded <- r.Load(ctx) }()
			completed := func() int { return r.rec.count(record.Client, record.Finished) }
			r.until("a third of the requests", func() bool { return completed() >= 40 })

			api, events := r.kv.manager.HTTPAddress(), r.kv.manager.ZMQEndpoint()
			if got := answers(t, api, "/readyz"); got != http.StatusOK {
				t.Errorf("/readyz answers %d", got)
			}
			r.kv.manager.Close()
			if got := answers(t, api, "/readyz"); got != 0 {
				t.Errorf("/readyz answers %d of a manager that is down", got)
			}
			down := completed()
			r.until("requests without it", func() bool { return completed() >= down+10 })

			o := kvmanager.DefaultOptions()
			o.ZMQBind, o.HTTPAddress, o.Index.Hasher, o.Index.MaxBlocks = events, api, kv.Hasher{BlockTokens: 16}, 0
			if r.addresses.Own() {
				o.ReplayPort = replayPort
			}
			again, err := kvmanager.Start(o)
			if err != nil {
				t.Fatal(err)
			}
			r.kv.manager = again
			for _, path := range []string{"/healthz", "/readyz"} {
				if got := answers(t, api, path); got != http.StatusOK {
					t.Errorf("%s answers %d after the restart", path, got)
				}
			}
			if err := <-loaded; err != nil {
				t.Fatal(err)
			}
			if found, finished := r.found(); finished != 120 || found < 80 {
				t.Errorf("%d requests finished, %d found blocks", finished, found)
			}
			for _, e := range r.rec.all() {
				if outcome := fmt.Sprint(e.Details.Get("outcome")); e.Hop == record.Client &&
					e.Step == record.Finished &&
					outcome != string(record.Completed) {
					t.Errorf("request %s ended as %v", e.Request, outcome)
				}
			}
			r.until("the union", func() bool {
				checks := r.askManager(ctx, r.checkKV())
				return len(checks) == 1 && filled(&checks[0], r.addresses.Own())
			})
			r.idle()
		})
	}
}

// filled says that an index is whole, or where there are no replays that it
// has something.
func filled(c *report.IndexSummary, replays bool) bool {
	return c.Blocks > 0 && c.Extra == 0 && (c.Missing == 0 || !replays && c.Missing < c.Blocks)
}

// answers is the status of a path, 0 without an answer.
func answers(t *testing.T, address, path string) int {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}
