package experiment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const page = `# One

It takes 5 ms
and 1,000 s.

## More

It takes −3 %.

# Two

It takes 7 ms.
`

const one = `title: one
part: "One"
commands: {a: x}
sections:
  - section: "One"
    always: ["It takes {0: f(a)} ms and {1: f(a, \"y\")} s."]
  - section: "More"
    nightly: ["takes {+1: -f(a) / 2} %"]
`

func read(t *testing.T, text string) Experiment {
	t.Helper()
	all, err := All(fstest.MapFS{"experiments/one.yaml": {Data: []byte(text)},
		"experiments/played.yaml": {Data: []byte("kind: Scenario")}})
	if err != nil || len(all) != 1 {
		t.Fatalf("found %v, %v", all, err)
	}
	return all[0]
}

// Figures are found where the page has them, are measured with each line played once, and get into the page.
func TestMeasure(t *testing.T) {
	e := read(t, one)
	quick, err := e.Figures([]byte(page), true)
	if err != nil || len(quick) != 2 {
		t.Fatalf("quick: %v, %v", quick, err)
	}
	figures, err := e.Figures([]byte(page), false)
	if err != nil || len(figures) != 3 {
		t.Fatalf("found %v, %v", figures, err)
	}
	var played []string
	played1 := make(chan string, 9)
	err = e.Measure(t.Context(), figures, map[string]Play{"f": func(_ context.Context, line string) (any, error) {
		played1 <- line
		return map[string]float64{"x": 12345.4, "x y": 0.25}[line], nil
	}}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	close(played1)
	for line := range played1 {
		played = append(played, line)
	}
	slices.Sort(played)
	if !slices.Equal(played, []string{"x", "x y"}) {
		t.Errorf("played %q", played)
	}
	want := strings.NewReplacer("5 ms", "12,345 ms", "1,000 s", "0.2 s", "−3", "−6,172.7").Replace(page)
	if got := string(Rewrite([]byte(page), figures)); got != want {
		t.Errorf("found\n%s\nexpected\n%s", got, want)
	}
	if got := string(e.Text([]byte(page))); got != page[:strings.Index(page, "# Two")] {
		t.Errorf("the part is %q", got)
	}
}

// Sections that need traces play those of a directory, and sections whose traces it lacks are left out.
func TestLink(t *testing.T) {
	e := read(t, one+"    traces: [a.csv]\n  - {section: Two, traces: [b.csv]}\n")
	cache, dir := t.TempDir(), t.TempDir()
	from := filepath.Join(cache, "traces", "a.csv")
	if err := errors.Join(os.Mkdir(filepath.Dir(from), 0o700),
		os.WriteFile(from, []byte("a trace"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var notes []string
	err := e.Link(func(string) string { return cache }, dir, false, func(text string) { notes = append(notes, text) })
	if err != nil || len(notes) != 2 || notes[0] != from+" is played" ||
		!strings.Contains(notes[1], "b.csv is missing") {
		t.Errorf("found the notes %q, %v", notes, err)
	}
	if len(e.Sections) != 2 || e.Sections[1].Heading != "More" {
		t.Errorf("found the sections %v", e.Sections)
	}
	quick := read(t, one+"    traces: [a.csv]\n")
	if err := quick.Link(nil, dir, true, nil); err != nil || len(quick.Sections) != 1 {
		t.Errorf("quick: found %v and the sections %v", err, quick.Sections)
	}
	text, err := os.ReadFile(filepath.Join(dir, "experiments", "traces", "a.csv"))
	if err != nil || string(text) != "a trace" {
		t.Errorf("found %q, %v", text, err)
	}
}

// Errors name the file, the section and the piece.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(one, `part: "One"`, `part: "Three"`, 1):     `has no part "Three", which experiments/one.yaml names`,
		strings.Replace(one, `section: "More"`, `section: "No"`, 1): `"One" has no section "No"`,
		strings.Replace(one, "It takes", "Takes", 1):                `"One" has 0 places that read "Takes`,
		strings.Replace(one, "{0: f(a)}", "{f(a)}", 1):              "found {f(a)}; expected {DIGITS: EXPRESSION}",
	} {
		e := read(t, text)
		if _, err := e.Figures([]byte(page), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("found %v; expected %s", err, want)
		}
	}
	if _, err := All(fstest.MapFS{"experiments/x.yaml": {Data: []byte("title: x\nwhat: y")}}); err == nil ||
		!strings.Contains(err.Error(), "experiments/x.yaml: ") {
		t.Errorf("an unknown field: %v", err)
	}
	for expression, want := range map[string]string{`f(`: "unexpected token", `"a"`: "found a; expected a number",
		`f("no")`: "not played", `1/0`: "expected a number"} {
		e := Experiment{Name: "one"}
		err := e.Measure(t.Context(), []Figure{{Expression: expression, digits: "0"}}, map[string]Play{
			"f": func(context.Context, string) (any, error) { return nil, errors.New("not played") }}, func() {})
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "experiments/one.yaml: {0: ") {
			t.Errorf("%s: %v", expression, err)
		}
	}
}
