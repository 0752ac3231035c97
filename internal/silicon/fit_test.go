package silicon

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// predicted returns the rows that come with windtunnel, as its own calibration predicts them.
func predicted(t *testing.T) ([]Row, []Compared) {
	rows, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	servers, err := Servers(rows)
	if err != nil {
		t.Fatal(err)
	}
	c := latency.BuiltinCalibration()
	all, err := Predict(context.Background(), servers, &c)
	if err != nil {
		t.Fatal(err)
	}
	return rows, all
}

// The built-in parameters are as good as docs/silicon.md says: the page has the errors of all rows. `make silicon`
// writes them, with those of fits that have not seen all rows, which takes minutes.
func TestPage(t *testing.T) {
	const page = "../../docs/silicon.md"
	rows, all := predicted(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	x := Compare(all)
	if err := x.WriteMarkdown(&table); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("WINDTUNNEL_SILICON") == "" {
		if !bytes.Contains(text, table.Bytes()) {
			t.Errorf("%s has other errors than these; run make silicon:\n%s", page, table.Bytes())
		}
		if x.All.TPOT.Median > 0.11 || x.All.TTFT.Median > 0.22 || x.All.TPOT.P90 > 0.35 || x.All.Tokens.Median > 0.1 ||
			x.Ranked*100 < x.Pairs*95 {
			t.Errorf("the fit is worse than it must be: %+v, %d of %d pairs", x.All, x.Ranked, x.Pairs)
		}
		return
	}
	c := &Calibrated{Prior: latency.PriorCalibration(), Fitted: &Fitted{Calibration: latency.BuiltinCalibration()},
		All: all}
	s, err := NewStudy(context.Background(), rows, c, func(what string) { fmt.Println(what) })
	if err != nil {
		t.Fatal(err)
	}
	text = between(t, text, "seen", table.String())
	var unseen strings.Builder
	unseen.WriteString("| left out | " + strings.Join(heads, " | ") + " |\n|---|" + strings.Repeat("--:|", len(heads)) +
		"\n")
	line := func(name string, g Group) {
		fmt.Fprintf(&unseen, "| %s | %s |\n", name, strings.Join(g.cells(), " | "))
	}
	for _, g := range Kinds(s.Models, func(r *Row) string { return r.Model }) {
		line("model: "+g.Name, g)
	}
	for _, g := range Kinds(s.Accelerators, func(r *Row) string { return r.Accelerator }) {
		line("accelerator: "+g.Name, g)
	}
	line("a fifth of the groups", Compare(s.Folds).All)
	text = between(t, text, "unseen", unseen.String())
	var plot bytes.Buffer
	if err := WriteSVG(&plot, all); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{page: text, "../../docs/silicon.svg": plot.Bytes(),
		"../../core/modelserver/latency/measured/data/errors.csv": []byte(errorTable(s.All, s.Models,
			s.Accelerators))} {
		if err := os.WriteFile(name, text, 0o644); err != nil { //nolint:gosec // files of the repository
			t.Fatal(err)
		}
	}
}

// between replaces the part of a page between two comments.
func between(t *testing.T, page []byte, name, text string) []byte {
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	re := regexp.MustCompile("(?s)" + begin + ".*?" + end)
	if !re.Match(page) {
		t.Fatalf("the page has no part %s", name)
	}
	return re.ReplaceAllLiteral(page, []byte(begin+"\n"+text+"\n"+end))
}

// Three results of one machine make a calibration that predicts the others of that machine better.
func TestThreeResultsHelp(t *testing.T) {
	rows, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	prior := latency.BuiltinCalibration()
	for name, of := range map[string]string{"a mixture of experts": "MiniMax-M2.5 fp8, H200, TP 8",
		"a dense model": "Llama-3.1-70B fp4, B200, TP 1"} {
		t.Run(name, func(t *testing.T) {
			var three, rest []Row
			for i := range rows {
				if rows[i].Configuration() == of {
					if len(three) < 3 {
						three = append(three, rows[i])
					} else {
						rest = append(rest, rows[i])
					}
				}
			}
			c, err := Calibrate(context.Background(), three, &prior, func(int, string) {})
			if err != nil {
				t.Fatal(err)
			}
			servers, err := Servers(rest)
			if err != nil {
				t.Fatal(err)
			}
			off := func(c *latency.Calibration) float64 {
				all, err := Predict(context.Background(), servers, c)
				if err != nil {
					t.Fatal(err)
				}
				g := Compare(all).All
				return g.TPOT.Median + g.TTFT.Median/2
			}
			if before, after := off(&prior), off(&c.Calibration); after >= before {
				t.Errorf("with three results the error is %.3f, without them %.3f", after, before)
			} else {
				t.Logf("%.3f before, %.3f after", before, after)
			}
		})
	}
}
