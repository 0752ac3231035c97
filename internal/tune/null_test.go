package tune

import (
	"os"
	"testing"

	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/scenario"
)

// nothing is a scenario whose knob changes arrivals' prompts by a token at most: every value plays other chances, and
// none is better.
const nothing = `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: chat
    model: llama-3.1-8b
    replicas: 2
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 4..28}
workload: {requests: 200, rate: 30, maxTokens: 28, prompt: {characters: 400}}
`

// Where no value is better, a search claims so in at most 10 of 100 seeds.
func TestStatisticsNull(t *testing.T) {
	if os.Getenv("WINDTUNNEL_STATISTICS") == "" {
		t.Skip("make test-statistics plays it")
	}
	claimed := 0
	for seed := range uint64(100) {
		number := seed * 1_000_003
		v := search.Variant{File: "nothing.yaml", Text: []byte(nothing), Overrides: scenario.Overrides{Seed: &number}}
		out, err := Tune(t.Context(), &search.Player{}, Options{Variants: []search.Variant{v}, Runs: 60,
			Replications: 8, Seed: seed, Vary: []string{"workload.prompt.characters=399..402"}})
		if err != nil {
			t.Fatal(err)
		}
		if out.Better {
			claimed++
			t.Logf("seed %d: %s", seed, out.Verdict)
		}
	}
	t.Logf("%d of 100 seeds claim a gain", claimed)
	if claimed > 10 {
		t.Errorf("%d of 100 seeds claim a gain; expected at most 10", claimed)
	}
}
