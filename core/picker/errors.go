package picker

// Code is the EPP's own error code. It names the HTTP status of the immediate
// response and appears in its body.
type Code string

// The codes of llm-d-router's EPP.
const (
	BadRequest         Code = "BadRequest"
	Unauthorized       Code = "Unauthorized"
	Forbidden          Code = "Forbidden"
	NotFound           Code = "NotFound"
	PreconditionFailed Code = "PreconditionFailed"
	ResourceExhausted  Code = "ResourceExhausted"
	Internal           Code = "Internal"
	ServiceUnavailable Code = "ServiceUnavailable"
)

// Status is the HTTP status that goes with the code; an unknown code is 500.
func (c Code) Status() int {
	switch c {
	case BadRequest:
		return 400
	case Unauthorized:
		return 401
	case Forbidden:
		return 403
	case NotFound:
		return 404
	case PreconditionFailed:
		return 412
	case ResourceExhausted:
		return 429
	case ServiceUnavailable:
		return 503
	}
	return 500
}

// Error is why a request got no endpoint. It becomes the immediate response
// of the ext_proc stream.
type Error struct {
	Code    Code
	Message string
	// Reason is the value of x-llm-d-request-dropped-reason, or empty.
	Reason string
	// Bare says that the body is Message alone, without the prefix
	// "inference error: Code - " (evicted requests).
	Bare bool
}

// Status is the HTTP status of the answer. That of an evicted request has no
// code of its own.
func (e *Error) Status() int {
	if e.Bare {
		return ResourceExhausted.Status()
	}
	return e.Code.Status()
}

// Error is the body that the real EPP sends: "inference error: Code - message".
func (e *Error) Error() string {
	if e.Bare {
		return e.Message
	}
	return "inference error: " + string(e.Code) + " - " + e.Message
}
