package archtest

import (
	"flag"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "link the documents' numbers in docs, and lower the baselines in testdata")

// generatedPages are written from the program's help, which cannot have links.
var generatedPages = map[string]bool{"docs/cli.md": true, "docs/flags.md": true}

// page is one Markdown file of the root, docs or examples.
type page struct {
	path  string
	lines []string
	code  []bool // whether a line belongs to a fenced or indented block
}

func pages(t *testing.T) (out []page) {
	t.Helper()
	err := walk(func(name string) error {
		dir := path.Dir(name)
		if !strings.HasSuffix(name, ".md") || dir != "." && dir != "docs" && dir != "examples" {
			return nil
		}
		p, fenced := page{path: name, lines: strings.Split(read(t, name), "\n")}, false
		for _, line := range p.lines {
			fence := strings.HasPrefix(strings.TrimSpace(line), "```")
			p.code = append(p.code, fenced || fence || strings.HasPrefix(line, "    "))
			fenced = fenced != fence
		}
		out = append(out, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("found %d pages", len(out))
	}
	return out
}

var (
	heading   = regexp.MustCompile(`^#+ +(.*)$`)
	link      = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]*)\)`)
	unspoken  = regexp.MustCompile("`[^`]*`|" + link.String()) // inline code and links
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchor returns the name that GitHub gives a heading.
func anchor(heading string) string {
	text := link.ReplaceAllStringFunc(heading, func(l string) string { return l[1:strings.Index(l, "]")] })
	return strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
}

// Every link in the documentation leads to a file, and to a heading if it names one. docs/README.md leads to each page.
func TestLinksLead(t *testing.T) {
	anchors := map[string]bool{}
	for _, p := range pages(t) {
		for i, line := range p.lines {
			if m := heading.FindStringSubmatch(line); m != nil && !p.code[i] {
				anchors[p.path+"#"+anchor(m[1])] = true
			}
		}
	}
	listed := map[string]bool{"docs/README.md": true}
	for _, p := range pages(t) {
		for i, line := range p.lines {
			if p.code[i] {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], ":") { // a link to another site
					continue
				}
				file, name, named := strings.Cut(m[1], "#")
				file = path.Join(path.Dir(p.path), file)
				if strings.HasPrefix(m[1], "#") {
					file = p.path
				}
				listed[file] = listed[file] || p.path == "docs/README.md"
				if _, err := os.Stat(filepath.Join(root, file)); err != nil {
					t.Errorf("%s:%d: the link %s leads to no file", p.path, i+1, m[1])
				} else if named && strings.HasSuffix(file, ".md") && !anchors[file+"#"+name] {
					t.Errorf("%s:%d: the link %s leads to no heading of %s", p.path, i+1, m[1], file)
				}
			}
		}
	}
	for _, p := range pages(t) {
		if path.Dir(p.path) == "docs" && !listed[p.path] {
			t.Errorf("%s: docs/README.md has no link to it; expected a line under Reference or Internals", p.path)
		}
	}
}

var (
	documents = regexp.MustCompile(`\b[Dd]ocuments? 00[0-4](?:(?:, | and | or | to )00[0-4])*`)
	numbered  = regexp.MustCompile(`(?:[Dd]ocuments? )?(00[0-4])`)
)

// linked returns a line in which every document's number is a link.
func linked(line, to string) string {
	var out strings.Builder
	plain := func(text string) {
		out.WriteString(documents.ReplaceAllStringFunc(text, func(named string) string {
			return numbered.ReplaceAllString(named, "[$0]("+to+"#document-$1)")
		}))
	}
	end := 0
	for _, at := range unspoken.FindAllStringIndex(line, -1) {
		plain(line[end:at[0]])
		out.WriteString(line[at[0]:at[1]])
		end = at[1]
	}
	plain(line[end:])
	return out.String()
}

// "Document 003" means nothing to a newcomer unless it is a link to the document's description.
func TestDocumentsAreLinked(t *testing.T) {
	for _, p := range pages(t) {
		if generatedPages[p.path] || p.path == "CHANGELOG.md" {
			continue
		}
		to := map[string]string{".": "docs/documents.md", "docs": "documents.md"}[path.Dir(p.path)]
		if p.path == "docs/documents.md" {
			to = ""
		}
		changed := false
		for i, line := range p.lines {
			if p.code[i] || heading.MatchString(line) {
				continue
			}
			if with := linked(line, to); with != line {
				if !*update {
					t.Errorf("%s:%d: a document's number is not a link; "+
						"run go test ./internal/archtest -run TestDocumentsAreLinked -update", p.path, i+1)
				}
				p.lines[i], changed = with, true
			}
		}
		if changed && *update {
			err := os.WriteFile(filepath.Join(root, p.path), []byte(strings.Join(p.lines, "\n")), 0o644)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDocumentsBecomeLinks(t *testing.T) {
	for line, want := range map[string]string{
		"As document 003 has it.": "As [document 003](d.md#document-003) has it.",
		"Documents 002 and 003 print them; document 003's.": "[Documents 002](d.md#document-002) and " +
			"[003](d.md#document-003) print them; [document 003](d.md#document-003)'s.",
		"`document 003` and [document 003](d.md#document-003)": "`document 003` and [document 003](d.md#document-003)",
		"port 003": "port 003",
	} {
		if got := linked(line, "d.md"); got != want {
			t.Errorf("%q becomes %q, expected %q", line, got, want)
		}
	}
}
