// Command site writes the documentation as HTML pages: README.md, CONTRIBUTING.md, CHANGELOG.md, examples/README.md and
// docs/*.md, each beside the other as in the repository. It writes nothing where a link leads to no file or no heading,
// or where docs/README.md lists a page nowhere. Arguments are the repository and the directory of the site, which it
// replaces.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// source is where links lead that name a file of the repository which the site does not have.
const source = "https://github.com/windtunnel/windtunnel/blob/main/"

//go:embed page.html
var layout string

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: site REPOSITORY DIRECTORY")
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// page is one Markdown file.
type page struct {
	// path is relative to the repository, and to the site with another ending.
	path, title string
	text        []byte
	root        ast.Node
	ids         ids
}

// out returns the path of the page in the site. A README becomes its directory's index.
func (p *page) out() string {
	dir, name := path.Split(strings.TrimSuffix(p.path, ".md"))
	if name == "README" {
		name = "index"
	}
	return dir + name + ".html"
}

// ids are the anchors of a page, which GitHub makes of the headings in the same way.
type ids map[string]bool

var notAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// Generate returns the anchor of a heading, with a number from the second heading of the same words on.
func (i ids) Generate(value []byte, _ ast.NodeKind) []byte {
	words := strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(string(value)), ""), " ", "-")
	id := words
	for n := 1; i[id]; n++ {
		id = fmt.Sprintf("%s-%d", words, n)
	}
	i[id] = true
	return []byte(id)
}

// Put notes an anchor.
func (i ids) Put(value []byte) { i[string(value)] = true }

// site is all pages by their paths, and the mistakes in them.
type site struct {
	repository string
	pages      map[string]*page
	files      map[string]bool // images and the like, which the site has as they are
	problems   []error
}

func write(repository, dir string) error {
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/README.md"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || found == nil {
			return errors.Join(err, fmt.Errorf("%s has no %s; expected the repository", repository, pattern))
		}
		paths = append(paths, found...)
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(
		parser.WithAutoHeadingID()))
	s := &site{repository: repository, pages: map[string]*page{}, files: map[string]bool{}}
	for _, file := range paths {
		p, err := read(markdown, repository, file)
		if err != nil {
			return err
		}
		s.pages[p.path] = p
	}
	menu, err := s.menu()
	if err != nil {
		return err
	}
	written := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		p := s.pages[name]
		s.link(p)
		if written[p.out()], err = s.render(markdown, p, menu); err != nil {
			return err
		}
	}
	for name := range s.files {
		if written[name], err = os.ReadFile(filepath.Join(repository, name)); err != nil {
			return err
		}
	}
	if s.problems != nil {
		return errors.Join(s.problems...)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for name, text := range written {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%d pages in %s\n", len(s.pages), filepath.Join(dir, "index.html"))
	return nil
}

// read parses one file.
func read(markdown goldmark.Markdown, repository, file string) (*page, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(repository, file)
	if err != nil {
		return nil, err
	}
	p := &page{path: filepath.ToSlash(rel), text: content, ids: ids{}}
	p.root = markdown.Parser().Parse(text.NewReader(content), parser.WithContext(
		parser.NewContext(parser.WithIDs(p.ids))))
	for n := p.root.FirstChild(); n != nil && p.title == ""; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			p.title = plain(h, content)
		}
	}
	return p, nil
}

