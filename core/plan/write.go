package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// Write prints a plan as YAML, or as JSON. Fields that are zero are left out; of the servers of one Deployment the
// first has the engine of all.
func Write(w io.Writer, p *Plan, asJSON bool) error {
	text, err := json.MarshalIndent(tree(reflect.ValueOf(p)), "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if !asJSON {
		var n yaml.Node
		if err := yaml.Unmarshal(text, &n); err != nil {
			return err
		}
		plain(&n)
		var out bytes.Buffer
		e := yaml.NewEncoder(&out)
		e.SetIndent(2)
		if err := e.Encode(&n); err != nil {
			return err
		}
		text = out.Bytes()
	}
	_, err = w.Write(text)
	return err
}

// plain has JSON written as people write YAML.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plain(c)
	}
}

// fields are a mapping in the order of a struct's fields.
type fields []field

type field struct {
	name  string
	value any
}

// MarshalJSON writes the fields in their order.
func (f fields) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, x := range f {
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(fmt.Appendf(out, "%q:", x.name), value...)
	}
	return append(out, '}'), nil
}

// tree is a value as it is printed: fields, lists, texts and numbers. Nil is left out.
func tree(v reflect.Value) any {
	if !v.IsValid() || v.IsZero() && v.Kind() != reflect.Struct {
		return nil
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case machine.Time:
		return x.Duration().String()
	case []byte:
		return string(x)
	case error:
		return x.Error()
	case *connector.Connector:
		return x.Name
	case *workload.Config:
		return load(x)
	case *Front:
		return fields{{"gateway", x.Served.Namespace + "/" + x.Served.Name},
			{"port", x.Port.Number}, {"pools", x.Pools}}
	case Tokens:
		if x.JSON == nil {
			return "four bytes are one token"
		}
		return "the model's own tokenizer"
	case interface{ Source() string }: // of step times
		return x.Source()
	case fmt.Stringer:
		if text := x.String(); !v.IsZero() {
			return text
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return tree(v.Elem())
	case reflect.Struct:
		return structure(v)
	case reflect.Slice, reflect.Array:
		return list(v)
	case reflect.Map:
		return mapping(v)
	case reflect.Func, reflect.Chan:
		return nil
	}
	return v.Interface()
}

func structure(v reflect.Value) any {
	var out fields
	for _, f := range reflect.VisibleFields(v.Type()) {
		if !f.IsExported() || len(f.Index) > 1 {
			continue
		}
		if x := tree(v.FieldByIndex(f.Index)); x != nil {
			out = append(out, field{lower(f.Name), x})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func list(v reflect.Value) any {
	out := make([]any, 0, v.Len())
	for i := range v.Len() {
		x := tree(v.Index(i))
		if s, ok := v.Index(i).Interface().(Server); ok && i > 0 &&
			v.Index(i-1).Interface().(Server).Deployment == s.Deployment {
			x = slices.DeleteFunc(x.(fields), func(f field) bool { return f.name == "engine" })
		}
		out = append(out, x)
	}
	return out
}

func mapping(v reflect.Value) any {
	out := map[string]any{}
	for _, k := range v.MapKeys() {
		out[fmt.Sprint(k.Interface())] = tree(v.MapIndex(k))
	}
	var in fields
	for _, k := range slices.Sorted(maps.Keys(out)) {
		in = append(in, field{k, out[k]})
	}
	return in
}

// load is how many requests there are and when they come; what they are made of is drawn as they are sent.
func load(c *workload.Config) any {
	out := fields{{"requests", c.Requests}, {"model", c.Model}}
	add := func(name string, given bool, value any) {
		if given {
			out = append(out, field{name, value})
		}
	}
	add("recorded", c.Recorded != nil, len(c.Recorded))
	add("rate", c.Rate > 0 && (c.Recorded == nil || c.Untimed), c.Rate)
	add("until", c.Until > 0, c.Until.Duration().String())
	add("stream", c.Stream, true)
	add("maxTokens", c.MaxTokens > 0, c.MaxTokens)
	add("sharedBeginnings", len(c.Prefixes) > 0, len(c.Prefixes))
	var classes []any
	for i := range c.Classes {
		x := &c.Classes[i]
		classes = append(classes, fields{{"name", x.Config.Class}, {"share", x.Share}})
	}
	add("classes", classes != nil, classes)
	return out
}

// lower is a field's name in JSON: kvRole for KVRole, http2 for HTTP2.
func lower(name string) string {
	r := []rune(name)
	for i := range r {
		if !unicode.IsUpper(r[i]) || i > 0 && i+1 < len(r) && unicode.IsLower(r[i+1]) {
			break
		}
		r[i] = unicode.ToLower(r[i])
	}
	return string(r)
}
