package machine

import (
	"strconv"
	"testing"
)

// One event for another, in a queue of n: what a run in virtual time does.
func BenchmarkQueue(b *testing.B) {
	for _, n := range []int{100, 10_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var q Queue[[3]uint64]
			d := NewDraw(1, "bench", "queue", 0)
			for range n {
				q.Push(Time(d.Intn(1e9)), Class(d.Intn(4)), [3]uint64{})
			}
			for b.Loop() {
				at, v := q.Pop()
				q.Push(at.Add(Time(d.Intn(1e9))), 2, v)
			}
		})
	}
}
