package epp

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// guarded calls f. A panic ends what the call was for and nothing else: it is
// logged with its stack and comes back as an error. core/epp/picker guards each call
// of a plug-in and names it; this is for all that is around, and for the tops of
// goroutines. request is for the log, "" where it is about none.
func guarded(log *slog.Logger, what, request string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			logPanic(log, what, request, v)
			err = fmt.Errorf("%s failed: panic: %v", what, v)
		}
	}()
	f()
	return nil
}

func logPanic(log *slog.Logger, what, request string, v any) {
	log.Error("epp: a panic", "in", what, "request", request, "panic", v, "stack", string(debug.Stack()))
}

// logPanics logs a plug-in's panic with its place.
func logPanics(log *slog.Logger) func(*apierror.Error) {
	return func(e *apierror.Error) {
		log.Error("epp: a plug-in's panic", "panic", e.Message, "stack", string(debug.Stack()))
	}
}
