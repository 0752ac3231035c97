package envoy

import "fmt"

// Kind says which sort of trouble an Error is, so that a command can choose
// its exit code without reading text.
type Kind string

// The kinds of trouble. Each has one documented exit code in cmd/windtunnel.
const (
	// NotFound: no usable Envoy on this machine, and none could be installed.
	NotFound Kind = "envoy-not-found"
	// TooOld: the Envoy that the user asked for lacks full-duplex bodies.
	TooOld Kind = "envoy-too-old"
	// BadConfig: the Config (or the text made of it) is not acceptable.
	BadConfig Kind = "envoy-bad-config"
	// PortTaken: an address that Envoy should listen on is in use.
	PortTaken Kind = "port-taken"
	// TooFewDescriptors: the process limit on open files is below the need.
	TooFewDescriptors Kind = "too-few-descriptors"
	// StartFailed: Envoy ended, or did not become ready in time.
	StartFailed Kind = "envoy-start-failed"
)

// Error is every error of this package that a user can do something about.
type Error struct {
	Kind Kind
	// Message is whole sentences for a person: what was wrong, what was
	// expected, what to do.
	Message string
	// Log is the path of the log to read, when there is one.
	Log string
	// Err is the cause, when there is one.
	Err error
}

// Error is the message, followed by where to read more.
func (e *Error) Error() string {
	if e.Log != "" {
		return e.Message + " (log: " + e.Log + ")"
	}
	return e.Message
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

func fail(kind Kind, cause error, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...), Err: cause}
}
