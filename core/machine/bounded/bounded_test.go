package bounded

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

// model is a store as one would write it down: a list, the oldest first.
type model struct {
	keys   []int
	weight map[int]int
	pushed []int
}

func (m *model) sum() (n int) {
	for _, k := range m.keys {
		n += m.weight[k]
	}
	return n
}

func (m *model) drop(k int) { m.keys = slices.DeleteFunc(m.keys, func(x int) bool { return x == k }) }

func (m *model) young(k int) {
	m.drop(k)
	m.keys = append(m.keys, k)
}

func (m *model) shrink(l Limits) {
	for len(m.keys) > l.Entries || m.sum() > l.Bytes {
		m.pushed = append(m.pushed, m.keys[0])
		m.keys = m.keys[1:]
	}
}

// Whatever is done with it, a store keeps its limits, counts what it has, and
// lets go of the oldest first.
func TestStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limits{Entries: rapid.IntRange(1, 5).Draw(t, "entries"), Bytes: rapid.IntRange(1, 40).Draw(t, "bytes")}
		m := model{weight: map[int]int{}}
		var pushed []int
		s := New(l, func(k, v int) {
			if k != v {
				t.Fatalf("%d was pushed out with the value of %d", k, v)
			}
			pushed = append(pushed, k)
		})
		key := rapid.IntRange(0, 7)
		there := func(k int) bool { return slices.Contains(m.keys, k) }
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				k, n := key.Draw(t, "key"), rapid.IntRange(0, 45).Draw(t, "bytes")
				m.drop(k)
				want := n <= l.Bytes
				if want {
					m.weight[k] = n
					m.young(k)
					m.shrink(l)
				}
				if got := s.Put(k, k, n); got != want {
					t.Fatalf("put %v, want %v", got, want)
				}
			},
			"grow": func(t *rapid.T) {
				k, n := key.Draw(t, "key"), rapid.IntRange(0, 45).Draw(t, "bytes")
				want := there(k)
				if want {
					m.weight[k] += n
					m.young(k)
					m.shrink(l)
					want = there(k)
				}
				if got := s.Grow(k, n); got != want {
					t.Fatalf("grow %v, want %v", got, want)
				}
			},
			"get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				want := there(k)
				if want {
					m.young(k)
				}
				if v, got := s.Get(k); got != want || got && v != k {
					t.Fatalf("get %d %v, want %v", v, got, want)
				}
			},
			"peek and delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if v, got := s.Peek(k); got != there(k) || got && v != k {
					t.Fatalf("peek %d %v", v, got)
				}
				if got := s.Delete(k); got != there(k) {
					t.Fatalf("delete %v", got)
				}
				m.drop(k)
			},
			"": func(t *rapid.T) {
				if s.Len() != len(m.keys) || s.Bytes() != m.sum() || s.Len() > l.Entries || s.Bytes() > l.Bytes {
					t.Fatalf("%d entries of %d bytes, want %d of %d", s.Len(), s.Bytes(), len(m.keys), m.sum())
				}
				if !slices.Equal(pushed, m.pushed) {
					t.Fatalf("pushed out %v, want %v", pushed, m.pushed)
				}
				if k, v, ok := s.Oldest(); ok != (len(m.keys) > 0) || ok && (k != m.keys[0] || v != k) {
					t.Fatalf("the oldest is %d %v", k, ok)
				}
				var all []int
				for k, v := range s.All() {
					if all = append(all, k); k != v {
						t.Fatalf("%d has the value of %d", k, v)
					}
				}
				if !slices.Equal(all, m.keys) {
					t.Fatalf("there are %v, want %v", all, m.keys)
				}
			},
		})
	})
}

// Without limits nothing goes.
func TestNoLimits(t *testing.T) {
	s := New[int, string](Limits{}, nil)
	for i := range 1000 {
		s.Put(i, "", 1<<40)
	}
	if s.Len() != 1000 {
		t.Error(s.Len())
	}
}
