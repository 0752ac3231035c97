package schema

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/scenario"
)

// What windtunnel reads, an editor that follows the schema accepts too; what
// the schema can see to be wrong, it refuses.
func TestSchemaAgreesWithParse(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(reflected(t)))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("scenario.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("scenario.json")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text []byte) error {
		converted, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(converted, &v); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v)
	}
	_, embedded := scenario.Builtin("")
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string][]byte{scenario.EmbeddedFile: embedded}
	for _, file := range files {
		if texts[file], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range texts {
		if err := validate(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, change := range [][2]string{
		{"flow: held", "flow: hold"}, {"replicas: 3", "replicas: 0"}, {"replicas: 3", "replicas: three"},
		{"stream: true", "stream: maybe"},
		{"concurrency: 1", "concurency: 1"}, {"kind: Scenario", "kind: Pod"}, {"- name: default", "- {}"},
		{"seed: 1", "seed: -1"},
	} {
		text := []byte(strings.Replace(string(embedded), change[0], change[1], 1))
		if change[1] == "- {}" {
			text = []byte("apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools: [{}]\n")
		}
		if bytes.Equal(text, embedded) {
			t.Fatalf("the embedded scenario has no %q", change[0])
		}
		if validate(text) == nil {
			t.Errorf("the schema accepts %q", change[1])
		}
		if _, err := scenario.Parse("x.yaml", text); err == nil {
			t.Errorf("the reader accepts %q", change[1])
		}
	}
}

// An editor shows a field's text and its section's together: they say nothing
// twice.
func TestSchemaSaysNothingTwice(t *testing.T) {
	var schema struct {
		Defs map[string]struct{ Description string } `json:"$defs"`
	}
	if err := json.Unmarshal(reflected(t), &schema); err != nil || len(schema.Defs) < 10 {
		t.Fatal(err, len(schema.Defs))
	}
	seen := map[string]string{}
	for name, def := range schema.Defs {
		if strings.HasPrefix(def.Description, name+" ") {
			t.Errorf("%s is described by its own name: %s", name, def.Description)
		}
		if other := seen[def.Description]; def.Description != "" && other != "" {
			t.Errorf("%s and %s have the same text", name, other)
		}
		seen[def.Description] = name
	}
}

var update = flag.Bool("update", false, "write the schema")

// The checked-in schemas describe what the types say; -update writes them.
func TestSchemaIsCheckedIn(t *testing.T) {
	const file, packedFile = "../../docs/scenario.schema.json", "scenario.schema.json.gz"
	want := reflected(t)
	if *update {
		var out bytes.Buffer
		w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if err == nil {
			_, err = w.Write(want)
		}
		if err := errors.Join(err, w.Close(), os.WriteFile(packedFile, out.Bytes(), 0o644),
			os.WriteFile(file, want, 0o644)); err != nil {
			t.Fatal(err)
		}
		packed = out.Bytes()
	}
	readable, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := JSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, have := range map[string][]byte{file: readable, packedFile: embedded} {
		if d := cmp.Diff(string(have), string(want)); d != "" {
			t.Errorf("%s: run go test ./scenario/schema -update (-checked in, +of the types):\n%s", name, d)
		}
	}
}

// Every field of every section has words for editors.
func TestEveryFieldIsDescribed(t *testing.T) {
	comments := fieldComments(t)
	var walk func(reflect.Type)
	walk = func(st reflect.Type) {
		if st.Kind() == reflect.Slice {
			st = st.Elem()
		}
		if !scenario.IsSection(st) {
			return
		}
		for _, f := range strictyaml.Fields(st) {
			if comments[st.Name()+"."+f.StructField.Name] == "" {
				t.Errorf("%s.%s has no comment", st.Name(), f.Name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[scenario.Scenario]())
}
