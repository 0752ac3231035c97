package parse

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"
)

// object is the top level of a JSON body with its values unread. Of duplicate
// keys the last counts.
type object map[string]json.RawMessage

// readObject reads a JSON object. The errors are encoding/json's, with the
// type that the real EPP decodes into, since clients see the text.
func readObject(body []byte) (object, error) {
	if json.Valid(body) && bytes.TrimLeft(body, " \t\r\n")[0] == '{' {
		return shallow(body), nil
	}
	var m object // encoding/json reports the mistake in any other body
	err := json.Unmarshal(body, &m)
	if t := (*json.UnmarshalTypeError)(nil); errors.As(err, &t) && t.Field == "" {
		return nil, errors.New("json: cannot unmarshal " + t.Value + " into Go value of type map[string]interface {}")
	}
	return m, err
}

// shallow reads the top level of a valid JSON object without looking into its
// values: the hot path of every request.
func shallow(body []byte) object {
	m := object{}
	gjson.Parse(view(body)).ForEach(func(key, value gjson.Result) bool {
		m[key.String()] = body[value.Index : value.Index+len(value.Raw)]
		return true
	})
	return m
}

// view returns b as a string without a copy, for readers that keep nothing of it; gjson.ParseBytes copies it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// text returns a key's value if it is a string, or empty.
func (m object) text(key string) string {
	v := m[key]
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) {
		return string(v[1 : len(v)-1])
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

func (m object) isTrue(key string) bool { return string(m[key]) == "true" }

// limit returns the first key that holds a whole number of at least zero, or -1.
func (m object) limit(keys ...string) int64 {
	for _, k := range keys {
		var f float64
		if v := m[k]; len(v) == 0 || v[0] == '"' || string(v) == "null" || json.Unmarshal(v, &f) != nil {
			continue
		}
		if f < 0 || f != math.Trunc(f) || f > math.MaxInt64/2 {
			continue
		}
		return int64(f)
	}
	return -1
}

// optionalText reads a string that may be absent or null; another type is an error.
func (m object) optionalText(key string) (string, error) {
	v := m[key]
	if len(v) == 0 || string(v) == "null" {
		return "", nil
	}
	var s string
	err := json.Unmarshal(v, &s)
	return s, err
}

// canonical marshals any JSON value with sorted keys, as the token estimate
// of structured prompts counts it.
func canonical(v json.RawMessage) []byte {
	var x any
	if json.Unmarshal(v, &x) != nil {
		return nil
	}
	b, err := json.Marshal(x)
	if err != nil {
		return nil
	}
	return b
}

func isNull(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }
