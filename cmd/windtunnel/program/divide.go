package program

import (
	"fmt"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/meter"
	"github.com/windtunnel/windtunnel/internal/search"
)

// divideFlags say how several processes play one search.
type divideFlags struct {
	Share   search.Share `placeholder:"I/N" help:"Play part I, from 0, of N into the directory of --results (load: send every N-th arrival), and print no result."`
	Collect bool         `help:"Play nothing, and print the result of what is in --results."`
	On      string       `enum:"here,kubernetes" default:"here" help:"Where to play: here, or on a cluster by windtunnel-k8s, which has more flags (docs/kubernetes-jobs.md)."`
}

func (f *divideFlags) division(results string) search.Division {
	return search.Division{Results: results, Share: f.Share, Collect: f.Collect}
}

// watch shows a player's runs on a terminal. A share prints a line for each point and load, for the log of a pod.
func (f *divideFlags) watch(o *outside, p *search.Player) (stop func()) {
	if f.Share.Of == 0 {
		return meter.Watch(o, p)
	}
	p.Row = func(text string) { fmt.Fprintln(o.Stdout, text) }
	return func() {}
}
