package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // the archive
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/internal/packed"
)

//go:embed site.zip
var archive []byte

// files has page and third_party.
var files = packed.Open(archive)

// asset is one file of the page, compressed, under a URL that contains the file's hash.
type asset struct {
	name       string // in the repository, such as page/app.js
	path, kind string // the URL's path, and the media type
	plain, zip []byte
}

// bare maps the module names of third-party libraries to their files.
var bare = map[string]string{
	"preact":       "third_party/preact-11.2.0/preact.mjs",
	"preact/hooks": "third_party/preact-11.2.0/hooks.mjs",
	"htm":          "third_party/htm-3.1.1/htm.module.js",
	"uplot":        "third_party/uplot-1.6.32/uPlot.esm.js",
}

// kinds are the media types of the files that are served. Files of other kinds are not served.
var kinds = map[string]string{".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// site holds all files of the page.
type site struct {
	assets map[string]*asset // by URL path
	index  []byte
	policy string // the content security policy
	hash   string // of all files
}

// theSite builds the site once, from the embedded files. It fails only after a mistake in the repository, which the
// first test finds.
var theSite = sync.OnceValue(func() *site {
	s := &site{assets: map[string]*asset{}}
	byName, all := map[string]*asset{}, sha256.New()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	must(fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if kind := kinds[path.Ext(name)]; err == nil && !d.IsDir() && kind != "" {
			plain, err := fs.ReadFile(files, name)
			must(err)
			all.Write(plain)
			byName[name] = &asset{name: name, kind: kind, plain: plain, zip: compress(plain)}
		}
		return err
	}))
	s.hash = hex.EncodeToString(all.Sum(nil))[:16]
	for name, a := range byName { // modules import each other by relative paths
		a.path = "/" + s.hash + "/" + name
		s.assets[a.path] = a
	}
	imports := map[string]string{}
	for name, file := range bare {
		imports[name] = byName[file].path
	}
	importMap, err := json.Marshal(map[string]any{"imports": imports})
	must(err)
	text, err := fs.ReadFile(files, "page/index.html")
	must(err)
	var preload strings.Builder // without it, the browser requests each module only after it has read its importer
	for _, a := range s.modules() {
		if a.name != bare["uplot"] { // imported when the first plot is shown
			fmt.Fprintf(&preload, `<link rel="modulepreload" href="%s">`, a.path)
		}
	}
	for _, x := range [][2]string{{"{{preload}}", preload.String()}, {"{{base}}", "/" + s.hash},
		{"{{imports}}", string(importMap)}, {"{{uplot.css}}", byName["third_party/uplot-1.6.32/uPlot.min.css"].path}} {
		text = bytes.ReplaceAll(text, []byte(x[0]), []byte(x[1]))
	}
	s.index = text
	s.policy = policy("'self' " + hashOf(importMap))
	return s
})

// policy returns a content security policy that allows the page's own files, and scripts from the given sources.
func policy(scripts string) string {
	return "default-src 'none'; script-src " + scripts +
		"; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'"
}

// hashOf returns the source expression that allows one inline script or style.
func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func compress(plain []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // writing to memory cannot fail
	}
	return b.Bytes()
}

// modules returns the page's scripts. Each script comes after those that it imports.
func (s *site) modules() (list []*asset) {
	byName := map[string]*asset{}
	for _, a := range s.assets {
		byName[a.name] = a
	}
	done := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if a := byName[name]; a != nil && !done[name] {
			done[name] = true
			for _, from := range a.imports() {
				add(from)
			}
			list = append(list, a)
		}
	}
	add("page/app.js")
	return list
}

// imports returns the files that a script imports.
func (a *asset) imports() (out []string) {
	for specifier, file := range bare {
		for _, quote := range []string{`"`, `'`} {
			for _, how := range []string{"from", "from ", "import("} {
				if strings.Contains(string(a.plain), how+quote+specifier+quote) {
					out = append(out, file)
				}
			}
		}
	}
	slices.Sort(out)
	for line := range strings.Lines(string(a.plain)) {
		if _, from, ok := strings.Cut(line, ` from "./`); ok && strings.HasPrefix(line, "import ") {
			from, _, _ = strings.Cut(from, `"`)
			out = append(out, path.Join(path.Dir(a.name), from))
		}
	}
	return out
}

// refusal returns an HTML page that says why the requested page is not shown.
func refusal(title, text string) []byte {
	return fmt.Appendf(nil, "<!doctype html><html lang=en><meta "+
		"charset=utf-8><title>%s</title><h1>%[1]s</h1><p>%s</p></html>\n", html.EscapeString(title),
		html.EscapeString(text))
}
