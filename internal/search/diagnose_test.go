package search

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/scenario"
)

// Every scenario of the folder is named after the leaf that it plants. Diagnose names it first, for every seed, and a
// remedy that it plays helps.
func TestDiagnosePlantedCauses(t *testing.T) {
	names, err := filepath.Glob("testdata/diagnose/*.yaml")
	if err != nil || len(names) < 15 {
		t.Fatal(names, err)
	}
	unplayable := map[diagnose.Leaf]bool{diagnose.Transport: true}
	seeds := 1
	if nightly.On() {
		seeds = 50
	}
	for _, name := range names {
		leaf := diagnose.Leaf(strings.TrimSuffix(filepath.Base(name), ".yaml"))
		t.Run(string(leaf), func(t *testing.T) {
			t.Parallel()
			v, err := ReadVariant(nil, name, nil, scenario.Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(seeds) {
				v.Overrides.Seed = &seed
				d, err := new(Player).Diagnose(t.Context(), &v, true)
				if err != nil {
					t.Fatal(err)
				}
				if len(d.Symptoms) == 0 || len(d.Findings) == 0 || d.Findings[0].Leaf != leaf {
					t.Fatalf("seed %d: found %v and %+v; expected %s", seed, d.Symptoms, d.Findings, leaf)
				}
				x := &d.Findings[0]
				if n := len(x.Tried); unplayable[leaf] != (n == 0) || n > 0 && !x.Tried[n-1].Helps {
					t.Errorf("seed %d: played %+v", seed, x.Tried)
				}
				if x.Sure == diagnose.Possible {
					t.Errorf("seed %d: %s, %s", seed, x.Sure, x.Why)
				}
			}
		})
	}
}
