// Package apierror holds the reasons for which a request is refused: the HTTP status, and the name that each API of a
// pool gives to it.
package apierror

// DroppedReasonHeader holds the reason for which the endpoint picker dropped a request.
const DroppedReasonHeader = "x-llm-d-request-dropped-reason"

// Error is the reason for which the endpoint picker refuses or ends a request.
type Error struct {
	Status  int // HTTP status
	Message string
	// Reason is the value of DroppedReasonHeader; it may be empty.
	Reason string
	// Bare says that Message alone is the body, in every API (evicted requests).
	Bare bool
	// Err is the cause, for callers that distinguish causes.
	Err error
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Code returns the endpoint picker's name for the status.
func (e *Error) Code() string { return Of(e.Status).EPP }

// Error returns the text of the real endpoint picker's answer: "inference error: Code - message".
func (e *Error) Error() string {
	if e.Bare {
		return e.Message
	}
	return "inference error: " + e.Code() + " - " + e.Message
}

// Full reports whether the picker refused the request for lack of capacity.
func (e *Error) Full() bool { return e.Status == 429 }
