package machine

import (
	"testing"

	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// A Few has what a map has.
func TestFew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var f Few[uint64, int]
		want := map[uint64]int{}
		for i := range rapid.IntRange(1, 200).Draw(t, "calls") {
			k := rapid.Uint64Range(0, 60).Draw(t, "key")
			if rapid.IntRange(0, 2).Draw(t, "call") == 0 {
				f.Delete(k)
				delete(want, k)
			} else {
				f.Set(k, i)
				want[k] = i
			}
			v, ok := f.Get(k)
			if w, there := want[k]; v != w || ok != there {
				t.Fatalf("key %d is %d, %t; want %d, %t", k, v, ok, w, there)
			}
			seen := 0
			for k, v := range f.All {
				seen++
				if w, ok := want[k]; !ok || w != v {
					t.Fatalf("key %d is %d; want %d, %t", k, v, w, ok)
				}
			}
			if seen != len(want) || f.Len() != len(want) {
				t.Fatalf("%d entries, %d seen; want %d", f.Len(), seen, len(want))
			}
		}
	})
}
