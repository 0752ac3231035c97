package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/internal/files"
)

// The lines of a log of inputs (core/epp/inputlog) stand between the events of a
// recording. Who reads events skips them, and the other way round.

// inputs are what they begin with.
var inputs = [][]byte{[]byte(`{"input":`), []byte(`{"effect":`), []byte(`{"snapshot":`), []byte(`{"log":`),
	[]byte(`{"gap":`), []byte(`{"piece":`)}

func isInput(line []byte) bool {
	for _, prefix := range inputs {
		if bytes.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// Write writes whole lines of a log of inputs. One that is too long for a line
// is cut in pieces.
func (w *Writer) Write(lines []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range bytes.Lines(lines) {
		if w.err != nil {
			break
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) < MaxLineBytes {
			w.write(line, nil)
		} else {
			w.pieces(line)
		}
	}
	return len(lines), w.err
}

// pieceBytes is how much of a line is in one piece; escaped it may be longer.
const pieceBytes = MaxLineBytes / 8

func (w *Writer) pieces(line []byte) {
	for len(line) > 0 && w.err == nil {
		n := min(len(line), pieceBytes)
		for n < len(line) && !utf8.RuneStart(line[n]) {
			n--
		}
		b := openai.AppendString(append(w.buf[:0], `{"piece":`...), string(line[:n]))
		line = line[n:]
		b = append(strconv.AppendBool(append(b, `,"last":`...), len(line) == 0), '}')
		w.write(b, nil)
		w.buf = b[:0]
	}
}

// maxInput is the longest line of a log of inputs, in pieces: a snapshot of large
// indexes.
const maxInput = 1 << 30

// ReadInputsFile is ReadInputs of a file.
func ReadInputsFile(path string, each func(line []byte) error, others ...func(line []byte)) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return ReadInputs(path, f, each, others...)
}

// ReadInputs hands out the lines of the log of inputs in a recording, compressed
// or not; file is its name in messages. A line is good until each returns.
// Mistakes come as *LineError, and so do those that each returns. The recording's other lines
// go to others as they are.
func ReadInputs(file string, r io.Reader, each func(line []byte) error, others ...func(line []byte)) error {
	lines, closeLines, err := linesOf(file, r)
	if err != nil {
		return err
	}
	defer closeLines()
	var pieces []byte
	n, found := 0, false
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if !isInput(line) {
			for _, other := range others {
				other(line)
			}
			continue
		}
		found = true
		if bytes.HasPrefix(line, []byte(`{"piece":`)) {
			var x struct {
				Piece string `json:"piece"`
				Last  bool   `json:"last"`
			}
			if err := json.Unmarshal(line, &x); err != nil {
				return &LineError{file, n, err}
			}
			if pieces = append(pieces, x.Piece...); len(pieces) > maxInput {
				return &LineError{file, n, fmt.Errorf("a line in pieces has more than %d bytes", maxInput)}
			}
			if !x.Last {
				continue
			}
			line, pieces = pieces, nil
		}
		whole := json.Valid(line)
		if err := each(line); err != nil {
			if !whole && !lines.Scan() && lines.Err() == nil {
				return nil // who wrote it was stopped in its last line
			}
			return &LineError{file, n, err}
		}
	}
	if err := lineError(file, n, lines.Err()); err != nil {
		return err
	}
	if !found {
		return &LineError{file, n,
			errors.New("the recording has no log of inputs; windtunnel run --record and epp --record write one, of " +
				"windtunnel's own endpoint picker")}
	}
	return nil
}
