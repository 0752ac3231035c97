package program

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/report"
)

// The configuration that tune finds is better than the given one, which ignores the caches, through the real Envoy,
// too: with each seed where caches matter, and not worse beyond the noise of a busy machine where they matter little.
func TestTunedLive(t *testing.T) {
	if !nightly.On() {
		t.Skip("make test-nightly plays it")
	}
	for example, least := range map[string]float64{"kv-aware": 0.1, "conversations": -0.05} {
		file := filepath.Join(repository, "examples", example+".yaml")
		given := write(t, "given.yaml", printed(t, "scenario", "show", file, "--set",
			"pools[0].epp.config.schedulingProfiles[0].plugins[0].weight=0"))
		winner := filepath.Join(t.TempDir(), "winner.yaml")
		printed(t, "tune", given, "-n", "300", "--runs", "40", "-r", "3", "--write", winner)
		for _, seed := range []string{"2", "3"} {
			live := func(flags ...string) float64 {
				text := printed(t, append([]string{"run", given, "-n", "150", "--seed", seed, "--output", "json"},
					flags...)...)
				lines := strings.Split(strings.TrimSpace(text), "\n")
				var last struct{ Summary report.Summary }
				if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
					t.Fatal(err)
				}
				for _, m := range last.Summary.Measures {
					if m.Measure == "e2e mean" {
						return m.Value
					}
				}
				t.Fatalf("the run has no e2e mean: %.300s", text)
				return 0
			}
			today, tuned := live(), live("--epp-config", winner)
			t.Logf("%s, seed %s: e2e mean %.4g s, tuned %.4g s, a gain of %.1f %%", example, seed, today, tuned,
				100*(today-tuned)/today)
			if gain := (today - tuned) / today; !(gain > least) {
				t.Errorf("%s, seed %s: the tuned configuration gains %.3f; expected above %v", example, seed,
					gain, least)
			}
		}
	}
}
