package program

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/scenario"
)

type stepTimesCmd struct {
	shownAs
	File string `arg:"" optional:"" name:"step-times.csv" help:"A file as a scenario's stepTimes names it. Left out: the tables that come with windtunnel."`
}

func (c *stepTimesCmd) Help() string {
	return `Of each table: how far it is off the points that it is made of; by how much the roofline, another source, says otherwise of prompts and of decode steps (median, and at most), which is
how far any of them is to be trusted; and how near a point comes to the hardware's peak. A table that is faster than that is refused, with the arithmetic.

Examples:
  windtunnel steptimes
  windtunnel steptimes step-times.csv   # such as windtunnel calibrate writes`
}

func (c *stepTimesCmd) Run(o *outside) error {
	all := latency.Builtin()
	if c.File != "" {
		text, err := files.Read(c.File, scenario.MaxFileBytes)
		if err != nil {
			return exit.With(exit.Input, err)
		}
		if all, err = latency.ParseCSV(c.File, string(text)); err != nil {
			return exit.With(exit.Input, err)
		}
		if len(all) == 0 {
			return exit.With(exit.Input, fmt.Errorf("%s: there are no points in it", c.File))
		}
	}
	list := make([]latency.Distance, len(all))
	for i := range all {
		var err error
		if list[i], err = all[i].Distance(); err != nil {
			name := c.File
			if name == "" {
				name = "a table of windtunnel's"
			}
			return exit.With(exit.Input, fmt.Errorf("%s: %w", name, err))
		}
	}
	if c.json() {
		return writeJSON(o.Stdout, list)
	}
	both := func(x *latency.Off) string {
		if x == nil {
			return "unknown"
		}
		return fmt.Sprintf("%.1f%%, %.1f%%", 100*x.Median, 100*x.Most)
	}
	const row = "  %6v  %-12s  %-17s  %-14s  %s\n"
	if _, err := fmt.Fprintf(o.Stdout, row, "points", "off them", "roofline: prompts", "decode", "nearest to the peak"); err != nil {
		return err
	}
	for i := range list {
		x := &list[i]
		peak := "unknown"
		if x.Peak > 0 {
			peak = fmt.Sprintf("%.2f times, %s", x.Peak, x.Nearest)
		}
		if _, err := fmt.Fprintf(o.Stdout, "%s on %s, TP %d (%s)\n"+row, x.Model, x.System, x.TP, x.Backend, x.Points, both(&x.Given), both(x.Prefill), both(x.Decode), peak); err != nil {
			return err
		}
	}
	return nil
}
