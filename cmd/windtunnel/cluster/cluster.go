// Package cluster starts windtunnel-k8s for commands whose runs a cluster plays.
package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/exit"
)

// Program is the program that speaks to an API server. Kubernetes' libraries are in its binary alone.
const Program = "windtunnel-k8s"

// Args returns the arguments for windtunnel-k8s, nil for a command that runs here.
func Args(args []string) []string {
	if len(args) == 0 || !slices.Contains([]string{"sweep", "capacity", "tune", "load"}, args[0]) ||
		slices.Contains(args, "--help") {
		return nil
	}
	for i, a := range args {
		switch {
		case a == "--from-cluster" && args[0] == "tune":
			return args
		case a == "--on=kubernetes":
			return slices.Delete(slices.Clone(args), i, i+1)
		case a == "--on" && i+1 < len(args) && args[i+1] == "kubernetes":
			return slices.Delete(slices.Clone(args), i, i+2)
		}
	}
	return nil
}

// Start runs windtunnel-k8s, which lies beside this program or on PATH, and returns with its exit code.
func Start(o *console.Console, args []string) error {
	path := ""
	if own, err := os.Executable(); err == nil {
		path, _ = exec.LookPath(filepath.Join(filepath.Dir(own), Program))
	}
	if path == "" {
		found, err := exec.LookPath(Program)
		if err != nil {
			return exit.Hint(exit.Environment, errors.New("--on kubernetes: "+Program+" is neither beside "+
				"windtunnel nor on PATH"), "go install github.com/windtunnel/windtunnel/kubernetes/cmd/"+Program+
				"@latest installs it; use the version of windtunnel")
		}
		path = found
	}
	ctx, stop := o.Context()
	defer stop()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Cancel = func() error { return nil } // Ctrl-C reaches both, and it ends by itself
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Bytes(), o.Stderr
	if o.Terminal { // the program that this starts makes the table as wide
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