// plain returns the words of a node.
func plain(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, enter bool) (ast.WalkStatus, error) { // never fails
		if t, ok := n.(*ast.Text); ok && enter {
			out.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// links calls a function with each link and image below a node.
func links(n ast.Node, each func(n ast.Node, to *[]byte)) {
	_ = ast.Walk(n, func(n ast.Node, enter bool) (ast.WalkStatus, error) { // never fails
		switch l := n.(type) {
		case *ast.Link:
			if enter {
				each(l, &l.Destination)
			}
		case *ast.Image:
			if enter {
				each(l, &l.Destination)
			}
		}
		return ast.WalkContinue, nil
	})
}

// section is a part of the navigation.
type section struct {
	Name  string
	Pages []*page
}

// menu returns the navigation. The lists of docs/README.md have the order of reference and internals.
func (s *site) menu() ([]section, error) {
	tour := s.pages["docs/README.md"]
	if tour == nil {
		return nil, fmt.Errorf("%s has no docs/README.md; expected the lists of pages there", s.repository)
	}
	listed := map[string]bool{}
	add := func(to *section, names ...string) {
		for _, name := range names {
			if p := s.pages[name]; p != nil && !listed[name] {
				listed[name] = true
				to.Pages = append(to.Pages, p)
			}
		}
	}
	menu := []section{{Name: "Tour"}, {Name: "Concepts"}, {Name: "How to"}, {Name: "Reference"}, {Name: "Internals"}}
	add(&menu[0], "README.md", "docs/README.md")
	add(&menu[1], "docs/concepts.md")
	add(&menu[2], "docs/how-to.md", "docs/troubleshooting.md", "examples/README.md")
	for i, at := range menu {
		inside := false
		for n := tour.root.FirstChild(); n != nil; n = n.NextSibling() {
			if h, ok := n.(*ast.Heading); ok {
				inside = plain(h, tour.text) == at.Name
			} else if inside && n.Kind() == ast.KindList {
				links(n, func(_ ast.Node, to *[]byte) {
					name, _, _ := strings.Cut(string(*to), "#")
					add(&menu[i], path.Join("docs", name))
				})
			}
		}
	}
	add(&menu[4], "CONTRIBUTING.md", "CHANGELOG.md")
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		if !listed[name] {
			s.problems = append(s.problems, fmt.Errorf("docs/README.md: %s is in no list; expected a line under "+
				"Reference or Internals", name))
		}
	}
	return menu, nil
}

// link makes the links of a page lead to the site's pages and files, and others to the repository's source.
func (s *site) link(p *page) {
	links(p.root, func(n ast.Node, to *[]byte) {
		file, name, named := strings.Cut(string(*to), "#")
		if strings.Contains(file, ":") { // another site
			return
		}
		at, bad := p.path, ""
		if file != "" {
			at = path.Join(path.Dir(p.path), file)
		}
		target, stat := s.pages[at], error(nil)
		if target == nil {
			_, stat = os.Stat(filepath.Join(s.repository, at))
		}
		switch {
		case stat != nil:
			bad = "no file"
		case target != nil && named && !target.ids[name]:
			bad = "no heading of " + at
		case target == p:
			return
		case target != nil:
			*to = []byte(relative(p.out(), target.out()))
			if named {
				*to = append(*to, "#"+name...)
			}
		case path.Dir(at) == "docs":
			s.files[at] = true
		default:
			*to = []byte(source + at)
		}
		if bad != "" {
			line := 1 + bytes.Count(p.text[:max(0, n.Pos())], []byte("\n"))
			s.problems = append(s.problems, fmt.Errorf("%s:%d: the link %s leads to %s", p.path, line, *to, bad))
		}
	})
}

// relative returns the link from one page of the site to another.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(from, "/")) + to
}

// render returns the page as HTML, with the navigation.
func (s *site) render(markdown goldmark.Markdown, p *page, menu []section) ([]byte, error) {
	var body, out bytes.Buffer
	if err := markdown.Renderer().Render(&body, p.text, p.root); err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	page, err := template.New(p.path).Funcs(template.FuncMap{
		"link":    func(to *page) string { return relative(p.out(), to.out()) },
		"title":   func(to *page) string { return to.title },
		"current": func(to *page) bool { return to == p },
	}).Parse(layout)
	if err != nil {
		return nil, err
	}
	// The repository's own pages, in which the renderer leaves out HTML.
	err = page.Execute(&out, map[string]any{"Title": p.title, "Menu": menu, "Body": template.HTML(body.String())})
	return out.Bytes(), err
}
