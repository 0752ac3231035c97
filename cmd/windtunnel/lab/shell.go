package lab

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/lab"
)

type shellCmd struct {
	Command string `arg:"" optional:"" help:"A command line for the shell, as sh -c takes it. Left out: an interactive shell."`
}

func (shellCmd) Help() string {
	return `The shell is the one of SHELL. On its PATH, kubectl and nvidia-smi answer from the running lab, and nothing
reaches a cluster. docs/labs.md lists the commands.

Examples:
  windtunnel lab shell
  windtunnel lab shell 'kubectl logs -n llm-d-system -l app=endpoint-picker | grep "scheduling_duration"'`
}

// Run runs a shell until its end.
func (c *shellCmd) Run(o *console.Console) error {
	d, _, _, err := running(o)
	if err != nil {
		return err
	}
	cmd := exec.Command(cmp.Or(o.Getenv("SHELL"), "sh"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Stdout, o.Stderr
	if c.Command != "" {
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", c.Command}
	} else if o.Terminal {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // the shell needs the terminal itself
	}
	cmd.Env = append(os.Environ(), "PATH="+d.Bin()+string(filepath.ListSeparator)+o.Getenv("PATH"))
	return commandError(cmd.Run())
}

// commandError returns an error with the exit code of a program, which has printed the reason.
func commandError(err error) error {
	var ran *exec.ExitError
	if errors.As(err, &ran) {
		return exit.Reported(exit.Code(ran.ExitCode()), err)
	}
	var inPod lab.ExitError
	if errors.As(err, &inPod) {
		return exit.Reported(exit.Code(inPod), err)
	}
	return exit.ByCause(exit.Input, err)
}

type kubectlCmd struct {
	Args []string `arg:"" optional:"" help:"A command of kubectl with its arguments and flags."`
}

func (kubectlCmd) Help() string {
	return `What kubectl does in windtunnel lab shell: get, describe, logs, exec, top, apply, edit and port-forward,
as far as document 003 uses them (docs/documents.md#document-003). Without -n it looks in all namespaces.

Examples:
  windtunnel lab kubectl get pods -o wide
  windtunnel lab kubectl exec llm-decode-worker-0 -- curl localhost:8001/metrics`
}

// Run answers a command line of kubectl, or of nvidia-smi if that is its first word.
func (c *kubectlCmd) Run(o *console.Console) error {
	d, err := dirOf(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	k := lab.Kubectl{Dir: d, In: o.Stdin, Out: o.Stdout, Err: o.Stderr,
		Edit: func(ctx context.Context, path string) error {
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", cmp.Or(o.Getenv("EDITOR"), "vi")+` "$1"`, "sh", path)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, os.Stdout, os.Stderr
			return cmd.Run()
		}}
	if len(c.Args) > 0 && c.Args[0] == "nvidia-smi" {
		return coded(k.SMI(ctx, c.Args[1:]))
	}
	err = k.Run(ctx, c.Args)
	if errors.Is(err, lab.ErrNone) {
		return coded(err)
	}
	return commandError(err)
}

// CommandLine returns the command line for a program name by which windtunnel lab shell calls windtunnel.
func CommandLine(program string, args []string) []string {
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case "kubectl":
		return append([]string{"lab", "kubectl"}, args...)
	case "nvidia-smi":
		return append([]string{"lab", "kubectl", "nvidia-smi"}, args...)
	}
	return args
}

// Of returns the command for a command line of kubectl, whose flags are not windtunnel's; nil for other command lines.
func Of(args []string) interface {
	Run(o *console.Console) error
} {
	if len(args) > 2 && args[0] == "lab" && args[1] == "kubectl" && args[2] != "--help" {
		return &kubectlCmd{Args: args[2:]}
	}
	return nil
}
