// Package exit is the closed list of windtunnel's exit codes, and attaches them to errors.
//
// The code that knows the cause of an error wraps the error once with an exit code and, if the user can do something
// about it, with a hint. Only main turns them into the process's exit code and text.
package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
)

// Code is a process's exit code.
type Code int

// The exit codes. docs/cli.md lists them for users; a test keeps the two equal.
const (
	// OK: everything that was asked for happened.
	OK Code = 0
	// Failed: the run came to its end, and an expectation of the scenario was missed or, where it has none, some
	// request did not complete. Or random faults broke an invariant.
	Failed Code = 1
	// Usage: the command line was wrong.
	Usage Code = 2
	// Input: a scenario, recording or other file that was given is wrong.
	Input Code = 3
	// Environment: this machine lacks something (Envoy, a free port,
	// descriptors); nothing was started.
	Environment Code = 4
	// Broken: something that was started failed on the way.
	Broken Code = 5
	// Interrupted: Ctrl-C or a signal came first; what was measured is printed.
	Interrupted Code = 130
)

// Described is a code with its description for users.
type Described struct {
	Code  Code
	Name  string
	Means string
}

// Codes lists every code.
func Codes() []Described {
	return []Described{
		{OK, "ok", "everything that was asked for happened"},
		{Failed, "failed", "the run came to its end, and an expectation of the scenario was missed or, where it has " +
			"none, some request did not complete; or chaos found a broken invariant"},
		{Usage, "usage", "the command line was wrong"},
		{Input, "input", "a scenario, recording or other file that was given is wrong"},
		{Environment, "environment",
			"this machine lacks something (Envoy, a free port, descriptors); nothing was started"},
		{Broken, "broken", "something that was started failed on the way"},
		{Interrupted, "interrupted", "Ctrl-C or a signal came first; what was measured is printed"},
	}
}

type coded struct {
	error
	code     Code
	hint     string
	reported bool
}

func (c *coded) Unwrap() error { return c.error }

// With attaches an exit code to an error. A nil error stays nil.
func With(code Code, err error) error { return Hint(code, err, "") }

// Errorf is With for a new error that fmt.Errorf makes.
func Errorf(code Code, format string, args ...any) error {
	return With(code, fmt.Errorf(format, args...))
}

// Hint is With and a sentence that says what to do.
func Hint(code Code, err error, hint string) error {
	if err == nil {
		return nil
	}
	return &coded{error: err, code: code, hint: hint}
}

// Reported is With for an error whose text the user has already seen. Only its code still matters.
func Reported(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &coded{error: err, code: code, reported: true}
}

// ByCause is With for an error with an unknown cause. A code that it already has stays. An address that cannot be
// listened on is Environment, a file that cannot be read is Input, and anything else is otherwise.
func ByCause(otherwise Code, err error) error {
	var given *coded
	var listen *net.OpError
	var file *fs.PathError
	switch {
	case errors.As(err, &given):
		return err
	case errors.As(err, &listen) && listen.Op == "listen":
		return With(Environment, err)
	case errors.As(err, &file), errors.Is(err, fs.ErrNotExist):
		return With(Input, err)
	}
	return With(otherwise, err)
}

// Of returns the exit code of an error: the outermost code, Broken if there is none, or OK for nil.
func Of(err error) Code {
	if err == nil {
		return OK
	}
	var c *coded
	if errors.As(err, &c) {
		return c.code
	}
	return Broken
}

// HintOf returns the outermost hint, or "".
func HintOf(err error) string {
	return outermost(err, func(c *coded) bool { return c.hint != "" }).hint
}

// IsReported reports whether the user has already seen the error's text.
func IsReported(err error) bool {
	return outermost(err, func(c *coded) bool { return c.reported }).reported
}

// outermost returns the outermost of the errors with a code for which is holds, empty without one.
func outermost(err error, is func(*coded) bool) *coded {
	var c *coded
	for errors.As(err, &c) {
		if is(c) {
			return c
		}
		err = c.error
	}
	return &coded{}
}
