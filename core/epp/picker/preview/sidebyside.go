package preview

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/windtunnel/windtunnel/core/epp/picker"
)

// Column is one configuration's decision about a request.
type Column struct {
	Name string // of the configuration
	*picker.Explanation
}

// WriteSideBySide writes several configurations' decisions about one request side by side: the destination, then every
// endpoint's rank and total in the profile that chose. * marks the picked endpoint, and a dash an endpoint that a
// filter removed.
func WriteSideBySide(w io.Writer, columns []Column) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	row := func(name string, cell func(c *Column) string) {
		fmt.Fprint(t, name)
		for i := range columns {
			fmt.Fprint(t, "\t"+cell(&columns[i]))
		}
		fmt.Fprintln(t)
	}
	row("", func(c *Column) string { return c.Name })
	row("went to", func(c *Column) string {
		if c.Error != "" {
			return fmt.Sprintf("nowhere (%d)", c.Status)
		}
		return strings.Join(c.primary().Picked, ", ")
	})
	some := func(value func(c *Column) string) bool {
		return slices.ContainsFunc(columns, func(c Column) bool { return value(&c) != "" })
	}
	optional := func(name string, value func(c *Column) string) {
		if some(value) {
			row(name, value)
		}
	}
	optional("prefill on", func(c *Column) string { return c.Prefill })
	optional("profile", func(c *Column) string { return c.primary().Name })
	optional("tied", func(c *Column) string {
		if n := len(c.primary().Tied); n > 1 {
			return fmt.Sprintf("%d, drawn", n)
		}
		return ""
	})
	for _, name := range endpoints(columns) {
		row("  "+name, func(c *Column) string { return c.cell(name) })
	}
	return t.Flush()
}

// endpoints returns the endpoints of all columns, the first column's best first.
func endpoints(columns []Column) []string {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for i := range columns {
		for _, e := range columns[i].primary().Endpoints {
			add(e.Name)
		}
	}
	for i := range columns {
		for _, e := range columns[i].Candidates {
			add(e)
		}
	}
	return out
}

// primary returns the profile that chose, or the first profile that ran for a refused request.
func (c *Column) primary() picker.ExplainedProfile {
	for _, p := range c.Profiles {
		if p.Primary {
			return p
		}
	}
	if len(c.Profiles) > 0 {
		return c.Profiles[0]
	}
	return picker.ExplainedProfile{}
}

func (c *Column) cell(name string) string {
	for place, e := range c.primary().Endpoints {
		if e.Name == name {
			mark := ""
			if e.Picked {
				mark = " *"
			}
			return fmt.Sprintf("%d. %.4g%s", place+1, e.Total, mark)
		}
	}
	for _, r := range append(slices.Clone(c.Screened), c.primary().Removed...) {
		if slices.Contains(r.Endpoints, name) {
			return "- " + r.By
		}
	}
	return "-"
}
