package stream

import (
	"bytes"
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Answer is a response that the EPP gives itself.
type Answer struct {
	Status int
	Set    header.List
	Body   []byte
}

// ErrorStyle is the form of the EPP's own error answers.
type ErrorStyle uint8

const (
	// OpenAIErrors are the JSON objects that clients of the OpenAI API expect.
	OpenAIErrors ErrorStyle = iota
	// EPPErrors are the real EPP's plain text: "inference error: Code - text".
	EPPErrors
)

// Answer returns the endpoint picker's answer to a request that it refuses.
func (s ErrorStyle) Answer(e *apierror.Error) Answer {
	a := Answer{Status: e.Status}
	if s == EPPErrors || e.Bare {
		a.Body = []byte(e.Error())
	} else {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		// Encoding strings and an int cannot fail.
		_ = enc.Encode(map[string]any{
			"error": map[string]any{"message": e.Message, "type": apierror.Of(e.Status).OpenAI, "param": nil,
				"code": e.Status}})
		a.Set, a.Body = header.Of("content-type", "application/json"), bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	if e.Reason != "" {
		a.Set = append(a.Set, header.Header{Name: apierror.DroppedReasonHeader, Value: e.Reason})
	}
	return a
}
