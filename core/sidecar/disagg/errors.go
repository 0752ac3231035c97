package disagg

import (
	"encoding/json"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
)

type object = jsonobject.Object

// ErrorBody returns the real sidecar's error object.
func ErrorBody(status int, message string) []byte {
	b, err := json.Marshal(struct {
		Object  string `json:"object"`
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   string `json:"param"`
		Code    int    `json:"code"`
	}{"error", message, apierror.Of(status).Sidecar, "", status})
	if err != nil {
		panic(err) // a text and a number always marshal
	}
	return b
}

// jsonType reports whether a Content-Type is JSON.
func jsonType(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}
