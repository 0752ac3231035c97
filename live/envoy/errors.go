package envoy

import "fmt"

// Kind classifies an Error, so that a command can choose its exit code without parsing text.
type Kind string

// The kinds of errors. Each has one documented exit code in cmd/windtunnel.
const (
	// NotFound: this machine has no usable Envoy, and none could be installed.
	NotFound Kind = "envoy-not-found"
	// TooOld: the Envoy that the user asked for lacks full-duplex bodies.
	TooOld Kind = "envoy-too-old"
	// BadConfig: the Config, or the text made from it, is invalid.
	BadConfig Kind = "envoy-bad-config"
	// PortTaken: an address for Envoy to listen on is in use.
	PortTaken Kind = "port-taken"
	// TooFewDescriptors: the process limit on open files is too low.
	TooFewDescriptors Kind = "too-few-descriptors"
	// StartFailed: Envoy ended, or did not become ready in time.
	StartFailed Kind = "envoy-start-failed"
)

// Error is an error of this package that a user can do something about.
type Error struct {
	Kind Kind
	// Message consists of whole sentences: what was wrong, what was expected, and what to do.
	Message string
	// Log is the path of the log to read, or "".
	Log string
	// Err is the cause, or nil.
	Err error
}

// Error returns the message and the log's path.
func (e *Error) Error() string {
	if e.Log != "" {
		return e.Message + " (log: " + e.Log + ")"
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func fail(kind Kind, cause error, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Err: cause}
}
