package disagg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// object is a JSON object. Numbers are kept as they were written, so that an
// integer above 2^53 stays what it is.
type object map[string]any

var errNoObject = errors.New("expected a JSON object")

// parseObject reads one JSON object and nothing behind it.
func parseObject(data []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var o object
	if err := d.Decode(&o); err != nil {
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
	return o, nil
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

// integer is a whole number, and whether there is one.
func (o object) integer(key string) (int, bool) {
	n, ok := o[key].(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return int(i), err == nil
}

// first is the first object of a list.
func (o object) first(key string) object {
	list, _ := o[key].([]any)
	if len(list) == 0 {
		return nil
	}
	m, _ := list[0].(map[string]any)
	return m
}
