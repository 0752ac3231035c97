package modelserver

import (
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// work counts the work of a request's answer, in about bytes: the arguments of tool calls, the names of blocks, the
// search for stop strings, an answer that is collected until it is complete. A request of a few hundred bytes can ask
// for any amount of work.
type work struct {
	spent  int
	client chattemplate.Client // Head.Client
}

// lookWork is the work between two checks whether the client is still there.
const lookWork = 64 << 10

// maxWork is the limit on the work of one request.
const maxWork = 64 << 20

// spend adds work, and returns false if the total exceeds the limit.
func (w *work) spend(n int) bool {
	before := w.spent
	w.spent = min(w.spent+max(n, 0), 2*maxWork) // the sum does not overflow
	if w.client != nil && w.spent/lookWork != before/lookWork && w.client.HasLeft() {
		w.spent = 2 * maxWork
	}
	return w.spent <= maxWork
}

// tooMuch returns the error of a request whose work exceeds the limit; nil if it does not.
func (w *work) tooMuch() *openai.Error {
	if w.spent <= maxWork {
		return nil
	}
	return openai.Errorf(400, "",
		"This request would have the server make more than %d MiB for its answer (its form, choices, tool calls, log "+
			"probabilities, stop strings): ask for less at once.", maxWork>>20)
}

// The work of one token of an answer while it is collected, and of checking it for one stop string or stop token.
const (
	tokenWork   = 8
	logprobWork = 80 // of one alternative
	stopWork    = 8
	pieceWork   = 6 // of one byte of a text that is cut into pieces
)
