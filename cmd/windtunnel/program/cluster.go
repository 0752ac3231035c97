package program

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// ForCluster is the program that speaks to an API server, a binary of its own because of Kubernetes' libraries.
const ForCluster = "windtunnel-k8s"

// Sweep and Capacity are the commands for windtunnel-k8s, which adds flags of the cluster and plays the runs there.
type (
	Sweep    = sweepCmd
	Capacity = capacityCmd
)

// Divided is a command whose runs several processes can play.
type Divided interface {
	// Check returns the files that the runs read and how many shares have runs to play, or an error for a mistake. It
	// plays nothing.
	Check(o *outside) (inputs []string, shares int, err error)
	// Collected prints the result from the output of --collect --output json, which the file has.
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

// alone returns an error for flags that a cluster's own replace.
func (f *divideFlags) alone(file, results string) error {
	switch {
	case file == "-":
		return exit.Errorf(exit.Usage, "--on kubernetes: the scenario comes from standard input; expected a file")
	case results != "" || f.Share.Of > 0 || f.Collect:
		return exit.Errorf(exit.Usage, "--on kubernetes: found --results, --share or --collect; expected none of them, "+
			"since the results are on a volume (--claim) that %s divides", ForCluster)
	}
	return nil
}

// onCluster returns the arguments for windtunnel-k8s, nil for a command that runs here.
func onCluster(args []string) []string {
	if len(args) == 0 || args[0] != "sweep" && args[0] != "capacity" || slices.Contains(args, "--help") {
		return nil
	}
	for i, a := range args {
		switch {
		case a == "--on=kubernetes":
			return slices.Delete(slices.Clone(args), i, i+1)
		case a == "--on" && i+1 < len(args) && args[i+1] == "kubernetes":
			return slices.Delete(slices.Clone(args), i, i+2)
		}
	}
	return nil
}

// startCluster runs windtunnel-k8s, which lies beside this program or on PATH, and returns with its exit code.
func startCluster(o *outside, args []string) error {
	path := ""
	if own, err := os.Executable(); err == nil {
		path, _ = exec.LookPath(filepath.Join(filepath.Dir(own), ForCluster))
	}
	if path == "" {
		found, err := exec.LookPath(ForCluster)
		if err != nil {
			return exit.Hint(exit.Environment, errors.New("--on kubernetes: "+ForCluster+" is neither beside "+
				"windtunnel nor on PATH"), "go install github.com/windtunnel/windtunnel/kubernetes/cmd/"+ForCluster+
				"@latest installs it; use the version of windtunnel")
		}
		path = found
	}
	ctx, stop := o.Context()
	defer stop()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return nil } // Ctrl-C reaches both, and it ends by itself
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Bytes(), o.Stderr
	if o.Terminal { // its width is that of the table
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	var ended *exec.ExitError
	switch err := cmd.Run(); {
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		return exit.Told(exit.Code(ended.ExitCode()), err)
	default:
		return exit.With(exit.Broken, err)
	}
}
