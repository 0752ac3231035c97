package program

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/stack"
)

type doctorCmd struct {
	Held int `default:"2000" placeholder:"N" help:"How many requests will be held open at once."`
	envoyFlag
}

func (c *doctorCmd) Help() string {
	return `Reports which Envoy a run would use and why, and what this machine lacks. It changes nothing. The exit
code is 0 if a run can start.

Examples:
  windtunnel doctor
  windtunnel doctor --held 10000                # are there enough file descriptors?
  windtunnel doctor --envoy-path ./envoy`
}

func (c *doctorCmd) Run(o *outside) error {
	if c.Held < 1 {
		return exit.Errorf(exit.Usage, "--held %d: expected 1 or more", c.Held)
	}
	ctx, stop := o.Context()
	defer stop()
	facts := envoy.Inspect(ctx, envoy.InspectOptions{
		Held: c.Held,
		Find: envoy.FindOptions{Path: c.EnvoyPath, Getenv: o.Getenv},
		Ports: []envoy.Port{
			{Addr: stack.KeptGateway, Use: "gateway"},
			{Addr: stack.KeptExtProc, Use: "EPP, ext_proc"},
			{Addr: stack.KeptHealth, Use: "EPP, health"},
			{Addr: stack.KeptAdmin, Use: "Envoy's own pages"},
			{Addr: stack.KeptMetrics, Use: "EPP, metrics"},
		},
	})
	if err := c.show(o, facts); err != nil {
		return err
	}
	if !facts.OK() {
		return exit.Reported(exit.Environment, errors.New("this machine lacks something"))
	}
	return nil
}

// show prints a line for each check: its name, the verdict, and what was found.
func (c *doctorCmd) show(o *outside, f envoy.Facts) error {
	w := tabwriter.NewWriter(o.Stdout, 0, 0, 2, ' ', 0)
	line := func(what, verdict, found string) {
		for i, l := range strings.Split(strings.TrimSpace(found), "\n") {
			if i > 0 {
				what, verdict = "", ""
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", what, verdict, l)
		}
	}
	switch {
	case f.EnvoyErr == nil:
		line("Envoy", "ok", fmt.Sprintf("%s at %s (%s)", f.Envoy.Version, f.Envoy.Path, f.Envoy.Source))
	case f.WouldInstall:
		line("Envoy", "ok", fmt.Sprintf("none yet; a run installs %s into %s (needs %s)", envoy.Pinned, f.Cache,
			f.Needs))
	default:
		line("Envoy", "missing", f.EnvoyErr.Error())
	}
	if f.EnvoyErr == nil || f.WouldInstall {
		for _, a := range f.Looked {
			line("", "", fmt.Sprintf("%s: %s", a.Place, a.Found))
		}
	}
	for _, t := range f.Tools {
		found, verdict := t.Version, "ok"
		if t.Path == "" {
			verdict = "none"
		}
		if found == "" && t.Path == "" {
			found = "not on PATH"
		}
		line(t.Name, verdict, found)
	}
	verdict := "ok"
	if f.Descriptors < f.Needed {
		verdict = "too few"
	}
	line("descriptors", verdict,
		fmt.Sprintf("%d per process; %d requests held over HTTP/1.1 need %d", f.Descriptors, f.Held, f.Needed))
	for _, p := range f.Ports {
		if p.Err != nil {
			line("port", "taken", fmt.Sprintf("%s (%s, with --keep): %v", p.Addr, p.Use, p.Err))
			continue
		}
		line("port", "free", fmt.Sprintf("%s (%s, with --keep)", p.Addr, p.Use))
	}
	line("platform", "", f.Platform)
	return w.Flush()
}
