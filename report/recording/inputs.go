package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/internal/files"
)

// The lines of a log of inputs (core/epp/inputlog) stand between the events of a recording. Readers of events skip
// them, and readers of inputs skip events.

// inputs are the beginnings of lines of a log of inputs.
var inputs = [][]byte{[]byte(`{"input":`), []byte(`{"effect":`), []byte(`{"snapshot":`), []byte(`{"log":`),
	[]byte(`{"gap":`), []byte(`{"piece":`)}

func isInput(line []byte) bool {
	return slices.ContainsFunc(inputs, func(prefix []byte) bool { return bytes.HasPrefix(line, prefix) })
}

// Write writes whole lines of a log of inputs. A longer line than MaxLineBytes is written in pieces.
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

// pieceBytes bounds the text in one piece. With escapes the line is longer.
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

// maxInput bounds a line of a log of inputs that comes in pieces, such as a snapshot of large indexes.
const maxInput = 1 << 30

// ReadInputsFile is ReadInputs for a file.
func ReadInputsFile(path string, each func(line []byte) error, others ...func(line []byte)) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return ReadInputs(path, f, each, others...)
}

// ReadInputs calls each with the lines of the log of inputs in a recording, compressed or not. file is its name in
// errors. A line is valid until each returns. Errors of the content and of each are *LineError. The recording's other
// lines go to others unchanged.
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
				return nil // the writer was stopped within its last line
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
