package calibrate

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Quality returns sentences about the errors of the table on held-out probes.
func (f *Fit) Quality() (out []string) {
	out = append(out, fmt.Sprintf("Repeats of a prompt were off their median by %.1f %% (median).", 100*f.Spread))
	for _, of := range Kinds() {
		if mid, most, err := f.Errors(of); err == nil {
			out = append(out, fmt.Sprintf(
				"Held out, of what the table is not made: %s off by %.1f %% (median), %.1f %% at most.", of, 100*mid,
				100*most))
		} else {
			out = append(out, fmt.Sprintf("Held out: %s were not compared, as none were measured.", of))
		}
	}
	return out
}

func milliseconds(ns int64) string { return fmt.Sprintf("%.2f ms", float64(ns)/1e6) }

// WriteTable writes the table for people.
func (f *Fit) WriteTable(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "prompt\ttakes\t\n")
	batch := int64(0)
	var heads, row []string
	line := func() {
		if batch > 0 {
			fmt.Fprintf(w, "%d\t%s\t\n", batch, strings.Join(row, "\t"))
		}
		row = nil
	}
	for _, p := range f.Points {
		if p.Prompt > 0 {
			continue
		}
		if p.Decode {
			heads = append(heads, fmt.Sprint(p.Context))
		} else {
			fmt.Fprintf(w, "%d\t%s\t\n", p.Context, milliseconds(p.Nanoseconds))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, p := range f.Points {
		if !p.Decode || p.Prompt > 0 {
			continue
		}
		if p.Batch != batch {
			if line(); batch == 0 {
				n := 0
				for n < len(heads) && (n == 0 || heads[n] != heads[0]) {
					n++
				}
				fmt.Fprintf(w, "\nat once\tof %s tokens\t\n", strings.Join(heads[:n], "\t"))
			}
			batch = p.Batch
		}
		cell := milliseconds(p.Nanoseconds)
		if f.Extrapolated[i] {
			cell = "~" + cell
		}
		row = append(row, cell)
	}
	line()
	return w.Flush()
}

// Sentences returns, one per line, the comparisons with held-out probes, and the limits of the table.
func (f *Fit) Sentences() string {
	var b strings.Builder
	for _, p := range f.Points {
		if p.Prompt > 0 {
			fmt.Fprintf(&b, "mixed      %s: %s\n", p, milliseconds(p.Nanoseconds))
		}
	}
	if f.LeftOut != "" {
		fmt.Fprintf(&b, "mixed      left out: %s; was the server idle?\n", f.LeftOut)
	}
	for _, x := range f.HeldOut {
		fmt.Fprintf(&b, "held out   %s: took %s, the table says %s (%+.1f %%)\n", x.Name, milliseconds(int64(x.Took)),
			milliseconds(int64(x.Predicted)), 100*x.Off())
	}
	for _, line := range f.Quality() {
		fmt.Fprintln(&b, line)
	}
	if x := f.Prefix; x != nil {
		cached := "the server does not say how much of it was cached"
		if x.Cached >= 0 {
			cached = fmt.Sprintf("%d of its tokens were cached", x.Cached)
		}
		fmt.Fprintf(&b, "A prompt of %d tokens took %s to its first token, and %s when it came again: %s.\n", x.Tokens,
			milliseconds(int64(x.Cold)), milliseconds(int64(x.Warm)), cached)
	}
	if len(f.Extrapolated) > 0 {
		fmt.Fprintln(&b, "What has a ~ was not measured, since so much does not fit into the server; the measured "+
			"points are continued.")
	}
	return b.String()
}
