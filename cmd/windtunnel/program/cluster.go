package program

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/cluster"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/meter"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
)

// Sweep, Capacity, Tune and Load are the commands for windtunnel-k8s, which adds flags of the cluster and plays the
// runs there.
type (
	Sweep    = sweepCmd
	Capacity = capacityCmd
	Tune     = tuneCmd
	Load     = sendCmd
)

// Divided is a command whose runs several processes can play.
type Divided interface {
	// Check returns the files that the runs read and how many shares have runs to play, or an error for a mistake. It
	// plays nothing.
	Check(o *outside) (inputs []string, shares int, err error)
	// Collected prints the result from the output of --collect --output json, or of --collect for Load, which the file
	// has.
	Collected(o *outside, file string) error
}

// Check is Divided's. A share plays at least one combination.
func (c *sweepCmd) Check(o *outside) (inputs []string, shares int, err error) {
	question, err := c.search(o)
	if err := errors.Join(err, c.alone(c.File, c.Results), (&shownIn{Output: c.Output}).fits(o)); err != nil {
		return nil, 0, err
	}
	shares, inputs, err = question.Check()
	return inputs, shares, err
}

// Collected is Divided's.
func (c *sweepCmd) Collected(o *outside, file string) error {
	c.Results, c.Collect = file, true
	return c.Run(o)
}

// Check is Divided's. A look has as many runs as decide about a load.
func (c *capacityCmd) Check(o *outside) (inputs []string, shares int, err error) {
	question, err := c.search(o)
	if err := errors.Join(err, c.alone(c.File, c.Results)); err != nil {
		return nil, 0, err
	}
	inputs, err = question.Check()
	return inputs, c.Replications, err
}

// Collected is Divided's.
func (c *capacityCmd) Collected(o *outside, file string) error {
	c.Results, c.Collect = file, true
	return c.Run(o)
}

// Check is Divided's. The first generation has the most runs at once.
func (c *tuneCmd) Check(o *outside) (inputs []string, shares int, err error) {
	question, err := c.search(o)
	if err == nil && c.Time > 0 {
		err = exit.Errorf(exit.Usage, "--on kubernetes: found --time; expected --runs alone")
	}
	for _, file := range append([]string{c.File}, c.More...) {
		err = cmp.Or(err, c.alone(file, c.Results))
	}
	if err != nil {
		return nil, 0, err
	}
	return question.Check()
}

// Collected is Divided's.
func (c *tuneCmd) Collected(o *outside, file string) error {
	c.Results, c.Collect = file, true
	return c.Run(o)
}

// alone returns an error for flags that a cluster's own replace.
func (f *divideFlags) alone(file, results string) error {
	switch {
	case file == "-":
		return exit.Errorf(exit.Usage, "--on kubernetes: the scenario comes from standard input; expected a file")
	case results != "" || f.Share.Of > 0 || f.Collect:
		return exit.Errorf(exit.Usage, "--on kubernetes: found --results, --share or --collect; expected none of "+
			"them: %s keeps the results on a volume (--claim) and divides the runs", cluster.Program)
	}
	return nil
}

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
