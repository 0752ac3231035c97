package inputlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/openai"
)

// number is a number with all its digits. What is no number in JSON is a text.
type number float64

// odd reports that JSON has no number for n.
func (n number) odd() bool { return math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) }

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if n.odd() {
		return []byte(strconv.Quote(strconv.FormatFloat(float64(n), 'g', -1, 64))), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(string(bytes.Trim(text, `"`)), 64)
	*n = number(v)
	return err
}

// change is the new value of the sample at a place among all of a page. oddChange is one of a value that JSON has no
// number for.
type (
	change    [2]number
	oddChange struct{ change }
)

// MarshalJSON implements json.Marshaler.
func (c oddChange) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `["%d","%v"]`, int(c.change[0]), float64(c.change[1])), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *oddChange) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &c.change) }

// hash stands for what is only compared.
type hash uint64

// MarshalText implements encoding.TextMarshaler.
func (h hash) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(h), 16), nil }

// pairs are names with their values.
type pairs [][2]string

// pairsOf returns headers as pairs.
func pairsOf(list header.List) pairs {
	var out pairs
	for _, h := range list {
		out = append(out, [2]string{h.Name, h.Value})
	}
	return out
}

// headers are a request's or a response's.
type headers struct {
	Headers pairs `json:"headers"`
	Hidden  pairs `json:"hidden,omitempty"` // that may carry credentials, with what stands for these
}

// headersOf returns headers as the log has them. Of those that may carry credentials it has what standIn gives, if that
// is not nil: digests that plug-ins can tell apart. Credentials in the query of a path or an address are left out.
func headersOf(list header.List, standIn func(h header.Header) string) headers {
	x := headers{Headers: make(pairs, 0, len(list))}
	for _, h := range list {
		switch {
		case !header.Secret(h.Name):
			x.Headers = append(x.Headers, [2]string{h.Name, header.Open(h.Value)})
		case standIn == nil:
			x.Hidden = append(x.Hidden, [2]string{h.Name})
		default:
			x.Hidden = append(x.Hidden, [2]string{h.Name, standIn(h)})
		}
	}
	return x
}

// list returns headers as they were, those that are hidden behind the others.
func (x *headers) list() header.List {
	out := make(header.List, 0, len(x.Headers)+len(x.Hidden))
	for _, list := range []pairs{x.Headers, x.Hidden} {
		for _, p := range list {
			out = append(out, header.Header{Name: p[0], Value: p[1]})
		}
	}
	return out
}

// named are values by names, in an order of their own.
type named[V any] []struct {
	name  string
	value V
}

func (n *named[V]) add(name string, value V) {
	*n = append(*n, struct {
		name  string
		value V
	}{name, value})
}

// MarshalJSON implements json.Marshaler.
func (n named[V]) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, x := range n {
		if i > 0 {
			b = append(b, ',')
		}
		value, err := json.Marshal(x.value)
		if err != nil {
			return nil, err
		}
		b = append(append(openai.AppendString(b, x.name), ':'), value...)
	}
	return append(b, '}'), nil
}
