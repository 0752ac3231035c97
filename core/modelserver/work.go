package modelserver

import (
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// work counts what a request has the server make for its answer, in about
// bytes: the arguments of tool calls, the names of blocks, the search for stop
// strings, an answer that is collected until it is whole. A few hundred bytes
// can ask for any amount of it.
type work struct {
	spent  int
	client chattemplate.Client // Head.Client
}

// lookWork is how much is done between two looks at whether the client is there.
const lookWork = 64 << 10

// maxWork is what one request may have made.
const maxWork = 64 << 20

// spend counts more, and is false when that is too much.
func (w *work) spend(n int) bool {
	before := w.spent
	w.spent = min(w.spent+max(n, 0), 2*maxWork) // no sum overflows
	if w.client != nil && w.spent/lookWork != before/lookWork && w.client.HasLeft() {
		w.spent = 2 * maxWork
	}
	return w.spent <= maxWork
}

// tooMuch refuses a request whose work is beyond the limit; nil is none.
func (w *work) tooMuch() *openai.Error {
	if w.spent <= maxWork {
		return nil
	}
	return openai.Errorf(400, "",
		"This request would have the server make more than %d MiB for its answer (its form, choices, tool calls, log "+
			"probabilities, stop strings): ask for less at once.", maxWork>>20)
}

// What one token of an answer takes while it is collected, and what is looked
// at for one stop string or token, in the units of work.
const (
	tokenWork   = 8
	logprobWork = 80 // of one alternative
	stopWork    = 8
	pieceWork   = 6 // of one byte of a text that is cut into pieces
)
