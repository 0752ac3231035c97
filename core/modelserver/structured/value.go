package structured

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// value is a JSON value that keeps its members in order: texts have theirs in
// the schema's.
type value struct {
	kind  byte // { [ " 0 t f n
	keys  []string
	vals  []*value // members, or elements
	text  string   // of a string
	lit   string   // of a number
	spend func(int) bool
}

// maxDepth bounds how deeply a schema, a regular expression or a grammar is
// nested.
const maxDepth = 200

func parseValue(raw []byte, spend func(int) bool) (*value, error) {
	if !spend(valueWork * len(raw)) {
		return nil, tooMuch
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readValue(d, spend, 0)
	if err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("expected one JSON value")
	}
	return v, nil
}

// firstValue is the JSON value that a text begins with, as it stands there.
func firstValue(text string) (json.RawMessage, error) {
	d := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	err := d.Decode(&raw)
	return json.RawMessage(text[:d.InputOffset()]), err
}

// valueWork is what reading one byte of a schema takes.
const valueWork = 8

func readValue(d *json.Decoder, spend func(int) bool, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	v := &value{spend: spend}
	switch t := t.(type) {
	case json.Delim:
		v.kind = byte(t)
		for d.More() {
			if t == '{' {
				key, err := d.Token()
				if err != nil {
					return nil, err
				}
				v.keys = append(v.keys, key.(string))
			}
			kid, err := readValue(d, spend, depth+1)
			if err != nil {
				return nil, err
			}
			v.vals = append(v.vals, kid)
		}
		_, err = d.Token()
	case string:
		v.kind, v.text = '"', t
	case json.Number:
		v.kind, v.lit = '0', t.String()
	case bool:
		v.kind = 'f'
		if t {
			v.kind = 't'
		}
	default:
		v.kind = 'n'
	}
	return v, err
}

// get is a member; nil where there is none. Of several by one name the last
// counts.
func (v *value) get(key string) *value {
	if v == nil || v.kind != '{' {
		return nil
	}
	v.spend(len(v.keys))
	for i := len(v.keys) - 1; i >= 0; i-- {
		if v.keys[i] == key {
			return v.vals[i]
		}
	}
	return nil
}

// is tells whether v is there and of a kind.
func (v *value) is(kind byte) bool { return v != nil && v.kind == kind }

// append appends it as JSON, as texts are spaced.
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

// without is an object without some of its members.
func (v *value) without(keys ...string) *value {
	out := &value{kind: '{', spend: v.spend}
	for i, k := range v.keys {
		if !slices.Contains(keys, k) {
			out.keys, out.vals = append(out.keys, k), append(out.vals, v.vals[i])
		}
	}
	return out
}

func (v *value) set(key string, kid *value) {
	if i := slices.Index(v.keys, key); i >= 0 {
		v.vals[i] = kid
		return
	}
	v.keys, v.vals = append(v.keys, key), append(v.vals, kid)
}
