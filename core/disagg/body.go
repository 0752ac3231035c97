package disagg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// object is a JSON object. An integer above 2^53 stays what it is.
type object map[string]any

var errNoObject = errors.New("expected a JSON object")

// parseObject reads one JSON object and nothing behind it.
func parseObject(data []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o object
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

// explain is what Go's encoding/json says of a text that is no object, in the
// words in which the real sidecar passes it on.
func explain(data []byte, err error) string {
	var o map[string]any
	if e := json.Unmarshal(data, &o); e != nil {
		return e.Error()
	}
	return err.Error()
}

// canonical writes numbers as the real sidecar does, which reads them as
// float64: 1e3 becomes 1000 and 0.10 becomes 0.1. Only an integer that a
// float64 cannot hold keeps the digits that it came with.
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

// write is the object with its keys sorted, as the real sidecar writes it.
func (o object) write() []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // every value came out of a JSON text, or is one of ours
	}
	return b
}

// with is a copy of the object with some fields set; absent removes one.
func (o object) with(fields object) object {
	out := make(object, len(o)+len(fields))
	for k, v := range o {
		out[k] = v
	}
	for k, v := range fields {
		if v == absent {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

type absence struct{}

// absent as a value in with removes the field.
var absent any = absence{}

func (o object) object(key string) object {
	switch v := o[key].(type) {
	case map[string]any:
		return v
	case object:
		return v
	}
	return nil
}

func (o object) text(key string) string {
	s, _ := o[key].(string)
	return s
}

func (o object) flag(key string) bool {
	b, _ := o[key].(bool)
	return b
}

// integer is a number without its fraction, and whether there is one.
func (o object) integer(key string) (int, bool) {
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

// maxWhole bounds the numbers with a fraction that are read as whole ones.
const maxWhole = 1 << 53

// first is the first object of a list.
func (o object) first(key string) object {
	list, _ := o[key].([]any)
	if len(list) == 0 {
		return nil
	}
	m, _ := list[0].(map[string]any)
	return m
}
