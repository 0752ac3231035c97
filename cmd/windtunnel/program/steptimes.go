package program

import (
	"fmt"
	"io"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/sources"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/scenario"
)

type stepTimesCmd struct {
	textOrJSON
	File string `arg:"" optional:"" name:"step-times.csv" help:"A file for a scenario's stepTimes, else windtunnel's tables."`
}

func (c *stepTimesCmd) Help() string {
	return `Reports, of each table: its error at the points that it is made of, and the worst of them; the point that
comes closest to the hardware's peak (a table that is faster than the peak is refused); and by how much other
sources differ at the same points, in time to first token (TTFT) and in time per output token (TPOT). That
difference is how far any of the sources can be trusted.

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
			return exit.Errorf(exit.Input, "%s: found no points; expected at least one", c.File)
		}
	}
	list := make([]sources.Distance, len(all))
	for i := range all {
		var err error
		if list[i], err = sources.DistanceOf(&all[i]); err != nil {
			name := c.File
			if name == "" {
				name = "a table of windtunnel's"
			}
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
