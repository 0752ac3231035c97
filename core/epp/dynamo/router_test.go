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

func (b *bench) send(at machine.Time, m Message) { b.Input(at, m, &b.fx) }

func (b *bench) route(at machine.Time, id string, tokens []uint32) Routed {
	b.fx.Reset()
	b.send(at, Route{ID: id, Prompt: PromptOf("m", tokens, 16)})
	return b.fx.List[0]
}

// TestRouterFollowsWorkers: nobody is chosen who has not announced itself as one that
// decodes, or who has said nothing for three periods.
func TestRouterFollowsWorkers(t *testing.T) {
	b := newBench()
	if e := b.route(0, "a", tokensOf(1, 64)); e.Worker != 0 {
		t.Fatalf("%+v: nobody has announced itself", e)
	}
	b.send(0, Worker{ID: 7, Role: Decode})
	b.send(0, Worker{ID: 8, Role: Prefill})
	for i := range 8 {
		if e := b.route(1, fmt.Sprint(i), tokensOf(uint32(i), 64)); e.Worker != 7 {
			t.Fatalf("%+v: want the one that decodes", e)
		}
	}
	b.send(2*machine.Second, Worker{ID: 8, Role: Prefill, Requests: 1})
	if e := b.route(3*machine.Second, "late", tokensOf(1, 64)); e.Worker != 0 || len(b.Workers()) != 1 ||
		b.Running() != 0 {
		t.Fatalf("%+v, %d workers, %d booked: the one that decodes has been silent for 3 s", e, len(b.Workers()),
			b.Running())
	}
}

// TestRouterBooks: a prompt goes where it was before, until that worker has more to do than
// the other; what is over weighs nothing.
func TestRouterBooks(t *testing.T) {
	b := newBench()
	b.send(0, Worker{ID: 1, Role: Decode, Requests: 1})
	b.send(0, Worker{ID: 2, Role: Decode, Requests: 1})
	first := b.route(0, "a", tokensOf(1, 640))
	b.send(1, Progress{ID: "a", Over: true})
	if e := b.route(2, "b", tokensOf(1, 640)); e.Worker != first.Worker || e.Cost.Overlap != 40 {
		t.Fatalf("%+v: want worker %d, which has all 40 blocks", e, first.Worker)
	}
	if e := b.route(3, "c", tokensOf(2, 640)); e.Worker == first.Worker {
		t.Fatalf("%+v: want the idle worker", e)
	}
	if b.Running() != 2 {
		t.Fatalf("%d are booked, want 2", b.Running())
	}
	b.send(4, Progress{ID: "b", Over: true})
	b.send(4, Progress{ID: "b", Over: true})
	b.send(4, Progress{ID: "never heard of", Over: true})
	if b.Running() != 1 {
		t.Fatalf("%d are booked, want 1", b.Running())
	}
}

// The router frees a request whose end nobody reports once its worker has held no request for a period, and not before.
func TestRouterForgetsLostBookings(t *testing.T) {
	b := newBench()
	b.send(0, Worker{ID: 1, Role: Decode})
	b.route(machine.Second/2, "a", tokensOf(1, 64))
	b.send(machine.Second, Worker{ID: 1, Role: Decode})
	if b.Running() != 1 {
		t.Fatal("it may be on its way yet")
	}
	b.send(2*machine.Second, Worker{ID: 1, Role: Decode, Requests: 1})
	if b.Running() != 1 {
		t.Fatal("the worker has something in hand")
	}
	b.send(3*machine.Second, Worker{ID: 1, Role: Decode})
	if b.Running() != 0 {
		t.Fatal("nobody has it any more")
	}
}

// Among workers that only prefill, the router chooses the one that holds most of the prompt. It chooses the decode
// worker by load alone. A prompt that the decode worker holds almost entirely stays there. Every booking ends, even if
// a worker falls silent.
func TestRouterPrefillWorkers(t *testing.T) {
	c := DefaultConfig()
	c.PrefillThreshold = 100
	b := &bench{Router: NewRouter(c, 1, machine.Second)}
	push := func(at machine.Time, requests int) {
		b.send(at, Worker{ID: 1, Role: Decode, Requests: requests})
		b.send(at, Worker{ID: 2, Role: Decode, Requests: requests})
		b.send(at, Worker{ID: 11, Role: Prefill, Requests: requests})
		b.send(at, Worker{ID: 12, Role: Prefill, Requests: requests})
	}
	push(0, 1)
	first := b.route(0, "a", tokensOf(1, 640))
	if first.Prefill == 0 {
		t.Fatalf("%+v: no worker that only prefills was chosen", first)
	}
	if e := b.route(1, "b", tokensOf(2, 640)); e.Worker == first.Worker || e.Prefill == first.Prefill {
		t.Fatalf("%+v beside %+v: want the idle ones", e, first)
	}
	if e := b.route(2, "short", tokensOf(3, 64)); e.Prefill != 0 {
		t.Fatalf("%+v: 64 tokens are below the threshold of 100", e)
	}
	for _, id := range []string{"a", "b", "short"} {
		b.send(3, Progress{ID: id})
		b.send(3, Progress{ID: id})
		b.send(3, Progress{ID: id, Over: true})
	}
	if b.Running() != 0 || len(b.load.workers) != 0 {
		t.Fatalf("%d are booked at %d workers, all are over", b.Running(), len(b.load.workers))
	}
	again := b.route(4, "again", append(tokensOf(1, 640), tokensOf(9, 640)...))
	if again.Prefill != first.Prefill {
		t.Fatalf("%+v: want prefill worker %d, which has half of it", again, first.Prefill)
	}
	if e := b.route(5, "known",
		append(append(tokensOf(1, 640), tokensOf(9, 640)...), 7)); e.Worker == again.Worker != (e.Prefill == 0) {
		t.Fatalf("%+v: the worker that has it computes the rest, another does not", e)
	}
	push(machine.Second*3/2, 0)
	push(machine.Second*5/2, 0)
	if b.Running() != 0 {
		t.Fatalf("%d are booked at workers that have had nothing in hand", b.Running())
	}
	b.route(machine.Second*5/2, "lost", tokensOf(5, 640))
	b.Advance(7*machine.Second, &b.fx)
	if b.Running() != 0 || len(b.booked) != 0 || len(b.Workers()) != 0 {
		t.Fatalf("%d are booked at workers that have left", b.Running())
	}
}

// TestWorkerCheck refuses what is no worker.
func TestWorkerCheck(t *testing.T) {
	b := newBench()
	for _, w := range []Worker{{Role: Decode}, {ID: 1}, {ID: 1, Role: "x"}, {ID: 1, Role: Decode, Requests: -1},
		{ID: 1, Role: Decode, Blocks: -1}} {
		if b.send(0, w); w.Check() == nil || len(b.Workers()) > 0 {
			t.Errorf("%+v was taken", w)
		}
	}
	b.send(0, Worker{ID: 5, Role: Decode, Blocks: 3})
	if w := b.Workers(); !slices.Equal(w, []Worker{{ID: 5, Role: Decode, Blocks: 3}}) {
		t.Errorf("%+v", w)
	}
}
