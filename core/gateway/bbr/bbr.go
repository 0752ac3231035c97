// Package bbr is body-based routing (document 001, docs/documents.md): what reads
// the model that a request asks for out of its body, ahead of routing, and says to
// which pool that leads. live/bbr does it on the wire, and virtual time asks for the
// pool of a model alone.
package bbr

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// The headers that routes match, under the real one's names. Clients' own are taken
// out.
const (
	HeaderModel     = "x-gateway-model-name"
	HeaderBaseModel = "x-gateway-base-model-name"
)

// Target is where a model leads.
type Target struct {
	// Pool is the number of the pool, from 0.
	Pool int
	// Base is the model that the pool serves: the one asked for, or that of an adapter.
	Base string
}

// Find says where a model leads; false where nobody serves it.
type Find func(model string) (Target, bool)

// Table is a Find from a list of models.
type Table map[string]Target

// Find is where a model leads.
func (t Table) Find(model string) (Target, bool) {
	to, ok := t[model]
	return to, ok
}

// Router is how requests are routed by their bodies.
type Router struct {
	// Fields are what is copied out of the body.
	Fields []Field
	// Base is the header for the base of the body's model; "" is none.
	Base string
	// Find says where a model leads.
	Find Find
	// Closed answers 404 for a model that Find does not know. Otherwise its base is
	// said to be empty, and the request passes.
	Closed bool
	// Strict answers 400 for a body that is no JSON object. Otherwise it passes:
	// whoever serves it says what is wrong with it.
	Strict bool
}

// Field is a field of the body that becomes a header.
type Field struct {
	Name   string `json:"fieldName"`
	Header string `json:"headerName"`
	// Required answers 400 for a body without the field; otherwise the header is not set.
	Required bool `json:"required"`
}

// Closed is the router of several pools that know all models among them: both
// headers, and 404 for a model that none of them serves.
func Closed(find Find) Router {
	return Router{Fields: []Field{{Name: "model", Header: HeaderModel}}, Base: HeaderBaseModel, Find: find,
		Closed: true}
}

// Headers are those that the router sets. Clients' own are taken out.
func (r *Router) Headers() []string {
	var out []string
	for _, f := range r.Fields {
		out = append(out, strings.ToLower(f.Header))
	}
	if r.Base != "" {
		out = append(out, strings.ToLower(r.Base))
	}
	return out
}

// Decision is what becomes of a request: headers for the routes, or an answer.
type Decision struct {
	Set    header.List
	Answer *apierror.Error
}

// Decide reads a request's body.
func (r *Router) Decide(body []byte) Decision {
	var d Decision
	refuse := func(status int, format string, args ...any) Decision {
		return Decision{Answer: &apierror.Error{Status: status, Message: fmt.Sprintf(format, args...)}}
	}
	var want []string
	for _, f := range r.Fields {
		want = append(want, f.Name)
	}
	values, ok := read(body, append(want, "model"))
	if !ok && r.Strict {
		return refuse(400, "failed to parse request body: it is no JSON object")
	}
	for _, f := range r.Fields {
		v := text(values[f.Name])
		if v == "" && f.Required {
			return refuse(400, "the request body has no %s; expected a JSON object with one, which says where the "+
				"request goes", f.Name)
		}
		if v != "" {
			d.Set = append(d.Set, header.Header{Name: strings.ToLower(f.Header), Value: v})
		}
	}
	model := name(values)
	if model == "" || r.Find == nil {
		return d
	}
	to, known := r.Find(model)
	if !known && r.Closed {
		return Decision{Answer: Unknown(model)}
	}
	if r.Base != "" {
		d.Set = append(d.Set, header.Header{Name: strings.ToLower(r.Base), Value: to.Base})
	}
	return d
}

// Routed answers a stream's Decide: with the headers that the router sets and without clients' own of these names, or
// with an error in this style. Nobody looks at the response.
func (r *Router) Routed(e *stream.Effect, style stream.ErrorStyle) stream.Decision {
	out := stream.Decision{Leave: true, Remove: r.Headers()}
	if e.End { // there is no body
		return out
	}
	d := r.Decide(e.Body)
	out.Set = d.Set
	out.Remove = slices.DeleteFunc(out.Remove, func(name string) bool { _, set := d.Set.Lookup(name); return set })
	if d.Answer != nil {
		a := style.Answer(d.Answer)
		out.Answer, out.Reason = &a, d.Answer.Message
	}
	return out
}

// Unknown is the answer to a request for a model that no pool serves.
func Unknown(model string) *apierror.Error {
	if len(model) > 256 {
		model = strings.ToValidUTF8(model[:256], "") + "…"
	}
	return &apierror.Error{Status: 404, Message: fmt.Sprintf("The model `%s` does not exist.", model)}
}

// read are the values of a JSON object's fields, the last of a name that is there
// twice, as the picker and model servers read it; false where the body is none.
func read(body []byte, names []string) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	found := map[string]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil, false
		}
		if name, _ := key.(string); slices.Contains(names, name) {
			found[name] = value
		}
	}
	if _, err := d.Token(); err != nil { // it is cut off
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF { // it goes on
		return nil, false
	}
	return found, true
}

// text is a field's value as a header carries it; "" where it cannot, or there is
// none.
func text(value json.RawMessage) string {
	var out any
	if json.Unmarshal(value, &out) != nil {
		return ""
	}
	s, is := out.(string)
	switch out.(type) {
	case bool, float64:
		s, is = string(value), true
	}
	if !is || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ""
	}
	return s
}

// name is the model of a body's fields: a text, or nobody serves it.
func name(values map[string]json.RawMessage) string {
	v := values["model"]
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return text(v)
}
