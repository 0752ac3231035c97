package diagnose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// facts reads an input of lines such as "queue = 31.2 pool-3 / at 2s", "said 12 the connection was closed" and "missed
// an expectation". Arguments are requests=N, conversational, apart and excused.
func facts(t *testing.T, d *datadriven.TestData) *Facts {
	f := &Facts{Conversational: d.HasArg("conversational"), Disaggregated: d.HasArg("apart"),
		Excused: d.HasArg("excused")}
	d.ScanArgs(t, "requests", &f.Requests)
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSpace(line)
		if text, is := strings.CutPrefix(line, "said "); is {
			n, text, _ := strings.Cut(text, " ")
			count, err := strconv.Atoi(n)
			if err != nil {
				d.Fatalf(t, "%q: %v", line, err)
			}
			f.Complaints = append(f.Complaints, Complaint{Text: text, Count: count})
			continue
		}
		if text, is := strings.CutPrefix(line, "missed: "); is {
			f.Symptoms = append(f.Symptoms, text)
			continue
		}
		name, rest, _ := strings.Cut(line, " = ")
		rest, when, _ := strings.Cut(rest, " / ")
		value, where, _ := strings.Cut(rest, " ")
		v, err := strconv.ParseFloat(value, 64)
		if _, known := words[Name(name)]; err != nil || !known {
			d.Fatalf(t, "%q: an unknown figure, or %v", line, err)
		}
		f.Figures = append(f.Figures, Figure{Name(name), v, where, when})
	}
	return f
}

func written(d *Diagnosis) string {
	var b strings.Builder
	list := func(label string, texts []string) {
		for _, text := range texts {
			fmt.Fprintf(&b, "%s %s\n", label, text)
		}
	}
	list("symptom", d.Symptoms)
	leaves := func(label string, findings []Finding) {
		for i := range findings {
			x := &findings[i]
			fmt.Fprintf(&b, "%s %s, %s (%s; %s)\n", label, x.Leaf, x.Sure, x.Why, x.Source)
			list("  by", x.Evidence)
			for _, t := range x.Tried {
				fmt.Fprintf(&b, "  played %s: %v, %s\n", t.Remedy, t.Helps, t.Effect)
			}
		}
	}
	leaves("leaf", d.Findings)
	leaves("or", d.Alternatives)
	list("note", d.Notes)
	return b.String()
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var f *Facts
		var diagnosis *Diagnosis
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "of":
				f = facts(t, d)
				diagnosis = Of(f)
			case "walk":
				return strings.Join(diagnosis.Walk, "\n") + "\n"
			case "try": // with the facts after each leaf's remedy
				after := facts(t, d)
				if err := diagnosis.Try(f, func(l Leaf) ([]Trial, error) {
					if !d.HasArg(string(l)) {
						return []Trial{Compare("nothing", f, f)}, nil
					}
					return []Trial{Compare("nothing", f, f), Compare("the remedy", f, after)}, nil
				}); err != nil {
					t.Fatal(err)
				}
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return written(diagnosis)
		})
	})
}

// Every leaf has a description with a source, and every entry that maps words to a leaf names one.
func TestCauses(t *testing.T) {
	seen := map[Leaf]bool{}
	for _, c := range Causes() {
		if seen[c.Leaf] || c.Text == "" || len(c.Remedies) == 0 || !strings.HasPrefix(c.Source, "document 00") {
			t.Errorf("%+v", c)
		}
		seen[c.Leaf] = true
	}
	for _, s := range slices.Concat(said, weak) {
		if _, known := CauseOf(s.leaf); !known || len(s.words) == 0 {
			t.Errorf("%v", s)
		}
	}
	if _, known := CauseOf("elsewhere"); known {
		t.Error("an unknown leaf has a description")
	}
}
