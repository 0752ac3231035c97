package parity

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
)

func (pl *player) flowStep(s *Step) {
	switch {
	case s.BlockedThen != nil:
		pl.pass(100 * machine.Millisecond)
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
		pl.pass(200 * machine.Millisecond)
		want := s.Answered
		if want == nil {
			want = s.DispatchedThen
		}
		if !slices.Equal(pl.order, want) && !pl.overshoot(want) {
			pl.fault("answered", "order", fmt.Sprint(want), fmt.Sprint(pl.order))
		}
	case s.Order != nil:
		// In a cluster, the recorded order includes refused requests, and even some that were refused before.
		got, fresh, all := pl.drain()
		want := groups(s.Order)
		if !sameOrder(want, got) && (pl.cluster == nil || !sameOrder(want, fresh) && !sameOrder(want, all)) {
			pl.fault("dispatch_order", "order", string(join(s.Order)), fmt.Sprint(got))
		}
	case s.Seconds != nil:
		pl.compareSeconds(s)
	case s.EPPMetrics == nil: // only a picker with pages has them
		pl.fault("step", "unknown", fmt.Sprintf("%+v", *s), "not played")
	}
}

// compareSeconds compares how many seconds after their arrival, or after the previous change, requests were answered.
func (pl *player) compareSeconds(s *Step) {
	for id, want := range s.Seconds {
		x := pl.open[id]
		for n := 0; x != nil && !x.done && n < 300; n++ {
			pl.pass(50 * machine.Millisecond)
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

// overshoot reports whether the answers differ by only one dispatch. The real concurrency detector may dispatch one
// too many.
func (pl *player) overshoot(want []string) bool {
	extra := 0
	for _, id := range want {
		if !slices.Contains(pl.order, id) {
			extra++
		}
	}
	return extra <= 1 && len(pl.order) <= len(want)
}

// drain finishes dispatched requests one by one and records the order of the next ones.
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
				pl.pass(50 * machine.Millisecond)
			}
		}
		if id == "" {
			break
		}
		done[id] = true
		x := pl.open[id]
		all = append(all, id)
		passed := x.refusal() == nil
		if passed {
			order = append(order, id)
		}
		if passed || !pl.answered[id] {
			fresh = append(fresh, id)
		}
		pl.finish(id, playOf(x.step), nil)
		pl.pass(5 * machine.Millisecond)
	}
	return order, fresh, all
}

// sameOrder compares with the recorded order, in which ["together", a, b] marks requests that left within one window.
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

// groups returns the requests that left within one window each.
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
