package parity

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
)

func (pl *player) loads() {
	if pl.fc != nil {
		pl.tellLoads()
		pl.flow()
	}
}

// flow plays what flow control has to say. What that brings about joins the
// list.
func (pl *player) flow() {
	if pl.fc == nil || pl.playing {
		return
	}
	pl.playing = true
	pl.fc.Advance(pl.now, &pl.fx)
	for i := 0; i < len(pl.fx.List); i++ {
		pl.decided(pl.fx.List[i])
	}
	pl.fx.Reset()
	pl.playing = false
}

// decided carries out one effect of flow control.
func (pl *player) decided(e flowcontrol.Effect) {
	x := pl.byID[e.ID]
	if x != nil && e.Kind == flowcontrol.Evict {
		r, _ := e.Refusal()
		x.evicted = &r
		pl.release(x)
	}
	if x == nil || e.Kind != flowcontrol.Decided {
		return
	}
	if r, refused := e.Refusal(); refused {
		x.refusal = &r
		pl.answer(x, e.At)
		return
	}
	pl.decide(x)
	pl.answer(x, e.At)
	pl.fc.Input(pl.now, flowcontrol.Placed{ID: x.fcID}, &pl.fx)
	if x.err != nil {
		pl.fc.Input(pl.now, flowcontrol.Done{ID: x.fcID}, &pl.fx)
	}
	pl.tellLoads()
}

func (pl *player) tellLoads() {
	pl.fc.Input(pl.now, flowcontrol.Pool{Loads: plugins.Loads(pl.p, pl.p.Pool().View())}, &pl.fx)
}

func (pl *player) flowStep(s *Step) {
	switch {
	case s.BlockedThen != nil:
		pl.advance(100 * machine.Millisecond)
		var got []string
		for id, x := range pl.open {
			if !x.done {
				got = append(got, id)
			}
		}
		sort.Strings(got)
		want := slices.Clone(s.BlockedThen)
		sort.Strings(want)
		if !slices.Equal(got, want) {
			pl.fault("blocked", "ids", fmt.Sprint(want), fmt.Sprint(got))
		}
	case s.Answered != nil || s.DispatchedThen != nil:
		pl.advance(200 * machine.Millisecond)
		want := s.Answered
		if want == nil {
			want = s.DispatchedThen
		}
		if !slices.Equal(pl.order, want) && !pl.overshoot(want) {
			pl.fault("answered", "order", fmt.Sprint(want), fmt.Sprint(pl.order))
		}
	case s.Order != nil:
		// Runs in a cluster have refused requests in the order, too, some even
		// those that were refused before.
		got, fresh, all := pl.drain()
		want := groups(s.Order)
		if !sameOrder(want, got) && (pl.cluster == nil || !sameOrder(want, fresh) && !sameOrder(want, all)) {
			pl.fault("dispatch_order", "order", string(join(s.Order)), fmt.Sprint(got))
		}
	case s.Seconds != nil:
		for id, want := range s.Seconds {
			x := pl.open[id]
			for n := 0; x != nil && !x.done && n < 300; n++ {
				pl.advance(50 * machine.Millisecond)
			}
			if x == nil || !x.done {
				pl.fault(id, "seconds", fmt.Sprint(want), "no answer")
				continue
			}
			if got := (x.answered - max(x.arrived, pl.changed)).Seconds(); math.Abs(got-want) > .1 {
				pl.fault(id, "seconds", fmt.Sprint(want), fmt.Sprint(got))
			}
		}
	}
}

// overshoot says whether what was answered differs by one dispatch only: the
// real concurrency detector may let one more pass.
func (pl *player) overshoot(want []string) bool {
	extra := 0
	for _, id := range want {
		if !slices.Contains(pl.order, id) {
			extra++
		}
	}
	return extra <= 1 && len(pl.order) <= len(want)
}

// drain finishes dispatched requests one by one and notes who comes next.
func (pl *player) drain() (order, fresh, all []string) {
	done := map[string]bool{}
	for range 2*len(pl.line.Steps) + len(pl.open) {
		pl.expire()
		var id string
		for n := 0; n < 40 && id == ""; n++ {
			for _, o := range pl.order {
				if x := pl.open[o]; x != nil && !done[o] && x.done && !(pl.cluster != nil && x.closed) {
					id = o
					break
				}
			}
			if id == "" {
				pl.advance(50 * machine.Millisecond)
			}
		}
		if id == "" {
			break
		}
		done[id] = true
		x := pl.open[id]
		all = append(all, id)
		status, _, _ := pl.refusalOf(x)
		passed := status == 0
		if passed {
			order = append(order, id)
		}
		if passed || !pl.told[id] {
			fresh = append(fresh, id)
		}
		pl.finish(id, pl.playOf(x.step), nil)
		pl.advance(5 * machine.Millisecond)
	}
	return order, fresh, all
}

// sameOrder compares with the recorded order, in which ["together", a, b]
// marks requests that came out within one window.
func sameOrder(want [][]string, got []string) bool {
	pos := map[string][2]int{}
	n := 0
	for _, ids := range want {
		for _, id := range ids {
			pos[id] = [2]int{n, n + len(ids) - 1}
		}
		n += len(ids)
	}
	if n != len(got) {
		return false
	}
	for i, id := range got {
		if r, ok := pos[id]; !ok || i < r[0] || i > r[1] {
			return false
		}
	}
	return true
}

// groups are who came out within one window each.
func groups(order []json.RawMessage) (out [][]string) {
	for _, w := range order {
		var ids []string
		if json.Unmarshal(w, &ids) == nil {
			ids = ids[1:]
		} else {
			var one string
			_ = json.Unmarshal(w, &one)
			ids = []string{one}
		}
		out = append(out, ids)
	}
	return out
}

func join(list []json.RawMessage) []byte {
	b, _ := json.Marshal(list)
	return b
}
