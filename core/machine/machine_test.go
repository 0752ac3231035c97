package machine

import (
	"regexp"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is pushed comes out by time, then class, then order of pushing.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			at    Time
			class Class
			n     int
		}
		var q Queue[item]
		var want []item
		for n := range rapid.IntRange(0, 200).Draw(t, "count") {
			it := item{Time(rapid.IntRange(0, 20).Draw(t, "at")), Class(rapid.IntRange(0, 3).Draw(t, "class")), n}
			q.Push(it.at, it.class, it)
			want = append(want, it)
		}
		sort.SliceStable(want, func(i, j int) bool {
			if want[i].at != want[j].at {
				return want[i].at < want[j].at
			}
			return want[i].class < want[j].class
		})
		for i, w := range want {
			if at, ok := q.Next(); !ok || at != w.at {
				t.Fatalf("item %d: Next = %v %v, want %v", i, at, ok, w.at)
			}
			if _, got := q.Pop(); got != w {
				t.Fatalf("item %d: got %+v, want %+v", i, got, w)
			}
		}
		if _, ok := q.Next(); ok {
			t.Fatal("queue not empty at the end")
		}
	})
}

// One more draw for one purpose leaves every other purpose's values alone.
func TestDrawsAreKeyed(t *testing.T) {
	a := NewDraw(7, "server", "prefill", 3)
	b := NewDraw(7, "server", "token", 3)
	first := b
	a.Uint64()
	if first.Uint64() != b.Uint64() {
		t.Fatal("draws of different purposes share state")
	}
	x, y := NewDraw(7, "server", "prefill", 3), NewDraw(8, "server", "prefill", 3)
	if x.Uint64() == y.Uint64() {
		t.Fatal("the seed does not matter")
	}
	d := NewDraw(1, "x", "y", 0)
	for range 1000 {
		if v := d.Between(100, 105); v < 100 || v > 105 {
			t.Fatalf("Between gave %d", v)
		}
	}
}

// A UUID's version and variant stand where RFC 9562 has them; every other digit
// is drawn.
func TestUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var seen [36]string
	for i := range uint64(1000) {
		d := NewDraw(1, "test", "uuid", i)
		id := d.UUID()
		if !form.MatchString(id) {
			t.Fatalf("%s is no UUID of version 4", id)
		}
		for k := range id {
			if !strings.Contains(seen[k], id[k:k+1]) {
				seen[k] += id[k : k+1]
			}
		}
	}
	for k, digits := range seen {
		if want := map[int]int{8: 1, 13: 1, 14: 1, 18: 1, 23: 1, 19: 4}[k]; len(digits) != max(want,
			16*(1-min(want, 1))) {
			t.Errorf("at %d there are only %q", k, digits)
		}
	}
}

func TestTimeSaturates(t *testing.T) {
	if got := (Never - 1).Add(Second); got != Never {
		t.Fatalf("got %v", got)
	}
	if got := (1500 * Millisecond).String(); got != "1.5s" {
		t.Fatalf("got %q", got)
	}
}
