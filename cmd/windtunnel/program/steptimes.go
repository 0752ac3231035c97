package program

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/sources"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/internal/silicon"
	"github.com/windtunnel/windtunnel/scenario"
)

type stepTimesCmd struct {
	textOrJSON
	File        string `arg:"" optional:"" name:"file" help:"A file for a scenario's stepTimes, else windtunnel's tables; with --measured benchmark results, else those that windtunnel is fitted to."`
	Measured    bool   `help:"Compare predicted with measured times of real GPUs."`
	Calibration string `placeholder:"FILE" help:"With --measured: parameters from windtunnel calibrate --results."`
	Plot        string `placeholder:"FILE" help:"With --measured: write a plot of predicted against measured times (SVG)."`
}

func (c *stepTimesCmd) Help() string {
	return `Reports, of each table: its error at the points that it is made of, and the worst of them; the point that
comes closest to the hardware's peak (a table that is faster than the peak is refused); and by how much other
sources differ at the same points, in time to first token (TTFT) and in time per output token (TPOT). That
difference is how far any of the sources can be trusted.

With --measured it plays the load of each benchmark result in virtual time, and reports the errors of TTFT, of TPOT
and of output tokens per second and GPU: by model, precision, accelerator and parallelism, by the requests in
flight, and by length. It reads the formats of windtunnel calibrate --results.

Examples:
  windtunnel steptimes
  windtunnel steptimes --measured
  windtunnel steptimes --measured bench.json --calibration calibration.json
  windtunnel steptimes step-times.csv   # such as windtunnel calibrate writes`
}

func (c *stepTimesCmd) Run(o *outside) error {
	if c.Measured {
		return c.measured(o)
	}
	if c.Calibration != "" || c.Plot != "" {
		return exit.Errorf(exit.Usage, "--calibration and --plot: expected --measured beside them")
	}
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
			return exit.Errorf(exit.Input, "%s: found no points; expected at least one", c.File)
		}
	}
	list := make([]sources.Distance, len(all))
	for i := range all {
		var err error
		if list[i], err = sources.DistanceOf(&all[i]); err != nil {
			name := c.File
			name = cmp.Or(name, "a table of windtunnel's")
			return exit.Errorf(exit.Input, "%s: %w", name, err)
		}
	}
	if c.json() {
		return writeJSON(o.Stdout, list)
	}
	var b strings.Builder
	for i := range list {
		x := &list[i]
		fmt.Fprintf(&b, "%s on %s, TP %d (%s): %d points\n", x.Model, x.System, x.TP, x.Backend, x.Points)
		fmt.Fprintf(&b, "  %-15s  %s\n", "off its points", offWords(x.Given))
		if x.Peak > 0 {
			fmt.Fprintf(&b, "  %-15s  %.2f times the least that the hardware can take, %s\n", "nearest to peak", x.Peak,
				x.Nearest)
		}
		for _, s := range x.Others {
			fmt.Fprintf(&b, "  %-15s  TTFT %+.0f%%, %s\n", s.Source, 100*s.TTFT.Moves, offWords(s.TTFT))
			fmt.Fprintf(&b, "  %-15s  TPOT %+.0f%%, %s\n", "", 100*s.TPOT.Moves, offWords(s.TPOT))
		}
		if len(x.Others) == 0 {
			fmt.Fprintf(&b, "  %-15s  none that is known of this model and hardware\n", "other sources")
		}
	}
	_, err := io.WriteString(o.Stdout, b.String())
	return err
}

// offWords returns an error at the median and at the worst point, in words.
func offWords(x sources.Off) string {
	text := fmt.Sprintf("median %.1f%%, at most %.1f%%", 100*x.Median, 100*x.Most)
	if x.Worst != "" && x.Most >= 0.0005 {
		text += ", " + x.Worst
	}
	return text
}

// measured compares predicted with measured times.
func (c *stepTimesCmd) measured(o *outside) error {
	ctx, stop := o.Context()
	defer stop()
	x, err := search.CompareMeasured(ctx, c.File, c.Calibration)
	if err != nil {
		return err
	}
	if c.Plot != "" {
		var b bytes.Buffer
		if err := silicon.WriteSVG(&b, x.Rows); err != nil {
			return err
		}
		if err := os.WriteFile(c.Plot, b.Bytes(), 0o644); err != nil { //nolint:gosec // a picture that any user may see
			return exit.Errorf(exit.Input, "--plot: %w", err)
		}
	}
	if c.json() {
		return writeJSON(o.Stdout, x)
	}
	return x.WriteText(o.Stdout)
}
