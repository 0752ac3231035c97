package program

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/lab"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/parts"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// repository is where README and docs are.
var repository, _ = filepath.Abs("../../..")

// documented returns the commands in README and docs, each once: lines of code blocks and inline code that begin with
// windtunnel.
func documented(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(files) < 10 {
		t.Fatal(err, files)
	}
	seen := map[string]bool{}
	for _, file := range append(files, filepath.Join(repository, "README.md"),
		filepath.Join(repository, "CONTRIBUTING.md"), filepath.Join(repository, "examples", "README.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(
			"(?m)^ *(?:bin/)?windtunnel (.*)$|`windtunnel ([^`]+)`").FindAllStringSubmatch(string(text), -1) {
			command := strings.TrimSpace(m[1] + m[2])
			if cut, _, found := strings.Cut(command, "  #"); found {
				command = strings.TrimSpace(cut)
			}
			seen[command] = true
		}
	}
	out := make([]string, 0, len(seen))
	for c := range seen {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// words splits a command line like a shell, up to a pipe, a redirection or another command.
func words(line string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|([^\s'"]+)`).FindAllStringSubmatch(line, -1) {
		w := m[1] + m[2] + m[3]
		if files, _ := filepath.Glob(m[3]); strings.Contains(m[3], "*") {
			out = append(out, files...)
			continue
		}
		if m[3] == "|" || m[3] == ">" || m[3] == ">>" || m[3] == "&&" || m[3] == "||" || strings.HasPrefix(m[3], "#") {
			break
		}
		out = append(out, w)
	}
	return out
}

// Every command in README and docs parses. The test runs those that need no socket, no time and no other program.
func TestDocumentedCommands(t *testing.T) {
	all := documented(t)
	t.Chdir(t.TempDir())
	ran := 0
	for name, from := range map[string]string{"mine.yaml": "examples/ci.yaml", "my.yaml": "examples/ci.yaml",
		"scenario.yaml": "examples/ci.yaml"} {
		text, err := os.ReadFile(filepath.Join(repository, from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"other.yaml": "plugins: [{type: queue-scorer}]\n",
		"tuned.yaml":  "plugins: [{type: queue-scorer}]\n",
		"my-epp.yaml": "plugins: [{type: queue-scorer}]\n",
		"t.jsonl":     `{"timestamp": 0, "input_length": 9, "output_length": 9, "hash_ids": [1]}` + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := "cmd/windtunnel/program/testdata/script/your-cluster.txtar"
	cluster, err := txtar.ParseFile(filepath.Join(repository, script))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range cluster.Files {
		if err := os.WriteFile(f.Name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(repository, "examples"), "examples"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.ndjson.gz", "run.ndjson.gz", "sim.ndjson.gz", "yesterday.ndjson.gz"} {
		args := []string{"sim", "examples/kv-aware.yaml", "--record", name, "-n", "20"}
		if code := run(args, testOutside(&bytes.Buffer{})); code != 0 {
			t.Fatalf("%s cannot be made: exit code %d", name, code)
		}
	}
	for _, command := range all {
		args := words(command)
		if len(args) < 2 || strings.HasSuffix(command, ".") || strings.Count(command, "'")%2 > 0 ||
			strings.Contains(command, "…") || strings.Contains(command, "...") ||
			slices.ContainsFunc(args,
				func(a string) bool { return strings.Trim(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZ:/.") == "" }) {
			continue // a command's name, a sentence, a part of a line, or a form to fill in
		}
		help := args[0] == "help" || slices.Contains(args, "--help")
		if !help {
			o := testOutside(&bytes.Buffer{})
			parser, err := newParser(&cli{}, o)
			if err != nil {
				t.Fatal(err)
			}
			if lab.Of(args) != nil { // kubectl's flags
				continue
			}
			_, err = parser.Parse(parts.Args(args, o))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("windtunnel %s: %v", command, err)
				continue
			}
		}
		still := help || slices.Contains([]string{"sim", "scenario", "config", "completion"}, args[0]) ||
			args[0] == "replay" && !slices.Contains(args, "--speed") || args[0] == "modelserver" &&
			slices.Contains(args, "--list")
		if args[0] == "explain" {
			still = slices.ContainsFunc(args, func(a string) bool { return strings.HasSuffix(a, ".gz") })
		}
		if !still || slices.ContainsFunc(args, func(a string) bool {
			return a == "--ui" || a == "--prometheus" || strings.HasPrefix(a, "epp.ndjson") || len(a) > 5 &&
				strings.Trim(a, "0123456789") == ""
		}) {
			continue
		}
		if ran++; !nightly.Each(ran, 16) {
			continue
		}
		var out bytes.Buffer
		// An incident may cost requests, which is exit code 1.
		if code := run(args, testOutside(&out)); code > 1 || code == 1 && !strings.Contains(command, "incidents=") {
			t.Errorf("windtunnel %s: exit code %d\n%.2000s", command, code, out.String())
		}
	}
	if ran < 20 {
		t.Errorf("only %d commands were run", ran)
	}
}

// figures match the parts of an output that differ between two runs: times, ports, sizes.
var figures = regexp.MustCompile(`[0-9][0-9.,]*(µs|ms|s)?\b`)

// shape returns a text without its figures, with its lines sorted, because the steps of different hops may come in
// another order.
func shape(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, strings.Join(strings.Fields(figures.ReplaceAllString(line, "N")), " "))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shown returns the block of a page that begins with a line.
func shown(t *testing.T, page, first string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```\n"+first)
	block, _, closed := strings.Cut(rest, "\n```")
	if !found || !closed {
		t.Fatalf("%s has no block that begins with %s", page, first)
	}
	return block
}

// README shows some of the steps of a first run, except for figures.
func TestReadmeShowsARun(t *testing.T) {
	want := shape(shown(t, "README.md", "$ make run\n"))
	var out bytes.Buffer
	if code := run([]string{"run"}, testOutside(&out)); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	got := shape(out.String())
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("README shows a line that the run does not print:\n%s\n%s", line, out.String())
		}
	}
	if len(want) < 8 {
		t.Errorf("README shows %d lines", len(want))
	}
}

// The tour shows the output of the long simulation, to the digit.
func TestTourShowsASimulation(t *testing.T) {
	t.Parallel()
	command := "sim -n 10000 -c 1000 --replicas 100 --prefill 100ms..30s"
	want := shown(t, "docs/README.md", "$ windtunnel "+command+"\nsummary    10,000")
	var out bytes.Buffer
	if code := run(strings.Fields(command), testOutside(&out)); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	_, got, _ := strings.Cut(out.String(), "summary    10,000")
	if d := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got)); d != "" {
		t.Errorf("the tour (-) shows another thing than the simulation (+) prints:\n%s", d)
	}
}

// concepts.md compares both times of an example. The virtual one is the simulation's output, to the digit.
func TestConceptsShowVirtualTime(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "concepts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| span | | live, through Envoy | virtual |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var out bytes.Buffer
	if code := run([]string{"sim", filepath.Join(repository, "examples", "plain.yaml")}, testOutside(&out)); code != 0 {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	span, compared := "", 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue
		}
		if name := strings.TrimSpace(cells[1]); name != "" {
			span = name
		}
		column, ok := map[string]int{"p50": 2, "p90": 3, "p99": 4}[strings.TrimSpace(cells[2])]
		found := regexp.MustCompile(`(?m)^  ` + span + ` +\d.*$`).FindString(out.String())
		if !ok || found == "" {
			continue
		}
		compared++
		if want := strings.ReplaceAll(strings.TrimSpace(cells[4]), " ", ""); strings.Fields(found)[column] != want {
			t.Errorf("the page says that %s %s is %s, and the simulation %s", span, strings.TrimSpace(cells[2]), want,
				found)
		}
	}
	if compared != 10 {
		t.Errorf("%d figures of the page's table were compared\n%s\n%s", compared, table, out.String())
	}
}
