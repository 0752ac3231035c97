package machine

import (
	"testing"

	"pgregory.net/rapid"
)

// A heap is the smallest of what was put in, moved and not taken out.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			key    Key
			handle *Handle // nil: nobody looks for it
		}
		var h Heap[uint64]
		all := map[uint64]entry{} // by value, which is unique as is the key's second part
		least := func() (value uint64, e entry) {
			for v, x := range all {
				if e.key == (Key{}) || x.key.before(&e.key) {
					value, e = v, x
				}
			}
			return value, e
		}
		some := func(t *rapid.T) (uint64, entry) {
			var with []uint64
			for v := range uint64(1000) {
				if all[v].handle != nil {
					with = append(with, v)
				}
			}
			if len(with) == 0 {
				t.Skip("none has a handle")
			}
			v := rapid.SampledFrom(with).Draw(t, "which")
			return v, all[v]
		}
		n := uint64(0)
		key := func(t *rapid.T) Key { n++; return Key{rapid.Int64Range(-9, 9).Draw(t, "first"), n} }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) { k := key(t); h.Push(k, n); all[n] = entry{k, nil} },
			"put":  func(t *rapid.T) { k := key(t); p := new(Handle); h.Put(p, k, n); all[n] = entry{k, p} },
			"move": func(t *rapid.T) {
				v, e := some(t)
				delete(all, v)
				k := key(t)
				h.Put(e.handle, k, n)
				all[n] = entry{k, e.handle}
			},
			"remove": func(t *rapid.T) {
				v, e := some(t)
				delete(all, v)
				if h.Remove(e.handle); *e.handle != 0 {
					t.Fatal("the handle is still good")
				}
				h.Remove(e.handle) // which does nothing
			},
			"pop": func(t *rapid.T) {
				v, e := least()
				if len(all) == 0 || e.handle != nil {
					t.Skip("nothing to pop")
				}
				delete(all, v)
				if k, got := h.Pop(); got != v || k != e.key {
					t.Fatalf("popped %d at %v, expected %d at %v", got, k, v, e.key)
				}
			},
			"keep": func(t *rapid.T) {
				limit := rapid.Int64Range(-9, 9).Draw(t, "limit")
				h.Keep(func(k Key, v *uint64) bool {
					if *v != k.Second {
						t.Fatalf("%d has the key of %d", *v, k.Second)
					}
					return k.First <= limit
				})
				for v, e := range all {
					if e.key.First > limit {
						delete(all, v)
					}
				}
			},
			"": func(t *rapid.T) {
				if h.Len() != len(all) {
					t.Fatalf("%d items, expected %d", h.Len(), len(all))
				}
				if len(all) > 0 {
					v, e := least()
					if k, got := h.Peek(); *got != v || k != e.key {
						t.Fatalf("first is %d at %v, expected %d at %v", *got, k, v, e.key)
					}
				}
			},
		})
	})
}
