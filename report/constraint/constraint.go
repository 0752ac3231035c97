// Package constraint finds the resource that holds a run back.
package constraint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report"
)

// Kind is a limited resource of a run.
type Kind string

// The kinds. A kind that can hold back others comes first: requests that wait for KV blocks or for a place in the batch
// do not use the accelerator's time.
const (
	Picker   Kind = "picker"    // the time of the endpoint picker's workers
	Transfer Kind = "transfer"  // the bandwidth of the busiest link between model servers
	KVMemory Kind = "KV memory" // blocks of the KV cache
	// places in the batch (max-num-seqs), for which requests wait in the engine's queue
	Queue   Kind = "queue"
	Prefill Kind = "prefill compute" // the accelerators' time, for prompts
	Decode  Kind = "decode compute"  // the accelerators' time, for tokens
)

var kinds = []Kind{Picker, Transfer, KVMemory, Queue, Prefill, Decode}

// Full is the share from which on a resource other than the accelerators' time holds a run back. Random arrivals never
// use all of it on average.
const Full = 0.9

// Use is how much of a resource a run used.
type Use struct {
	Kind Kind `json:"kind"`
	// Where is the pool, if there are several, and the role of the servers, if roles differ.
	Where string `json:"where,omitempty"`
	// Share is the mean share in use over the run, from 0 to 1.
	Share float64 `json:"share"`
	// Preempted says that requests lost their KV blocks to others. There are too few blocks then, even if the mean
	// share is low.
	Preempted bool `json:"preempted,omitempty"`
}

// String returns words such as "KV memory (decode servers) 93.1% in use".
func (u Use) String() string {
	text := string(u.Kind)
	if u.Where != "" {
		text += " (" + u.Where + ")"
	}
	text += fmt.Sprintf(" %.1f%% in use", 100*u.Share)
	if u.Preempted {
		text += ", with preemptions"
	}
	return text
}

// OfLoad returns the model servers' use in a run with so many requests.
func OfLoad(list []report.LoadSummary, requests int) (out []Use) {
	for i := range list {
		x := &list[i]
		where := x.Pool
		if x.Role != report.Both {
			where = strings.TrimSpace(where + " " + string(x.Role) + " servers")
		}
		add := func(k Kind, share float64) {
			out = append(out, Use{Kind: k, Where: where, Share: min(share, 1)})
		}
		add(KVMemory, x.KV.Mean)
		// One request in a hundred is more than an accident.
		out[len(out)-1].Preempted = x.Preemptions > 0 && int(min(x.Preemptions, 1<<40))*100 >= requests
		if x.Slots > 0 {
			add(Queue, x.Running.Mean/float64(x.Slots))
		}
		if x.Role != report.Decodes || x.Prompts > 0 {
			add(Prefill, x.Prompts)
		}
		if x.Role != report.Prefills {
			add(Decode, x.Busy.Mean-x.Prompts)
		}
	}
	return out
}

// Mean returns the mean use of several runs.
func Mean(runs ...[]Use) (out []Use) {
	for _, run := range runs {
		for _, u := range run {
			i := slices.IndexFunc(out, func(x Use) bool { return x.Kind == u.Kind && x.Where == u.Where })
			if i < 0 {
				i = len(out)
				out = append(out, Use{Kind: u.Kind, Where: u.Where})
			}
			out[i].Share += u.Share / float64(len(runs))
			out[i].Preempted = out[i].Preempted || u.Preempted
		}
	}
	for i := range out {
		out[i].Share = report.Digits(out[i].Share)
	}
	return out
}

// Order sorts the resource that holds a run back to the front: the fullest of the full ones, or else the accelerators'
// time with the highest use. full is false if none is full, so that no resource held the run back.
func Order(list []Use) (ordered []Use, full bool) {
	ordered = slices.Clone(list)
	rank := func(u *Use) int {
		switch {
		case u.Kind == Prefill || u.Kind == Decode:
			return 1
		case u.Share >= Full || u.Preempted:
			return 0
		}
		return 2
	}
	machine.SortStableFunc(ordered, func(a, b Use) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.Share, a.Share),
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)))
	})
	if len(ordered) == 0 {
		return nil, false
	}
	if first := &ordered[0]; rank(first) == 0 {
		return ordered, true
	}
	busy := map[string]float64{}
	for i := range ordered {
		if rank(&ordered[i]) == 1 {
			busy[ordered[i].Where] += ordered[i].Share
			full = full || busy[ordered[i].Where] >= Full
		}
	}
	return ordered, full
}
