package silicon

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

var tables = []struct {
	title string
	of    func(*Comparison) []Group
}{
	{"configuration", func(c *Comparison) []Group { return c.Configurations }},
	{"load", func(c *Comparison) []Group { return c.Loads }},
	{"lengths", func(c *Comparison) []Group { return c.Lengths }},
}

var heads = []string{"rows", "TPOT median", "p90", "worst", "bias", "TTFT median", "p90", "worst", "bias",
	"tokens/s/GPU median"}

// cells returns a group in the order of heads.
func (g *Group) cells() []string {
	out := []string{fmt.Sprint(g.Rows)}
	for _, e := range []*Error{&g.TPOT, &g.TTFT} {
		out = append(out, percent(e.Median), percent(e.P90), signed(e.Worst), signed(e.Bias))
	}
	return append(out, percent(g.Tokens.Median))
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// signed has no minus before a zero.
func signed(share float64) string {
	return fmt.Sprintf("%+.0f %%", math.Round(100*share)+0)
}

// ranking returns the ranked pairs in words.
func (c *Comparison) ranking() string {
	if c.Pairs == 0 {
		return "no two rows can be ranked"
	}
	return fmt.Sprintf("%d of %d pairs (%s) rank as measured", c.Ranked, c.Pairs,
		percent(float64(c.Ranked)/float64(c.Pairs)))
}

// WriteText prints the errors as tables for a terminal.
func (c *Comparison) WriteText(to io.Writer) error {
	var b bytes.Buffer
	for _, t := range tables {
		list := append(t.of(c), c.All)
		longest := len(t.title)
		for _, g := range list {
			longest = max(longest, len(g.Name))
		}
		line := func(name string, cells []string) {
			fmt.Fprintf(&b, "%-*s", longest, name)
			for i, text := range cells {
				fmt.Fprintf(&b, "  %*s", max(6, len(heads[i])), text)
			}
			b.WriteByte('\n')
		}
		line(t.title, heads)
		for _, g := range list {
			line(g.Name, g.cells())
		}
		b.WriteByte('\n')
	}
	fmt.Fprintln(&b, c.ranking())
	_, err := to.Write(b.Bytes())
	return err
}

// WriteMarkdown prints the errors as tables of a page.
func (c *Comparison) WriteMarkdown(to io.Writer) error {
	var b bytes.Buffer
	for _, t := range tables {
		fmt.Fprintf(&b, "| %s | %s |\n|---|%s\n", t.title, strings.Join(heads, " | "),
			strings.Repeat("--:|", len(heads)))
		for _, g := range append(t.of(c), c.All) {
			fmt.Fprintf(&b, "| %s | %s |\n", g.Name, strings.Join(g.cells(), " | "))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s.\n", c.ranking())
	_, err := to.Write(b.Bytes())
	return err
}

// The plot has two squares, for TPOT and TTFT. Its colours are visible on white and on black.
const side, margin, gap = 360, 48, 56

var colours = []string{"#1f9e89", "#e07b39", "#5b7fd6", "#c2549d", "#b59b1f", "#7d8b99"}

// WriteSVG draws predicted against measured times on logarithmic axes: a dot for each row in the colour of its
// accelerator, the diagonal, and lines 25 % above and below.
func WriteSVG(to io.Writer, rows []Compared) error {
	var names []string
	for i := range rows {
		names = append(names, rows[i].Accelerator)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" `+
		`font-size="12" fill="#808080" role="img">`+"\n<title>Predicted against measured times of %d configurations"+
		"</title>\n", 2*side+gap+margin+8, side+2*margin+8, len(rows))
	for i, name := range names {
		x := margin + 90*i
		fmt.Fprintf(&b, `<circle cx="%d" cy="12" r="4" fill="%s"/><text x="%d" y="16">`, x+4, colour(i), x+12)
		escape(&b, name)
		b.WriteString("</text>\n")
	}
	for i, p := range []struct {
		name  string
		times func(*Compared) (predicted, measured float64)
	}{
		{"TPOT", func(c *Compared) (float64, float64) { return c.TPOT, c.Row.TPOT.Value() }},
		{"TTFT", func(c *Compared) (float64, float64) { return c.TTFT, c.Row.TTFT.Value() }},
	} {
		square(&b, p.name, margin+i*(side+gap), rows, names, p.times)
	}
	b.WriteString("</svg>\n")
	_, err := to.Write(b.Bytes())
	return err
}

func colour(i int) string { return colours[i%len(colours)] }

func escape(b *bytes.Buffer, text string) {
	b.WriteString(strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text))
}

// square draws one square whose left edge is at x.
func square(b *bytes.Buffer, name string, x int, rows []Compared, names []string,
	times func(*Compared) (predicted, measured float64)) {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range rows {
		predicted, measured := times(&rows[i])
		low, high = min(low, predicted, measured), max(high, predicted, measured)
	}
	if len(rows) == 0 {
		low, high = 1, 10
	}
	low, high = math.Log10(max(low, 1e-6)/1.2), math.Log10(max(high, 1e-5)*1.2)
	at := func(ms float64) float64 {
		return math.Round(10*side*(math.Log10(max(ms, 1e-6))-low)/(high-low)) / 10
	}
	top := margin / 2
	fmt.Fprintf(b, `<g transform="translate(%d %d)"><path d="M0 0v%dh%d" fill="none" stroke="#808080"/>`+"\n", x, top,
		side, side)
	line := func(factor float64, dash string) {
		from, to := math.Pow(10, low), math.Pow(10, high)
		if factor > 1 {
			to /= factor
		} else {
			from /= factor
		}
		fmt.Fprintf(b, `<path d="M%g %gL%g %g" stroke="#808080"%s/>`+"\n", at(from), side-at(from*factor), at(to),
			side-at(to*factor), dash)
	}
	line(1, "")
	line(1.25, ` stroke-dasharray="4 3"`)
	line(0.75, ` stroke-dasharray="4 3"`)
	for e := math.Ceil(low); e <= high; e++ {
		v := math.Pow(10, e)
		fmt.Fprintf(b, `<text x="%g" y="%d" text-anchor="middle">%g</text><text x="-6" y="%g" text-anchor="end">%g`+
			"</text>\n", at(v), side+16, v, side-at(v)+4, v)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">measured %s, ms</text>`+
		`<text transform="translate(-36 %d)rotate(-90)" text-anchor="middle">predicted %s, ms</text>`+"\n",
		side/2, side+34, name, side/2, name)
	for n, accelerator := range names {
		fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="4" stroke-linecap="round" stroke-opacity=".7" d="`,
			colour(n))
		for i := range rows {
			if rows[i].Accelerator == accelerator {
				predicted, measured := times(&rows[i])
				fmt.Fprintf(b, "M%g %gh0", at(measured), math.Round(10*(side-at(predicted)))/10)
			}
		}
		b.WriteString("\"/>\n")
	}
	b.WriteString("</g>\n")
}
