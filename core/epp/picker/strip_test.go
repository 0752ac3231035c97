package picker_test

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// A stripped decision equals a full one, in whichever order decisions end, and has no tables once it was reported.
func TestStrip(t *testing.T) {
	t.Parallel()
	whole, stripped := pool(t, 100, picker.Options{Seed: 7}), pool(t, 100, picker.Options{Seed: 7})
	var held, slim []*picker.Decision
	for n := range 300 {
		pick := func(p *picker.Picker) *picker.Decision {
			d := p.Pick(machine.Time(n), prompt(n), p.Pool().View(), nil, nil)
			if err := p.Commit(machine.Time(n), d); err != nil || d.Err != nil {
				t.Fatal(err, d.Err)
			}
			return d
		}
		held, slim = append(held, pick(whole)), append(slim, pick(stripped))
		if to, want := slim[n].Destination(), held[n].Destination(); to != want {
			t.Fatalf("request %d goes to %s, and where decisions are stripped to %s", n, want, to)
		}
		if stripped.Strip(slim[n]); slim[n].Candidates != nil || slim[n].Profiles[0].Left != nil ||
			slim[n].Profiles[0].Totals != nil || freeList(stripped, slim[n]) {
			t.Fatal("a stripped decision still has its tables")
		}
		if n%3 == 0 {
			_, _ = whole.Release(0, held[n/3]), stripped.Release(0, slim[n/3])
		}
	}
}

// freeList reports whether a decision still has what its prompt matched everywhere.
func freeList(p *picker.Picker, d *picker.Decision) bool {
	for _, pl := range p.Plugins() {
		if x, ok := pl.(interface {
			MatchOf(d *picker.Decision, s *picker.State) (matched, total, blockTokens int)
		}); ok {
			if _, total, _ := x.MatchOf(d, &d.View.States[0]); total > 0 {
				return true
			}
		}
	}
	return false
}
