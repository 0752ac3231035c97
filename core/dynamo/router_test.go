package dynamo

import (
	"fmt"
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// tokensOf are n tokens of a kind.
func tokensOf(kind uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = kind<<16 | uint32(i)
	}
	return out
}

type bench struct {
	*Router
	fx Effects
}

func newBench() *bench { return &bench{Router: NewRouter(DefaultConfig(), 1, machine.Second)} }

func (b *bench) tell(at machine.Time, m Message) { b.Input(at, m, &b.fx) }

func (b *bench) route(at machine.Time, id string, tokens []uint32) Routed {
	b.fx.Reset()
	b.tell(at, Route{ID: id, Prompt: PromptOf("m", tokens, 16)})
	return b.fx.List[0]
}

// TestRouterFollowsWorkers: nobody is chosen who has not announced itself as one that
// decodes, or who has said nothing for three periods.
func TestRouterFollowsWorkers(t *testing.T) {
	b := newBench()
	if e := b.route(0, "a", tokensOf(1, 64)); e.Worker != 0 {
		t.Fatalf("%+v: nobody has announced itself", e)
	}
	b.tell(0, Worker{ID: 7, Role: Decode})
	b.tell(0, Worker{ID: 8, Role: Prefill})
	for i := range 8 {
		if e := b.route(1, fmt.Sprint(i), tokensOf(uint32(i), 64)); e.Worker != 7 {
			t.Fatalf("%+v: want the one that decodes", e)
		}
	}
	b.tell(2*machine.Second, Worker{ID: 8, Role: Prefill, Requests: 1})
	if e := b.route(3*machine.Second, "late", tokensOf(1, 64)); e.Worker != 0 || len(b.Workers()) != 1 || b.Running() != 0 {
		t.Fatalf("%+v, %d workers, %d booked: the one that decodes has been silent for 3 s", e, len(b.Workers()), b.Running())
	}
}

// TestRouterBooks: a prompt goes where it was before, until that worker has more to do than
// the other; what is over weighs nothing.
func TestRouterBooks(t *testing.T) {
	b := newBench()
	b.tell(0, Worker{ID: 1, Role: Decode, Requests: 1})
	b.tell(0, Worker{ID: 2, Role: Decode, Requests: 1})
	first := b.route(0, "a", tokensOf(1, 640))
	b.tell(1, Progress{ID: "a", Over: true})
	if e := b.route(2, "b", tokensOf(1, 640)); e.Worker != first.Worker || e.Cost.Overlap != 40 {
		t.Fatalf("%+v: want worker %d, which has all 40 blocks", e, first.Worker)
	}
	if e := b.route(3, "c", tokensOf(2, 640)); e.Worker == first.Worker {
		t.Fatalf("%+v: want the idle worker", e)
	}
	if b.Running() != 2 {
		t.Fatalf("%d are booked, want 2", b.Running())
	}
	b.tell(4, Progress{ID: "b", Over: true})
	b.tell(4, Progress{ID: "b", Over: true})
	b.tell(4, Progress{ID: "never heard of", Over: true})
	if b.Running() != 1 {
		t.Fatalf("%d are booked, want 1", b.Running())
	}
}

// TestRouterForgetsLostBookings: a request of which nobody tells the end is freed when its
// worker has nothing in hand a period later, and not before.
func TestRouterForgetsLostBookings(t *testing.T) {
	b := newBench()
	b.tell(0, Worker{ID: 1, Role: Decode})
	b.route(machine.Second/2, "a", tokensOf(1, 64))
	b.tell(machine.Second, Worker{ID: 1, Role: Decode})
	if b.Running() != 1 {
		t.Fatal("it may be on its way yet")
	}
	b.tell(2*machine.Second, Worker{ID: 1, Role: Decode, Requests: 1})
	if b.Running() != 1 {
		t.Fatal("the worker has something in hand")
	}
	b.tell(3*machine.Second, Worker{ID: 1, Role: Decode})
	if b.Running() != 0 {
		t.Fatal("nobody has it any more")
	}
}

// TestWorkerCheck refuses what is no worker.
func TestWorkerCheck(t *testing.T) {
	b := newBench()
	for _, w := range []Worker{{Role: Decode}, {ID: 1}, {ID: 1, Role: "x"}, {ID: 1, Role: Decode, Requests: -1}, {ID: 1, Role: Decode, Blocks: -1}} {
		if b.tell(0, w); w.Check() == nil || len(b.Workers()) > 0 {
			t.Errorf("%+v was taken", w)
		}
	}
	b.tell(0, Worker{ID: 5, Role: Decode, Blocks: 3})
	if w := b.Workers(); !slices.Equal(w, []Worker{{ID: 5, Role: Decode, Blocks: 3}}) {
		t.Errorf("%+v", w)
	}
}
