package picker

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// A table fits between any margins that have room for one scorer and the totals,
// and shows every score once.
func TestTableFitsTheTerminal(t *testing.T) {
	p := ExplainedProfile{Name: "decode",
		Endpoints: []ExplainedEndpoint{{Name: "decode-0", Picked: true, Total: 4.25},
			{Name: "decode-10", Total: 0.125}}}
	for i, name := range []string{"precise-prefix-cache-scorer", "queue-scorer", "kv-cache-utilization-scorer",
		"lora-affinity-scorer"} {
		p.Scorers = append(p.Scorers, ExplainedScorer{Name: name, Weight: float64(i + 1)})
		for e := range p.Endpoints {
			p.Endpoints[e].Raw = append(p.Endpoints[e].Raw, 0.1234+float64(i))
			p.Endpoints[e].Weighted = append(p.Endpoints[e].Weighted, 0.4321*float64(i+1))
		}
	}
	x := Explanation{Profiles: []ExplainedProfile{p}}
	for _, columns := range []int{0, 48, 60, 80, 100, 140, 200} {
		var b strings.Builder
		if err := x.WriteTable(&b, columns); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(b.String(), "profile decode\n")
		for line := range strings.Lines(table) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, " \n")); columns > 0 && n > columns {
				t.Errorf("at %d columns a line has %d: %q", columns, n, line)
			}
		}
		for _, s := range p.Scorers {
			if strings.Count(table, s.Name) != 1 {
				t.Errorf("at %d columns %s is not there once:\n%s", columns, s.Name, table)
			}
		}
		for i := range p.Scorers {
			if n := strings.Count(table,
				fmt.Sprintf("%.4g × %d = %.4g", p.Endpoints[0].Raw[i], i+1, p.Endpoints[0].Weighted[i])); n != 2 {
				t.Errorf("at %d columns score %d is there %d times", columns, i, n)
			}
		}
		if strings.Count(table, "total") != 1 || strings.Count(table, "<- picked") != 1 ||
			strings.Count(table, "0.125") != 1 {
			t.Errorf("at %d columns:\n%s", columns, table)
		}
		if blocks := strings.Count(table, "endpoint "); (blocks > 1) != (columns > 0 && columns < 140) {
			t.Errorf("at %d columns there are %d tables:\n%s", columns, blocks, table)
		}
	}
}
