package stream

import (
	"bytes"
	"encoding/json"

	"github.com/windtunnel/windtunnel/core/header"
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

// Answer makes an error answer of a status and a message.
func (e ErrorStyle) Answer(status int, message string) Answer {
	kind := errorKinds[status]
	if kind.openai == "" {
		kind.openai, kind.epp = "InternalServerError", "Internal"
	}
	if e == EPPErrors {
		return Answer{Status: status, Body: []byte("inference error: " + kind.epp + " - " + message)}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// Encoding strings and an int cannot fail.
	_ = enc.Encode(map[string]any{"error": map[string]any{"message": message, "type": kind.openai, "param": nil, "code": status}})
	return Answer{Status: status, Set: header.Of("content-type", "application/json"), Body: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}

// errorKinds are the names that the two styles have for a status.
var errorKinds = map[int]struct{ openai, epp string }{
	400: {"BadRequestError", "BadRequest"},
	401: {"AuthenticationError", "Unauthorized"},
	403: {"PermissionDeniedError", "Forbidden"},
	404: {"NotFoundError", "NotFound"},
	412: {"PreconditionFailedError", "PreconditionFailed"},
	413: {"RequestTooLargeError", "RequestTooLarge"},
	429: {"RateLimitError", "ResourceExhausted"},
	502: {"BadGatewayError", "BadGateway"},
	503: {"ServiceUnavailableError", "ServiceUnavailable"},
	504: {"GatewayTimeoutError", "DeadlineExceeded"},
}
