package web

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
)

// How much of a run is in a shared file: of more requests those that did not complete,
// the slowest, and of the others one in two, in three …
const (
	sharedRows  = 20_000
	sharedSteps = 2_000    // requests with all their steps
	sharedBytes = 24 << 20 // of these
	slowest     = 200
)

// shared says what a file has of the run.
type shared struct {
	Rows  int `json:"rows"`
	Of    int `json:"of"`
	Steps int `json:"steps"`
}

// some chooses rows, at most so many, of those that are kept.
func (b *Book) some(most int) []int {
	all := make([]int, len(b.rows))
	for i := range all {
		all[i] = i
	}
	if len(all) <= most {
		return all
	}
	good := b.name("completed")
	chosen := map[int]bool{}
	for i := range b.rows {
		if b.rows[i].outcome != good && len(chosen) < most/4 {
			chosen[i] = true
		}
	}
	slices.SortFunc(all, func(x, y int) int { return int(min(1, max(-1, b.rows[y].ttft-b.rows[x].ttft))) })
	for _, i := range all[:min(slowest, most/4)] {
		chosen[i] = true
	}
	every := len(all)/(most-len(chosen)) + 1
	for i := 0; i < len(all); i += every {
		chosen[i] = true
	}
	out := make([]int, 0, len(chosen))
	for i := range b.rows {
		if chosen[i] {
			out = append(out, i)
		}
	}
	return out
}

// whole is what a shared file has of a run, as JSON.
func (b *Book) whole(m *Meta) ([]byte, error) {
	metrics := b.measured()
	b.mu.Lock()
	defer b.mu.Unlock()
	told := *m
	told.Do, told.WhatIf, told.Gateway = nil, false, ""
	meta, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	rows := b.some(sharedRows)
	out := append([]byte(`{"meta":`), meta...)
	out = append(out, `,"frames":[{"now":`...)
	out = appendMicros(out, b.now)
	out = list(out, "names", b.names, func(out []byte, name *string) []byte { return appendText(out, *name) })
	out = append(out, `,"namesFrom":0`...)
	numbers := make([]int, 0, len(rows))
	for n := range rows { // a file's rows have numbers of their own, without gaps
		numbers = append(numbers, n)
	}
	out = list(out, "rows", numbers, func(out []byte, n *int) []byte { return b.appendRow(out, *n, &b.rows[rows[*n]]) })
	every := len(b.gauges)/sharedRows + 1
	var gauges []gauge
	for i := 0; i < len(b.gauges); i += every {
		gauges = append(gauges, b.gauges[i])
	}
	out = list(out, "gauges", gauges, func(out []byte, g *gauge) []byte { return g.append(out) })
	out = list(out, "notices", b.notices, func(out []byte, x *notice) []byte { return append(out, x.text...) })
	if metrics != nil {
		out = append(append(out, `,"metrics":`...), metrics...)
	}
	out = append(out, `,"ended":true}],"steps":{`...)
	steps, size := 0, 0
	for _, i := range b.some(sharedSteps) {
		r := &b.rows[i]
		if size += len(r.steps); size > sharedBytes || r.dropped {
			continue
		}
		if steps++; steps > 1 {
			out = append(out, ',')
		}
		out = append(append(append(appendText(out, r.id), `:[`...), r.steps...), ']')
	}
	share, err := json.Marshal(shared{len(rows), len(b.rows) + b.first, steps})
	if err != nil {
		return nil, err
	}
	return append(append(append(out, `},"share":`...), share...), '}'), nil
}

// starting loads the modules of a shared file: each becomes an address of its own, which
// those that import it are given.
const starting = `
const at = {};
for (const [name, source, imports] of JSON.parse(document.getElementById("modules").textContent)) {
  const text = source.replace(/(\bfrom\s*|\bimport\()["']([^"']+)["']/g, (all, from, what) => imports[what] ? from + '"' + at[imports[what]] + '"' : all);
  at[name] = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
}
import(at["page/app.js"]);
`

// WriteFile writes the page of a run as one HTML file that needs nothing else.
func (s *Server) WriteFile(w io.Writer) error {
	data, err := s.book.whole(s.meta.Load())
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
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
	code, err := json.Marshal(modules) // which escapes < as it must
	if err != nil {
		return err
	}
	policy := "default-src 'none'; script-src " + hashOf([]byte(starting)) + " blob:; style-src " + hashOf([]byte(style)) + "; img-src data:; base-uri 'none'; form-action 'none'"
	_, err = fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="%s"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>%s – windtunnel</title><style>%s</style></head>
<body><div id="page"><p class="start">Loading the run…</p></div>
<script type="application/json" id="modules">%s</script>
<script type="application/octet-stream" id="run">%s</script>
<script type="module">%s</script></body></html>
`, policy, html.EscapeString(s.meta.Load().Scenario), style, code, base64.StdEncoding.EncodeToString(packed.Bytes()), starting)
	return err
}

// share sends that file.
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
