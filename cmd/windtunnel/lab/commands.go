// Package lab has the commands of windtunnel lab. Package internal/lab does what they ask for.
package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/cachedir"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/lab"
)

// Command has the commands for labs, which are stacks with a planted fault.
type Command struct {
	List    listCmd    `cmd:"" help:"List the labs."`
	Start   startCmd   `cmd:"" help:"Start a stack with a fault in it, until Ctrl-C."`
	Hint    hintCmd    `cmd:"" help:"Print the next hint about the fault."`
	Check   checkCmd   `cmd:"" help:"Send fresh traffic, and report whether the fault is repaired."`
	Solve   solveCmd   `cmd:"" help:"Repair the fault, and print the change."`
	Stop    stopCmd    `cmd:"" help:"End the running lab."`
	Shell   shellCmd   `cmd:"" help:"Start a shell in which document 003's commands work as written."`
	Kubectl kubectlCmd `cmd:"" help:"Answer a command of kubectl from the running lab."`
}

// dirOf returns the directory of the user's lab: WINDTUNNEL_LAB, or lab in windtunnel's cache.
func dirOf(o *console.Console) (lab.Dir, error) {
	if dir := o.Getenv("WINDTUNNEL_LAB"); dir != "" {
		path, err := filepath.Abs(dir)
		return lab.Dir(path), exit.With(exit.Environment, err)
	}
	cache, err := cachedir.Dir(o.Getenv)
	if err != nil {
		return "", exit.With(exit.Environment, err)
	}
	return lab.Dir(filepath.Join(cache, "lab")), nil
}

// running returns the directory and the state of the running lab.
func running(o *console.Console) (d lab.Dir, s lab.State, l *lab.Lab, err error) {
	if d, err = dirOf(o); err != nil {
		return d, s, nil, err
	}
	if s, err = d.State(); err == nil {
		l, err = lab.Find(s.Lab)
	}
	return d, s, l, coded(err)
}

// coded adds an exit code.
func coded(err error) error {
	if errors.Is(err, lab.ErrNone) {
		return exit.Hint(exit.Environment, err, "windtunnel lab list prints the names")
	}
	return exit.ByCause(exit.Input, err)
}

type listCmd struct{ format }

func (listCmd) Help() string {
	return `Examples:
  windtunnel lab list
  windtunnel lab list --output json | jq -r .[].name`
}

// Run prints the labs by sections of document 003's guide.
func (c *listCmd) Run(o *console.Console) error {
	type row struct {
		Name  string `json:"name"`
		Area  string `json:"area"`
		Title string `json:"title"`
		Check string `json:"check"`
	}
	labs, err := lab.All()
	if err != nil {
		return err
	}
	rows := []row{}
	for _, l := range labs {
		rows = append(rows, row{l.Name, l.Area, l.Title, l.Play})
	}
	return c.print(o, rows, func(w io.Writer) error {
		area := ""
		for _, r := range rows {
			if r.Area != area {
				area = r.Area
				fmt.Fprintf(w, "%s\n", area)
			}
			fmt.Fprintf(w, "  %-20s %s\n", r.Name, r.Title)
		}
		return nil
	})
}

type checkCmd struct{ format }

func (checkCmd) Help() string {
	return `Waits until the edited manifests are in force, plays the lab's traffic, and compares figures: answers,
times, and what metrics count. Labs about latency play it in virtual time with the edited manifests, the others
live. The exit code is 0 if the fault is repaired, and 1 if it is not.

Examples:
  windtunnel lab check
  windtunnel lab check --output json | jq .repaired`
}

// verdict is the output of check.
type verdict struct {
	Lab          string               `json:"lab"`
	Repaired     bool                 `json:"repaired"`
	Expectations []record.Expectation `json:"expectations"`
}

