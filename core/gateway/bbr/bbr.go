// Package bbr implements body-based routing (document 001, docs/documents.md). Ahead of routing, it reads the requested
// model in a request's body and reports the pool that serves the model. live/bbr does this on the wire. Virtual time
// only asks for the pool of a model.
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

// The headers that routes match, under the names of the real router. The router removes the client's own headers of
// these names.
const (
	HeaderModel     = "x-gateway-model-name"
	HeaderBaseModel = "x-gateway-base-model-name"
)

// Target is the pool that serves a model.
type Target struct {
	// Pool is the number of the pool, from 0.
	Pool int
	// Base is the model that the pool serves: the requested one, or the base model of a requested adapter.
	Base string
}

// Find returns the target of a model, and false where no pool serves it.
type Find func(model string) (Target, bool)

// Table is a Find made from a list of models.
type Table map[string]Target

// Find returns the target of a model.
func (t Table) Find(model string) (Target, bool) {
	to, ok := t[model]
	return to, ok
}

// Router configures routing by requests' bodies.
type Router struct {
	// Fields are the fields that the router copies from the body into headers.
	Fields []Field
	// Base is the header for the base model of the body's model; "" is none.
	Base string
	// Find returns the target of a model.
	Find Find
	// Closed makes the router answer 404 for a model that Find does not know. Otherwise it sets an empty base model,
	// and the request passes.
	Closed bool
	// Strict makes the router answer 400 for a body that is no JSON object. Otherwise the body passes, and the model
	// server reports the mistake.
	Strict bool
}

// Field is a field of the body that becomes a header.
type Field struct {
	Name   string `json:"fieldName"`
	Header string `json:"headerName"`
	// Required makes the router answer 400 for a body without the field. Otherwise it does not set the header.
	Required bool `json:"required"`
}

// Closed returns the router for several pools that together know all models: it sets both headers, and answers 404 for
// a model that none of them serves.
func Closed(find Find) Router {
	return Router{Fields: []Field{{Name: "model", Header: HeaderModel}}, Base: HeaderBaseModel, Find: find,
		Closed: true}
}

// Headers returns the headers that the router sets. The router removes the client's own headers of these names.
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

// Decision is the router's result for a request: headers for the routes, or an answer.
type Decision struct {
	Set    header.List
	Answer *apierror.Error
}

// Decide decides by a request's body.
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

// Routed returns the decision for a stream's Decide effect: the router's headers in place of the client's own, or an
// error in this style. Responses pass unread.
func (r *Router) Routed(e *stream.Effect, style stream.ErrorStyle) stream.Decision {
	out := stream.Decision{Leave: true, Remove: r.Headers()}
	if e.End { // the request has no body
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

// Unknown returns the answer for a model that no pool serves.
func Unknown(model string) *apierror.Error {
	if len(model) > 256 {
		model = strings.ToValidUTF8(model[:256], "") + "…"
	}
	return &apierror.Error{Status: 404, Message: fmt.Sprintf("The model `%s` does not exist.", model)}
}

// read returns the values of a JSON object's fields. Of duplicate names the last counts, as for the picker and model
// servers. It returns false where the body is no object.
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
	if _, err := d.Token(); err != nil { // the text ends early
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF { // text follows the object
		return nil, false
	}
	return found, true
}

// text returns a field's value in the form of a header, or "" where the value has none.
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

// name returns the model in a body's fields, or "" where it is not a text.
func name(values map[string]json.RawMessage) string {
	v := values["model"]
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return text(v)
}
