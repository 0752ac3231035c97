package schema

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/limit"
	"github.com/windtunnel/windtunnel/scenario/size"
)

// reflected returns the JSON Schema that the types of package scenario give.
func reflected(t *testing.T) []byte {
	t.Helper()
	comments := fieldComments(t)
	r := jsonschema.Reflector{
		RequiredFromJSONSchemaTags: true,
		ExpandedStruct:             true,
		Anonymous:                  true,
		LookupComment:              func(t reflect.Type, field string) string { return comments[t.Name()+"."+field] },
		Mapper:                     leafSchema,
	}
	s := r.Reflect(&scenario.Scenario{})
	s.Title = "windtunnel scenario"
	s.Required = []string{"apiVersion", "kind", "pools"}
	if p, ok := s.Properties.Get("apiVersion"); ok {
		p.Const = scenario.Version
	}
	if p, ok := s.Properties.Get("kind"); ok {
		p.Const = scenario.Kind
	}
	finish(s, reflect.TypeFor[scenario.Scenario]())
	finished := map[string]bool{}
	for _, t := range sections(reflect.TypeFor[scenario.Scenario]()) {
		if def, ok := s.Definitions[t.Name()]; ok && !finished[t.Name()] {
			finished[t.Name()] = true
			finish(def, t)
		}
	}
	s.Definitions["Pool"].Required = []string{"name"}
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}

// sections returns the types of all mappings below a type.
func sections(t reflect.Type) []reflect.Type {
	var out []reflect.Type
	for _, f := range strictyaml.Fields(t) {
		ft := f.Type
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		if scenario.IsSection(ft) {
			out = append(append(out, ft), sections(ft)...)
		}
	}
	return out
}

// leafSchema returns the schema of a type that is a text in the file, or nil for other types.
func leafSchema(t reflect.Type) *jsonschema.Schema {
	if e, ok := reflect.New(t).Interface().(strictyaml.Enum); ok {
		s := &jsonschema.Schema{Type: "string"}
		for _, v := range e.Values() {
			s.Enum = append(s.Enum, v)
		}
		return s
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+$`}
	case reflect.TypeFor[size.Bytes](), reflect.TypeFor[size.Range](), reflect.TypeFor[limit.Amount](),
		reflect.TypeFor[dist.Dist]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "integer"}}}
	case reflect.TypeFor[limit.Limit](), reflect.TypeFor[limit.Figure]():
		return &jsonschema.Schema{Type: "string", Pattern: `[<>]=`}
	case reflect.TypeFor[scenario.Share]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}}}
	case reflect.TypeFor[scenario.PickerConfig](), reflect.TypeFor[scenario.Manifest]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "object"}}}
	}
	return nil
}

// finish adds limits and defaults to a section's schema.
func finish(s *jsonschema.Schema, t reflect.Type) {
	sample := reflect.New(t)
	scenario.SetDefaults(sample.Elem())
	for _, f := range strictyaml.Fields(t) {
		p, ok := s.Properties.Get(f.Name)
		if !ok {
			continue
		}
		if words, ok := f.Tag.Lookup("oneof"); ok {
			for word := range strings.SplitSeq(words, ",") {
				p.Enum = append(p.Enum, word)
			}
		}
		v := sample.Elem().FieldByIndex(f.Index)
		switch v.Kind() {
		case reflect.Int, reflect.Uint64, reflect.Float64:
			p.Minimum, p.Maximum = json.Number(f.Tag.Get("min")), json.Number(f.Tag.Get("max"))
		case reflect.Slice:
			p.MaxItems = count(f.Tag.Get("max"))
			p.MinItems = count(f.Tag.Get("min"))
		case reflect.Int64, reflect.Struct:
			if p.Description != "" && !scenario.IsSection(f.Type) &&
				f.Type != reflect.TypeFor[scenario.PickerConfig]() &&
				f.Type != reflect.TypeFor[scenario.Manifest]() {
				p.Description += " Takes " + strictyaml.Expected(f.Type, f.Tag) + "."
			}
		}
		if !v.IsZero() && !scenario.IsSection(f.Type) && v.Kind() != reflect.Slice {
			p.Default = defaultValue(v)
		}
	}
}

func defaultValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case interface{ String() string }:
		return x.String()
	case strictyaml.Enum:
		return v.String()
	}
	return v.Interface()
}

func count(text string) *uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// fieldComments returns the doc comments of the sections and their fields, by "Type.Field".
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	sources, err := filepath.Glob("../*.go")
	if err != nil || len(sources) < 10 {
		t.Fatal(err, sources)
	}
	for _, file := range append([]string{"../../core/record/slo.go", "../limit/tune.go"}, sources...) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				// The comment on the field that holds a section says the same as the type's first sentence.
				_, rest, _ := strings.Cut(oneLine(general.Doc.Text()), ". ")
				out[named.Name.Name+"."] = rest
				if s, ok := named.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, name := range f.Names {
							out[named.Name.Name+"."+name.Name] = oneLine(f.Doc.Text())
						}
					}
				}
			}
		}
	}
	return out
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
