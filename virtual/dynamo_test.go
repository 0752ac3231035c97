package virtual

import (
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/scenario"
)

// An endpoint picker with Dynamo's router that restarts has forgotten which blocks it
// sent where and what runs: prompts go where they are not cached, and every
// request is served that it did not have in hand just then.
func TestDynamoRouterRestarts(t *testing.T) {
	play := func(restart bool) (cached int64, ends map[string]int) {
		s, err := scenario.Load("../examples/dynamo-plugin.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if restart {
			for at := 2 * time.Second; at < 20*time.Second; at += 2 * time.Second {
				s.Pools[0].Incidents = append(s.Pools[0].Incidents, scenario.Incident{At: at, What: scenario.RestartEPP})
			}
		}
		events := record(t, s)
		for _, e := range events {
			if e.Step == flow.PrefillStarted {
				n, _ := e.Details.Get("cached_tokens").(int)
				cached += int64(n)
			}
		}
		return cached, outcomes(events)
	}
	cached, ends := play(false)
	if ends["completed"] != 600 || cached == 0 {
		t.Fatalf("without a restart %v, with %d cached tokens", ends, cached)
	}
	less, ends := play(true)
	if less > cached*9/10 {
		t.Errorf("with restarts %d cached tokens, without %d: want a tenth fewer at least", less, cached)
	}
	total := 0
	for outcome, n := range ends {
		if total += n; outcome != "completed" && outcome != "broken" && outcome != "unavailable" {
			t.Errorf("%d requests ended as %s", n, outcome)
		}
	}
	if total != 600 || ends["completed"] < 450 {
		t.Errorf("outcomes %v of 600 requests", ends)
	}
}
