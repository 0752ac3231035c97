package described

import "github.com/windtunnel/windtunnel/core/wire/openai"

// Piece is a piece of an answer without its bytes. The components on its way read at most the token counts in it.
type Piece struct {
	// Usage holds the piece's token counts, if it Has any.
	Usage openai.Usage
	Has   bool
}
