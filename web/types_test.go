package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/whatif"
	"github.com/windtunnel/windtunnel/internal/chromium"
)

var update = flag.Bool("update", false, "write page/columns.js and types/records.d.ts")

// A frame as the page receives it.
type frame struct {
	Meta      *Meta         `json:"meta,omitempty"`
	Now       int           `json:"now"`
	Gap       int           `json:"gap,omitempty"`
	Snapshot  *int          `json:"snapshot,omitempty"`
	First     *int          `json:"first,omitempty"`
	Names     []string      `json:"names,omitempty"`
	NamesFrom int           `json:"namesFrom,omitempty"`
	Rows      [][]any       `json:"rows,omitempty"`
	Pods      [][2]string   `json:"pods,omitempty"`
	Gauges    [][]any       `json:"gauges,omitempty"`
	Notices   []event       `json:"notices,omitempty"`
	Metrics   *measurements `json:"metrics,omitempty"`
	Ended     bool          `json:"ended,omitempty"`
}

// An event in the form of a recording. The page adds at, in microseconds, to events that belong to no request.
type event struct {
	Time     float64        `json:"time"`
	Request  string         `json:"request"`
	Attempt  int            `json:"attempt,omitempty"`
	Hop      string         `json:"hop"`
	Step     string         `json:"step"`
	Endpoint string         `json:"endpoint,omitempty"`
	Details  map[string]any `json:"details,omitempty"`
	At       int            `json:"at"`
}

// A file that was shared.
type file struct {
	Meta   Meta               `json:"meta"`
	Frames []frame            `json:"frames"`
	Steps  map[string][]event `json:"steps"`
	Share  shared             `json:"share"`
}

// declared collects the declarations of Go's types for TypeScript.
type declared struct {
	out   map[string]string
	types map[string]reflect.Type
}

// of returns the TypeScript type of a Go type in JSON. A value that Go leaves out when it is empty is never null.
func (d *declared) of(t reflect.Type, omitted bool) string {
	null := " | null"
	if omitted {
		null = ""
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.of(t.Elem(), true) + null
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Interface:
		return "any"
	case reflect.Slice:
		return "Array<" + d.of(t.Elem(), true) + ">" + null
	case reflect.Array:
		return "[" + strings.TrimSuffix(strings.Repeat(d.of(t.Elem(), true)+", ", t.Len()), ", ") + "]"
	case reflect.Map:
		return "Record<string, " + d.of(t.Elem(), true) + ">" + null
	case reflect.Struct:
		return d.declare(t)
	default:
		return "number"
	}
}

