package structured

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// value is a JSON value that keeps its members in order, because generated texts have them in the schema's order.
type value struct {
	kind  byte // { [ " 0 t f n
	keys  []string
	vals  []*value // members, or elements
	text  string   // of a string
	lit   string   // of a number
	spend func(int)
}

// maxDepth limits how deeply a schema, a regular expression or a grammar is nested.
const maxDepth = 200

// value returns a JSON value.
func (b *builder) value(raw []byte) *value {
	if !gjson.ValidBytes(raw) {
		panic(refusal("expected one JSON value"))
	}
	v := new(value)
	v.read(gjson.ParseBytes(raw), b.spend, 0)
	return v
}

// valueWork is the work of parsing one byte of a schema, for each value that contains it.
const valueWork = 4

// copyWork is the work of copying a member or an element.
const copyWork = 32

func (v *value) read(from gjson.Result, spend func(int), depth int) {
	if depth > maxDepth {
		panic(refusal("nested more than %d deep", maxDepth))
	}
	spend(valueWork * len(from.Raw))
	v.spend = spend
	switch v.kind = from.Raw[0]; {
	case from.IsObject(), from.IsArray():
		object := from.IsObject()
		if v.vals = make([]*value, 0, 4); object {
			v.keys = make([]string, 0, 4)
		}
		from.ForEach(func(key, kid gjson.Result) bool {
			if object {
				v.keys = append(v.keys, key.String())
			}
			x := new(value)
			v.vals = append(v.vals, x)
			x.read(kid, spend, depth+1)
			return true
		})
	case from.Type == gjson.String:
		v.text = from.String()
	case from.Type == gjson.Number:
		v.kind, v.lit = '0', from.Raw
	}
}

// firstValue returns the JSON value at the beginning of a text, unchanged.
func firstValue(text string) (json.RawMessage, error) {
	d := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	err := d.Decode(&raw)
	return json.RawMessage(text[:d.InputOffset()]), err
}

// get returns a member; nil if there is none. If several have the name, the last one counts.
func (v *value) get(key string) *value {
	if v == nil || v.kind != '{' {
		return nil
	}
	v.spend(2 * len(v.keys))
	for i := len(v.keys) - 1; i >= 0; i-- {
		if v.keys[i] == key {
			return v.vals[i]
		}
	}
	return nil
}

// is reports whether v exists and has a kind.
func (v *value) is(kind byte) bool { return v != nil && v.kind == kind }

// append appends the value as JSON, with the spacing of generated texts.
func (v *value) append(b []byte) []byte {
	switch v.kind {
	case '{', '[':
		b = append(b, v.kind)
		for i, kid := range v.vals {
			if i > 0 {
				b = append(b, ", "...)
			}
			if v.kind == '{' {
				b = append(append(b, quote(v.keys[i])...), ": "...)
			}
			b = kid.append(b)
		}
		return append(b, v.kind+2) // the bracket that closes it
	case '"':
		return append(b, quote(v.text)...)
	case '0':
		return append(b, v.lit...)
	case 't':
		return append(b, "true"...)
	case 'f':
		return append(b, "false"...)
	}
	return append(b, "null"...)
}

// compact returns a value as JSON without blanks.
func (v *value) compact() string {
	var b bytes.Buffer
	_ = json.Compact(&b, v.append(nil)) // always valid: it was parsed from JSON
	return b.String()
}

// without returns an object without some of its members.
func (v *value) without(keys ...string) *value {
	v.spend(copyWork * len(v.keys))
	out := &value{kind: '{', spend: v.spend, keys: make([]string, 0, len(v.keys)+1),
		vals: make([]*value, 0, len(v.keys)+1)}
	for i, k := range v.keys {
		if !slices.Contains(keys, k) {
			out.keys, out.vals = append(out.keys, k), append(out.vals, v.vals[i])
		}
	}
	return out
}

func (v *value) set(key string, kid *value) {
	v.spend(2 * len(v.keys))
	if i := slices.Index(v.keys, key); i >= 0 {
		v.vals[i] = kid
		return
	}
	v.keys, v.vals = append(v.keys, key), append(v.vals, kid)
}
