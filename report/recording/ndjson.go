// Package recording writes and reads recordings: one JSON object per line, for events, for the endpoint picker's
// inputs, and last for a summary.
package recording

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// MaxLineBytes bounds a line of a recording. Writers of details clip them long before this.
const MaxLineBytes = 1 << 20

// Writer writes a recording: one event per line as JSON, and last a line {"summary": …}. Lines of another kind (see
// ReadInputs) may come from another goroutine in between. All other calls are one goroutine's.
type Writer struct {
	mu     sync.Mutex // guards all
	out    *bufio.Writer
	closes []io.Closer
	buf    []byte // one line, reused
	err    error
}

// NewWriter returns a Writer to w. Close does not close w.
func NewWriter(w io.Writer) *Writer { return &Writer{out: bufio.NewWriterSize(w, 64<<10)} }

// Create creates a file, compressed if its name ends in .gz.
func Create(path string) (*Writer, error) {
	w, _, err := create(path)
	return w, err
}

func create(path string) (*Writer, *os.File, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, nil, err
	}
	if !strings.HasSuffix(path, ".gz") {
		w := NewWriter(f)
		w.closes = []io.Closer{f}
		return w, f, nil
	}
	z := gzip.NewWriter(f)
	w := NewWriter(z)
	w.closes = []io.Closer{z, f}
	return w, f, nil
}

// Record writes one event. After an error it writes nothing more, and Close returns the error.
func (w *Writer) Record(e record.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	line, err := AppendEvent(w.buf[:0], e)
	w.write(line, err)
	w.buf = line[:0]
}

// Summary writes the last line with the summary as JSON.
func (w *Writer) Summary(summary any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	line, err := json.Marshal(map[string]any{"summary": summary})
	w.write(line, err)
}

func (w *Writer) write(line []byte, err error) {
	if !terminal.Plain(line, false) { // people print recordings on terminals
		line = terminal.AppendPrintable(nil, line, "")
	}
	if err == nil {
		if _, err = w.out.Write(line); err == nil {
			err = w.out.WriteByte('\n')
		}
	}
	w.err = err
}

// Flush passes buffered lines to the file or pipe.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return w.err
}

// Close flushes, closes the file that Create opened, and returns the first error.
func (w *Writer) Close() error {
	err := w.Flush()
	for _, c := range w.closes {
		err = errors.Join(err, c.Close())
	}
	w.closes = nil
	return err
}

// LineError is a line of a recording that cannot be read.
type LineError struct {
	File string
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// ReadFile reads a recording, compressed or not, and calls each with its events in order. The summary, read as S, is
// nil if the recording ends without one, because the run was killed. Errors of the content are *LineError.
func ReadFile[S any](path string, each func(record.Event) error) (*S, error) {
	f, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read[S](path, f, each)
}

// CountRequests returns how many requests were sent according to a recording, as far as the recording can be read. It
// parses only the fields that it needs.
func CountRequests(path string) (requests int, err error) {
	f, err := files.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines, closeLines, err := linesOf(path, f)
	if err != nil {
		return 0, err
	}
	defer closeLines()
	n := 0
	for ; lines.Scan(); n++ {
		if e := gjson.GetManyBytes(lines.Bytes(), "hop", "step"); e[0].Str == string(record.Client) &&
			e[1].Str == string(record.RequestSent) {
			requests++
		}
	}
	return requests, lineError(path, n, lines.Err())
}

// linesOf returns the lines of a recording, compressed or not.
func linesOf(file string, r io.Reader) (lines *bufio.Scanner, closeLines func(), err error) {
	buffered, closeLines := bufio.NewReader(r), func() {}
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, nil, &LineError{file, 1, fmt.Errorf("not a gzip file: %w", err)}
		}
		buffered, closeLines = bufio.NewReader(z), func() { z.Close() }
	}
	lines = bufio.NewScanner(buffered)
	lines.Buffer(make([]byte, 0, 64<<10), MaxLineBytes)
	return lines, closeLines, nil
}

// lineError returns why the lines end after the nth.
func lineError(file string, n int, err error) error {
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return &LineError{file, n + 1, fmt.Errorf("the line is longer than %d bytes; expected one event", MaxLineBytes)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &LineError{file, n + 1, errors.New("the compressed recording is cut short")}
	case err != nil:
		return &LineError{file, n + 1, err}
	}
	return nil
}

// Read is ReadFile from any reader; file is its name in errors.
func Read[S any](file string, r io.Reader, each func(record.Event) error) (*S, error) {
	lines, closeLines, err := linesOf(file, r)
	if err != nil {
		return nil, err
	}
	defer closeLines()
	var summary *S
	n, blank := 0, true
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		blank = false
		if isInput(line) {
			continue
		}
		if summary != nil {
			return nil, &LineError{file, n,
				errors.New("something after the summary; expected the end of the recording")}
		}
		e, s, err := readLine[S](line)
		if err != nil && !lines.Scan() && errors.Is(lines.Err(), io.ErrUnexpectedEOF) {
			err = errors.New("the compressed recording is cut short")
		}
		if err != nil {
			if k := files.KindOfFile(file); n == 1 && k.Is != "" && k.Is != files.Recording {
				err = fmt.Errorf("found %s; expected %s; %s", k.Is, files.Recording, k.Use)
			}
			return nil, &LineError{file, n, err}
		}
		if s != nil {
			summary = s
		} else if err := each(e); err != nil {
			return nil, err
		}
	}
	if err := lineError(file, n, lines.Err()); err != nil {
		return nil, err
	}
	if blank {
		return nil, &LineError{file, 1,
			errors.New("the recording is empty; expected one event per line, as windtunnel run --record writes them")}
	}
	return summary, nil
}

// readLine parses an event or the summary, which have different fields.
func readLine[S any](line []byte) (record.Event, *S, error) {
	var probe struct {
		Summary *S               `json:"summary"`
		Time    *json.RawMessage `json:"time"`
	}
	if line[0] != '{' {
		return record.Event{}, nil,
			fmt.Errorf("found %s; expected an event, a JSON object", terminal.Clip(string(line)))
	}
	if bytes.HasPrefix(line, []byte(`{"time":`)) { // the form of nearly all lines
		var e record.Event
		if err := e.UnmarshalJSON(line); err == nil {
			return e, nil, nil
		}
	}
	if err := json.Unmarshal(line, &probe); err != nil {
		return record.Event{}, nil, fmt.Errorf("not an event: %w", err)
	}
	if probe.Summary != nil {
		return record.Event{}, probe.Summary, nil
	}
	if probe.Time == nil {
		return record.Event{}, nil, errors.New(`neither an event (it has no "time") nor a summary`)
	}
	var e record.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return record.Event{}, nil, err
	}
	return e, nil, nil
}

// Named reports whether a file has the name of a recording.
func Named(file string) bool {
	return strings.HasSuffix(file, ".gz") || strings.HasSuffix(file, ".ndjson") || strings.HasSuffix(file, ".jsonl")
}

// InputError adds an exit code to errors of reading a user's file.
func InputError(err error) error {
	var line *LineError
	var path *fs.PathError
	if errors.As(err, &line) || errors.As(err, &path) {
		return exit.With(exit.Input, err)
	}
	return err
}
