package machine

import (
	"container/heap"
	"strconv"
	"testing"
)

// One event for another, in a queue of n: what a run in virtual time does,
// beside the standard heap.
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
		b.Run(strconv.Itoa(n)+"/container-heap", func(b *testing.B) {
			var q listed
			d := NewDraw(1, "bench", "queue", 0)
			for i := range n {
				heap.Push(&q, &event{at: Time(d.Intn(1e9)), seq: i})
			}
			for b.Loop() {
				e := heap.Pop(&q).(*event)
				e.at = e.at.Add(Time(d.Intn(1e9)))
				heap.Push(&q, e)
			}
		})
	}
}

type event struct {
	at  Time
	seq int
	_   [3]uint64
}

type listed []*event

func (q listed) Len() int { return len(q) }
func (q listed) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q listed) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *listed) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *listed) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