// declare declares a struct and returns its name.
func (d *declared) declare(t reflect.Type) string {
	upper := func(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
	name := upper(t.Name())
	if was, taken := d.types[name]; taken && was != t { // another package's
		name = upper(path.Base(t.PkgPath())) + name
	}
	if d.types[name] != nil {
		return name
	}
	d.types[name] = t
	var b strings.Builder
	d.fields(&b, t)
	d.out[name] = "  interface " + name + " {\n" + b.String() + "  }\n"
	return name
}

func (d *declared) fields(b *strings.Builder, t reflect.Type) {
	for f := range fieldsOf(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			d.fields(b, f.Type)
		default:
			omitted, optional := strings.Contains(options, "omitempty"), ""
			if omitted {
				optional = "?"
			}
			text := d.of(f.Type, omitted)
			if t == reflect.TypeFor[frame]() {
				text = map[string]string{"rows": "Array<Row>", "gauges": "Array<GaugeRow>"}[name] + text
				text = strings.TrimSuffix(text, "Array<Array<any>>")
			}
			fmt.Fprintf(b, "    %s%s: %s;\n", name, optional, text)
		}
	}
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

const byWhat = "Written by go test ./web -run TestDeclarations -update.\n"

// The page's modules use the columns of rows and the records that Go writes, by declarations made from Go's own.
func TestDeclarations(t *testing.T) {
	names := append(append([]string{"N", "ID"}, momentNames[:]...), make([]string, len(columns))...)
	for i := range columns {
		names[len(names)-len(columns)+i] = columns[i].name
	}
	var script, row strings.Builder
	script.WriteString("// @ts-check\n// Columns of a row. Moments are in microseconds, the first since the start of " +
		"the run, the others since the first; -1\n// means not yet. " + byWhat)
	for i, name := range names {
		fmt.Fprintf(&script, "export const %s = %d;\n", name, i)
		kind := "number"
		if name == "ID" {
			kind = "string"
		}
		fmt.Fprintf(&row, "%s: %s, ", name, kind)
	}
	fmt.Fprintf(&script, "\n// Bits of the column FLAGS.\nexport const HELD = %d;\nexport const BY_HAND = %d;\n",
		flagHeld, flagByHand)
	d := declared{map[string]string{}, map[string]reflect.Type{}}
	for _, x := range []any{file{}, Part{}, Act{}, picker.Explanation{}, whatif.Question{}, whatif.Answer{}} {
		d.declare(reflect.TypeOf(x))
	}
	declarations := "// Records that Go writes and the page reads. " + byWhat +
		"declare namespace Run {\n  type Row = [" + strings.TrimSuffix(row.String(), ", ") + "];\n" +
		"  type GaugeRow = [at: number, pod: number, waiting: number, running: number, ready: number, kv: number, " +
		"...adapters: string[]];\n"
	for _, name := range slices.Sorted(maps.Keys(d.out)) {
		declarations += d.out[name]
	}
	for file, want := range map[string]string{"page/columns.js": script.String(),
		"types/records.d.ts": declarations + "}\n"} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what Go declares (%v): go test ./web -run TestDeclarations -update", file, err)
		}
	}
}

// typescript is the compiler that checks the page's modules.
var typescript = [3]string{"typescript", "5.9.3",
	"sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw=="}

// tsc finds no mistake in the page's modules. make check-page runs this, where there is a node.
func TestTypes(t *testing.T) {
	if os.Getenv("WINDTUNNEL_TYPES") == "" {
		t.Skip("make check-page runs this")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is missing: the types of the page's modules are not checked")
	}
	text, err := fs.ReadFile(files, "third_party/manifest.json")
	var packages []struct{ Package, Version, Integrity string }
	if err == nil {
		err = json.Unmarshal(text, &packages)
	}
	fetch := func(name, version, integrity string) string {
		dir, failed := chromium.Package(t.Context(), name, version, integrity)
		err = cmp.Or(err, failed)
		return dir
	}
	paths := map[string][]string{}
	for _, p := range packages {
		paths[p.Package] = []string{fetch(p.Package, p.Version, p.Integrity)}
	}
	tsc := fetch(typescript[0], typescript[1], typescript[2]) + "/lib/tsc.js"
	here, failed := os.Getwd()
	if err = cmp.Or(err, failed); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("the types of the page's modules are not checked: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	paths["preact/hooks"] = []string{paths["preact"][0] + "/hooks"}
	config, err := json.Marshal(map[string]any{"include": []string{here + "/page/*.js", here + "/types/*.d.ts"},
		"compilerOptions": map[string]any{"noEmit": true, "checkJs": true, "strict": true,
			"target": "es2022", "module": "esnext", "moduleResolution": "bundler", "skipLibCheck": true,
			"lib": []string{"es2023", "dom", "dom.iterable"}, "types": []string{}, "paths": paths}})
	project := t.TempDir() + "/tsconfig.json"
	if err = cmp.Or(err, os.WriteFile(project, config, 0o600)); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), node, tsc, "-p", project, "--pretty", "false")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// strict decodes a record in which nothing is undeclared.
func strict[T any](t *testing.T, text []byte) (x T) {
	t.Helper()
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&x); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return x
}
