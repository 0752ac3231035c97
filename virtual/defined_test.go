package virtual

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario"
)

// What cannot be served ends all the same, each request in the outcome that says why: more
// requests than servers can do, prompts that fit nowhere, too few KV blocks, no server left.
func TestWhatCannotBeServed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pool, server, load string
		outcomes                 string // all that may occur, and at least one of each does
		reason                   string // of the first that did not complete
	}{
		{"overload with clients that leave", "", "maxNumSeqs: 4, outputTokens: 200",
			"requests: 300, rate: 200, timeout: 2s", "completed timed_out", ""},
		{"overload with clients that wait", "", "maxNumSeqs: 4, outputTokens: 200",
			"requests: 300, rate: 200, timeout: 24h", "completed", ""},
		{"prompts longer than the model takes", "", "maxModelLen: 100, outputTokens: 20", "requests: 20, rate: 10",
			"refused", "maximum context length is 100 tokens"},
		{"some prompts longer than the model takes", "", "maxModelLen: 500, outputTokens: 20",
			"requests: 200, rate: 10", "completed refused", "maximum context length is 500 tokens"},
		{"KV blocks for one request", "", "numGPUBlocks: 64, maxModelLen: 1024, outputTokens: 50..200",
			"requests: 100, rate: 20, timeout: 24h", "completed", ""},
		{"no server left", "incidents: [{at: 1s, what: drain-server, server: 0}], lifecycle: {preStop: 100ms, " +
			"gracePeriod: 1s},", "outputTokens: 20", "requests: 60, rate: 20", "completed unavailable", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Parse("defined.yaml", fmt.Appendf(nil, `{apiVersion: windtunnel/v1alpha1, kind: Scenario,
				pools: [{name: default, flow: plain, replicas: 1, %s modelServer: {batching: continuous, %s}}],
				workload: {prompt: {characters: 500..3000}, %s}}`, c.pool, c.server, c.load))
			if err != nil {
				t.Fatal(err)
			}
			found, reason, sent := map[string]int{}, "", 0
			if err := Run(s, record.Func(func(e record.Event) {
				switch e.Step {
				case record.RequestSent:
					sent++
				case record.Finished:
					o := fmt.Sprint(e.Details.Get("outcome"))
					found[o]++
					if o != string(record.Completed) && reason == "" {
						reason = fmt.Sprint(e.Details)
					}
				}
			}), nil); err != nil {
				t.Fatal(err)
			}
			ended := 0
			for _, n := range found {
				ended += n
			}
			if ended != sent || sent == 0 || strings.Join(slices.Sorted(maps.Keys(found)), " ") != c.outcomes ||
				!strings.Contains(reason, c.reason) {
				t.Errorf("%d requests were sent and ended %v (%.300s); expected %s, and %q", sent, found, reason,
					c.outcomes, c.reason)
			}
		})
	}
}
