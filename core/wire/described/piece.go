package described

import "github.com/windtunnel/windtunnel/core/wire/openai"

// Piece is a piece of an answer: bytes of which those on the way read at most how
// many tokens there are.
type Piece struct {
	// Usage is what it says of that, if it Has any.
	Usage openai.Usage
	Has   bool
}
