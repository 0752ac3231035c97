// Package jsonobject reads, changes and writes JSON objects as the real routing sidecar does, so that its output is the
// same to the byte.
package jsonobject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
)

// Object is a JSON object. Integers above 2^53 keep all their digits.
type Object map[string]any

var errNoObject = errors.New("expected a JSON object")

// Parse parses one JSON object. Nothing may follow it.
func Parse(data []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o Object
	err := d.Decode(&o)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("unexpected end of JSON input")
		}
		var typed *json.UnmarshalTypeError
		if errors.As(err, &typed) {
			return nil, fmt.Errorf("%w, found a JSON %s", errNoObject, typed.Value)
		}
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("%w, found null", errNoObject)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the JSON object")
	}
	for k, v := range o {
		if o[k], err = canonical(v); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// Explain returns the message of Go's encoding/json for a text that is no object, in the words in which the real
// sidecar passes it on.
func Explain(data []byte, err error) string {
	var o map[string]any
	if e := json.Unmarshal(data, &o); e != nil {
		return e.Error()
	}
	return err.Error()
}

// canonical writes numbers as the real sidecar does, which reads them as float64: 1e3 becomes 1000, and 0.10 becomes
// 0.1. Only an integer that a float64 cannot hold keeps its digits.
func canonical(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case map[string]any:
		for k, e := range v {
			if v[k], err = canonical(e); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range v {
			if v[i], err = canonical(e); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func number(n json.Number) (json.Number, error) {
	s := string(n)
	whole := !strings.ContainsAny(s, ".eE")
	if whole && len(s) < 16 {
		return n, nil
	}
	f, err := n.Float64()
	if err != nil {
		return n, fmt.Errorf("the number %.40s is out of range", s)
	}
	b, err := json.Marshal(f)
	if err != nil || whole && string(b) != s {
		return n, nil
	}
	return json.Number(b), nil
}

// Write returns the object with its keys sorted, as the real sidecar writes it.
func (o Object) Write() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // every value comes from a JSON text or from this program
	}
	return b
}

// With returns a copy of the object with some fields set. A field set to Absent is removed.
func (o Object) With(fields Object) Object {
	out := make(Object, len(o)+len(fields))
	maps.Copy(out, o)
	for k, v := range fields {
		if v == Absent {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

type absence struct{}

// Absent as a value in With removes the field.
var Absent any = absence{}

// Object returns the object in a field, or nil where there is none.
func (o Object) Object(key string) Object {
	switch v := o[key].(type) {
	case map[string]any:
		return v
	case Object:
		return v
	}
	return nil
}

// Text returns the string in a field, or "" where there is none.
func (o Object) Text(key string) string {
	s, _ := o[key].(string)
	return s
}

// Flag returns the boolean in a field, or false where there is none.
func (o Object) Flag(key string) bool {
	b, _ := o[key].(bool)
	return b
}

// Integer returns a number without its fraction, and false where there is none.
func (o Object) Integer(key string) (int, bool) {
	n, ok := o[key].(json.Number)
	if !ok {
		return 0, false
	}
	if i, err := n.Int64(); err == nil {
		return int(i), true
	}
	f, err := n.Float64()
	if err != nil || f < -maxWhole || f > maxWhole {
		return 0, false
	}
	return int(f), true
}

// maxWhole limits the numbers with a fraction that may be read as integers.
const maxWhole = 1 << 53

// First returns the first object of the list in a field.
func (o Object) First(key string) Object {
	list, _ := o[key].([]any)
	if len(list) == 0 {
		return nil
	}
	m, _ := list[0].(map[string]any)
	return m
}
