// Package constraint says which of the things that a run uses holds it back.
package constraint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/report"
)

// Kind is a thing of which a run has only so much.
type Kind string

// The kinds, those first that hold back others: requests that wait for KV blocks or for a
// place to run leave the accelerator's time as it is.
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

// Full is the share from which on something that is not the accelerators' time holds a run
// back: what is used by chance arrivals is never all in use on average.
const Full = 0.9

// Use is how much of something a run used.
type Use struct {
	Kind Kind `json:"kind"`
	// Where is the pool, where there are several, and the role of the servers, where they
	// have different ones.
	Where string `json:"where,omitempty"`
	// Share is how much of it was in use, on average over the run, from 0 to 1.
	Share float64 `json:"share"`
	// Preempted says that requests lost their KV blocks to others: then there are too few of
	// them, however many are in use on average.
	Preempted bool `json:"preempted,omitempty"`
}

// String is such as "KV memory of decode servers 93.1% in use".
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

// OfLoad is what model servers used, of a run with so many requests.
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

// Mean is what several runs used on average.
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

// Order puts first what holds a run back: of what is full the fullest, and else of the
// accelerators' time that of which most is in use. full is false where none of it is: then
// the run was not held back by what it has.
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
	slices.SortStableFunc(ordered, func(a, b Use) int {
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
