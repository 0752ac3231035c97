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
	"strings"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/header"
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

// Decision is what becomes of a request: headers for the routes, or an answer.
type Decision struct {
	Set    header.List
	Answer *apierror.Error
}

// Decide reads a request's body. One without a model, or that is no JSON, passes as
// it is: whoever serves it says what is wrong with it.
func Decide(body []byte, find Find) Decision {
	model, ok := Model(body)
	if !ok {
		return Decision{}
	}
	to, ok := find(model)
	if !ok {
		return Decision{Answer: Unknown(model)}
	}
	return Decision{Set: header.Of(HeaderModel, model, HeaderBaseModel, to.Base)}
}

// Unknown is the answer to a request for a model that no pool serves.
func Unknown(model string) *apierror.Error {
	if len(model) > 256 {
		model = strings.ToValidUTF8(model[:256], "") + "…"
	}
	return &apierror.Error{Status: 404, Message: fmt.Sprintf("The model `%s` does not exist.", model)}
}

// Model is the model of a request's body, the last where it is there twice, as the
// picker and model servers read it; false where there is none that a header can carry.
func Model(body []byte) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	var found json.RawMessage
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return "", false
		}
		if key == "model" {
			found = value
		}
	}
	if _, err := d.Token(); err != nil { // it is cut off
		return "", false
	}
	if _, err := d.Token(); err != io.EOF { // it goes on
		return "", false
	}
	var model string
	if found == nil || json.Unmarshal(found, &model) != nil || strings.ContainsFunc(model, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", false
	}
	return model, model != ""
}
