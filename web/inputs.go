package web

import (
	"bytes"
	"sync"
)

// Inputs keeps the inputs of a run's endpoint pickers for what-if questions: the latest ones of a live run, or the
// first ones of other runs. It is the io.Writer of report.Options.Inputs.
type Inputs struct {
	mu     sync.Mutex
	pieces [][]byte // whole lines; each piece begins with the pickers' state
	most   int
	full   bool // later lines are dropped
}

// inputBytes is the size at which a new piece begins. keptPieces is the number of pieces kept. wholeBytes bounds the
// log.
const (
	inputBytes = 32 << 20
	keptPieces = 3
	wholeBytes = 512 << 20
)

// NewInputs returns an empty Inputs.
func NewInputs() *Inputs { return &Inputs{pieces: [][]byte{nil}, most: wholeBytes} }

// Write adds whole lines.
func (x *Inputs) Write(lines []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := len(x.pieces) - 1
	if x.full = x.full || len(x.pieces[last])+len(lines) > x.most; !x.full {
		x.pieces[last] = append(x.pieces[last], lines...)
	}
	return len(lines), nil
}

// Full reports whether Next should begin a new piece.
func (x *Inputs) Full() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.pieces[len(x.pieces)-1]) > inputBytes
}

// Next begins a new piece, and drops the oldest one if there are too many.
func (x *Inputs) Next() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pieces = append(x.pieces, nil); len(x.pieces) > keptPieces {
		x.pieces = x.pieces[1:]
	}
	return nil
}

// Each calls a function for each kept line, until it returns an error.
func (x *Inputs) Each(each func(line []byte) error) error {
	x.mu.Lock()
	var pieces [][]byte
	for _, p := range x.pieces {
		pieces = append(pieces, p[:len(p):len(p)])
	}
	x.mu.Unlock()
	for _, p := range pieces {
		for line := range bytes.Lines(p) {
			if err := each(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}