// Run compares fresh traffic with what the lab expects.
func (c *checkCmd) Run(o *console.Console) error {
	d, _, l, err := running(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	s, err := d.Applied(ctx)
	if err != nil {
		return coded(err)
	}
	v := verdict{Lab: l.Name, Repaired: true}
	if s.Refused != "" {
		v.Expectations = []record.Expectation{{What: "manifests", Expected: "in force", Found: s.Refused}}
	} else if v.Expectations, err = l.Figures(ctx, d, s); err != nil {
		return coded(err)
	}
	for _, e := range v.Expectations {
		v.Repaired = v.Repaired && e.OK
	}
	err = c.print(o, v, func(w io.Writer) error {
		fmt.Fprintln(w, map[bool]string{true: "repaired", false: "not repaired yet"}[v.Repaired])
		for _, e := range v.Expectations {
			fmt.Fprintf(w, "  %-4s %s: found %s, expected %s\n", map[bool]string{true: "ok", false: "no"}[e.OK], e.What,
				e.Found, e.Expected)
		}
		return nil
	})
	if err == nil && !v.Repaired {
		err = exit.Reported(exit.Failed, errors.New("not repaired"))
	}
	return err
}

type hintCmd struct{ format }

func (hintCmd) Help() string {
	return `Each call prints one hint more, and at last document 003's commands that show the cause.

Examples:
  windtunnel lab hint`
}

// Run prints the hints so far.
func (c *hintCmd) Run(o *console.Console) error {
	d, _, l, err := running(o)
	if err != nil {
		return err
	}
	n, err := d.Hints(1)
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	x := struct {
		Hints []string `json:"hints"`
		Look  []string `json:"look,omitempty"`
	}{Hints: l.Hints[:min(n, len(l.Hints))]}
	if n > len(l.Hints) {
		x.Look = l.Look
	}
	return c.print(o, x, func(w io.Writer) error {
		for i, h := range x.Hints {
			fmt.Fprintf(w, "%d. %s\n", i+1, h)
		}
		for i, line := range x.Look {
			if i == 0 {
				fmt.Fprintln(w, "look with:")
			}
			fmt.Fprintln(w, "  "+line)
		}
		return nil
	})
}

type solveCmd struct {
	Remedy string `arg:"" optional:"" help:"Which of the lab's remedies. Left out: the first."`
	format
}

func (solveCmd) Help() string {
	return `Writes the manifests again, with a remedy, which discards edits of your own. It prints what the remedy does,
and the names of the lab's other remedies.

Examples:
  windtunnel lab solve
  windtunnel lab solve max-num-seqs`
}

// Run writes the manifests with the remedy.
func (c *solveCmd) Run(o *console.Console) error {
	d, _, l, err := running(o)
	if err != nil {
		return err
	}
	r, err := l.Remedy(c.Remedy)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	texts, err := l.Files(r)
	if err == nil {
		err = d.Fill(texts)
	}
	if err != nil {
		return exit.With(exit.Environment, err)
	}
	edits := r.Edits
	if len(edits) == 0 {
		for _, e := range l.Fault {
			edits = append(edits, lab.Edit{File: e.File, Old: e.New, New: e.Old})
		}
	}
	x := struct {
		Remedy string     `json:"remedy"`
		Does   string     `json:"does"`
		Edits  []lab.Edit `json:"edits"`
		Others []string   `json:"others,omitempty"`
	}{Remedy: r.Name, Does: r.Does, Edits: edits}
	for i := range l.Remedies {
		if n := l.Remedies[i].Name; n != r.Name {
			x.Others = append(x.Others, n)
		}
	}
	return c.print(o, x, func(w io.Writer) error {
		fmt.Fprintf(w, "%s: %s\n", x.Remedy, x.Does)
		for _, e := range x.Edits {
			fmt.Fprintf(w, "%s\n", e.File)
			for sign, text := range map[string]string{"-": e.Old, "+": e.New} {
				for line := range strings.Lines(text) {
					fmt.Fprintf(w, "  %s %s\n", sign, strings.TrimRight(line, "\n"))
				}
			}
		}
		if len(x.Others) > 0 {
			fmt.Fprintf(w, "other remedies: %s\n", strings.Join(x.Others, ", "))
		}
		return nil
	})
}

type stopCmd struct{}

func (stopCmd) Help() string {
	return `Examples:
  windtunnel lab stop`
}

// Run ends the running lab and waits for its end.
func (c *stopCmd) Run(o *console.Console) error {
	d, err := dirOf(o)
	if err != nil {
		return err
	}
	ctx, stop := o.Context()
	defer stop()
	return coded(d.Stop(ctx))
}

// note prints a note for the user.
func note(o *console.Console, text string) { fmt.Fprintf(o.Stderr, "windtunnel: note: %s\n", text) }

// format is the form of a command's output.
type format struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"text for people, or json."`
}

// print writes a result as JSON, or by a function.
func (f format) print(o *console.Console, result any, text func(to io.Writer) error) error {
	if f.Output != "json" {
		return text(o.Stdout)
	}
	enc := json.NewEncoder(o.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(result)
}
