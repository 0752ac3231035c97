// Package apierror is why a request is refused: the HTTP status, and what each
// API of a pool calls it.
package apierror

// DroppedReasonHeader carries why the endpoint picker dropped a request.
const DroppedReasonHeader = "x-llm-d-request-dropped-reason"

// Error is why the endpoint picker refuses or ends a request.
type Error struct {
	Status  int // HTTP status
	Message string
	// Reason is the value of DroppedReasonHeader, or empty.
	Reason string
	// Bare says that the body is Message alone in every form (evicted requests).
	Bare bool
	// Err is the cause, where somebody tells causes apart.
	Err error
}

// Unwrap returns the cause, nil for none.
func (e *Error) Unwrap() error { return e.Err }

// Code returns the endpoint picker's name for the status.
func (e *Error) Code() string { return Of(e.Status).EPP }

// Error returns the text that the real endpoint picker answers with: "inference
// error: Code - message".
func (e *Error) Error() string {
	if e.Bare {
		return e.Message
	}
	return "inference error: " + e.Code() + " - " + e.Message
}

// Full says that the request was refused for want of room.
func (e *Error) Full() bool { return e.Status == 429 }
