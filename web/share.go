package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/report/recording"
)

// Bounds of a shared file. A run with more requests is sampled: requests that did not complete, the slowest ones, and
// every second, third … of the others.
const (
	sharedRows  = 20_000
	sharedSteps = 2_000    // requests with all their steps
	sharedBytes = 24 << 20 // of these steps
	slowest     = 200
)

// shared counts what a file has of the run.
type shared struct {
	Rows  int `json:"rows"`
	Of    int `json:"of"`
	Steps int `json:"steps"`
}

// copied is a copy of a Book for a file. It is made in pieces, so that events never wait for the whole copy.
type copied struct {
	rows      []row
	of        int // requests in the run
	completed int32
	names     []string
	pods      [][2]string
	gauges    []gauge
	notices   []notice
	now       machine.Time
}

// copiedRows is how many rows are copied while events wait.
const copiedRows = 4096

// copy copies the current rows. Steps that were written never change, so the copies may share them.
func (b *Book) copy() (c copied) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.of = b.first + len(b.rows)
	for next := b.first; next < c.of; {
		from := max(next, b.first)
		next = min(from+copiedRows, c.of)
		c.rows = append(c.rows, b.rows[from-b.first:next-b.first]...)
		b.mu.Unlock()
		b.mu.Lock()
	}
	for i := 0; i < len(b.gauges); i += len(b.gauges)/sharedRows + 1 {
		c.gauges = append(c.gauges, b.gauges[i])
	}
	c.completed, c.now = b.name("completed"), b.now
	c.names, c.pods, c.notices = slices.Clone(b.names), slices.Clone(b.pods), slices.Clone(b.notices)
	return c
}

// some returns the indexes of at most so many rows.
func (c *copied) some(most int) []int {
	all := make([]int, len(c.rows))
	for i := range all {
		all[i] = i
	}
	if len(all) <= most {
		return all
	}
	chosen := map[int]bool{}
	for i := range c.rows {
		if c.rows[i].outcome != c.completed && len(chosen) < most/4 {
			chosen[i] = true
		}
	}
	slices.SortFunc(all, func(x, y int) int { return cmp.Compare(c.rows[y].ttft, c.rows[x].ttft) })
	for _, i := range all[:min(slowest, most/4)] {
		chosen[i] = true
	}
	every := len(all)/(most-len(chosen)) + 1
	for i := 0; i < len(all); i += every {
		chosen[i] = true
	}
	return slices.Sorted(maps.Keys(chosen))
}

// write writes the data of a shared file as JSON.
func (b *Book) write(w io.Writer, m *Meta) error {
	metrics := b.measured()
	c := b.copy()
	offline := *m
	offline.Do, offline.WhatIf, offline.Gateway = nil, false, ""
	meta, err := json.Marshal(offline)
	if err != nil {
		return err
	}
	rows := c.some(sharedRows)
	out := append([]byte(`{"meta":`), meta...)
	out = append(out, `,"frames":[{"now":`...)
	out = appendMicros(out, c.now)
	out = list(out, "names", c.names, appendName)
	out = list(append(out, `,"namesFrom":0`...), "pods", c.pods, appendPod)
	n := -1 // rows in a file are numbered without gaps
	out = list(out, "rows", rows, func(out []byte, i *int) []byte {
		n++
		return appendRow(out, n, &c.rows[*i])
	})
	out = list(out, "gauges", c.gauges, func(out []byte, g *gauge) []byte { return g.append(out) })
	out = list(out, "notices", c.notices, func(out []byte, x *notice) []byte { return append(out, x.text...) })
	if metrics != nil {
		out = append(append(out, `,"metrics":`...), metrics...)
	}
	out = append(out, `,"ended":true}],"steps":{`...)
	steps, size := 0, 0
	for _, i := range c.some(sharedSteps) {
		r := &c.rows[i]
		if size += len(r.steps); size > sharedBytes || r.dropped {
			continue
		}
		if steps++; steps > 1 {
			out = append(out, ',')
		}
		out = append(append(append(recording.AppendString(out, r.id), `:[`...), r.steps...), ']')
		if _, err := w.Write(out); err != nil {
			return err
		}
		out = out[:0]
	}
	share, err := json.Marshal(shared{len(rows), c.of, steps})
	if err != nil {
		return err
	}
	_, err = w.Write(append(append(append(out, `},"share":`...), share...), '}'))
	return err
}

// starting loads the modules of a shared file. It creates a URL for each module and puts it into the modules that
// import it.
const starting = `
const at = {};
for (const [name, source, imports] of JSON.parse(document.getElementById("modules").textContent)) {
  const text = source.replace(/(\bfrom\s*|\bimport\()["']([^"']+)["']/g,
    (all, from, what) => imports[what] ? from + '"' + at[imports[what]] + '"' : all);
  at[name] = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
}
import(at["page/app.js"]);
`

// WriteFile writes the page of a run as one self-contained HTML file.
func (s *Server) WriteFile(w io.Writer) error {
	style := ""
	var modules [][]any
	for _, a := range s.site.modules() {
		imports := map[string]string{}
		for name, file := range bare {
			imports[name] = file
		}
		for _, file := range a.imports() {
			imports["./"+path.Base(file)] = file
		}
		modules = append(modules, []any{a.name, string(a.plain), imports})
	}
	for _, a := range s.site.assets {
		if strings.HasSuffix(a.name, ".css") {
			style = string(a.plain) + style
		}
	}
	code, err := json.Marshal(modules) // this escapes <, as needed inside HTML
	if err != nil {
		return err
	}
	policy := "default-src 'none'; script-src " + hashOf([]byte(starting)) + " blob:; style-src " +
		hashOf([]byte(style)) + "; img-src data:; base-uri 'none'; form-action 'none'"
	title := html.EscapeString(s.meta.Load().Scenario)
	if _, err = fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>%s – windtunnel</title><style>%s</style></head>
<body><div id="page"><p class="start">Loading the run…</p></div>
<script type="application/json" id="modules">%s</script>
<script type="application/octet-stream" id="run">`, policy, title, style, code); err != nil {
		return err
	}
	text := base64.NewEncoder(base64.StdEncoding, w)
	packed := gzip.NewWriter(text)
	if err := errors.Join(s.book.write(packed, s.meta.Load()), packed.Close(), text.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `</script>
<script type="module">%s</script></body></html>
`, starting)
	return err
}

// share answers with that file.
func (s *Server) share(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := s.WriteFile(&b); err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="windtunnel.html"`)
	_, _ = w.Write(b.Bytes())
}
