// Package outcomes writes what became of each request of a run in 32 bytes, and reads it
// again: enough to compare runs request by request, at a hundredth of a recording's size.
//
// A file is a line of text, Magic and a JSON object with the run's seed and scenario, then 32
// bytes for each request in the order in which they ended, and a last 32 that say how many
// those are. All numbers are little-endian:
//
//	 0  8  when it was sent, in nanoseconds; its upper three bits are flags
//	 8  4  its number, from 1
//	12  4  time to the first token, in microseconds
//	16  4  time to the last token, or until it failed, in microseconds
//	20  4  tokens of the prompt
//	24  4  of these, cached
//	28  4  tokens of the answer
//
// Bit 63 says that it completed, bit 62 that it told what a good answer keeps to, and bit 61
// that it was one. The last 32 bytes have the number 0, and the count where others have the
// time of sending.
package outcomes

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/files"
)

// Magic is how a file begins.
const Magic = "windtunnel outcomes 1 "

const (
	size    = 32
	maxLine = 64 << 10
	// maxRequests of one file: it says more than a run has.
	maxRequests = 1 << 31

	completed = 1 << 63
	judged    = 1 << 62
	good      = 1 << 61
	flags     = completed | judged | good
)

// Request is what became of one. It is report.Ended, where its fields are told.
type Request struct {
	Number                  int32
	Sent                    machine.Time
	TTFT, E2E               uint32 // microseconds
	Prompt, Cached, Tokens  int32
	Completed, Judged, Good bool
}

// Header is what a file says of its run.
type Header struct {
	Seed     uint64 `json:"seed"`
	Scenario string `json:"scenario,omitempty"`
}

// Writer writes a file. Errors are kept until Close.
type Writer struct {
	file  *os.File
	out   *bufio.Writer
	count uint64
	err   error
}

// Create begins a file.
func Create(path string, h Header) (*Writer, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f, out: bufio.NewWriterSize(f, 1<<16)}
	_, w.err = fmt.Fprintf(w.out, "%s%s\n", Magic, text)
	return w, nil
}

// Add writes what became of a request.
func (w *Writer) Add(e *Request) {
	at := uint64(max(e.Sent, 0)) &^ flags
	for _, x := range [...]struct {
		bit uint64
		is  bool
	}{{completed, e.Completed}, {judged, e.Judged}, {good, e.Good}} {
		if x.is {
			at |= x.bit
		}
	}
	w.count++
	w.put(at, uint32(e.Number), e.TTFT, e.E2E, uint32(e.Prompt), uint32(e.Cached), uint32(e.Tokens))
}

func (w *Writer) put(at uint64, rest ...uint32) {
	var b [size]byte
	binary.LittleEndian.PutUint64(b[:], at)
	for i, v := range rest {
		binary.LittleEndian.PutUint32(b[8+4*i:], v)
	}
	if w.err == nil {
		_, w.err = w.out.Write(b[:])
	}
}

// Close ends the file.
func (w *Writer) Close() error {
	w.put(w.count)
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return errors.Join(w.err, w.file.Close())
}

// Is says whether a file begins as one of outcomes does. What cannot be read is none.
func Is(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, len(Magic))
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == Magic
}

// ReadFile reads a file, each request as it comes.
func ReadFile(path string, each func(Request)) (Header, error) {
	f, err := files.Open(path)
	if err != nil {
		return Header{}, err
	}
	defer f.Close()
	h, err := Read(f, each)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return h, err
}

// Read is ReadFile of what is open already.
func Read(from io.Reader, each func(Request)) (h Header, err error) {
	r := bufio.NewReaderSize(from, maxLine)
	line, err := r.ReadSlice('\n')
	text, ok := bytes.CutPrefix(line, []byte(Magic))
	if err != nil || !ok {
		return h, fmt.Errorf("found no line that begins with %q; expected a file that windtunnel sim --outcomes wrote", Magic)
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("line 1: found %.60q after %q; expected a JSON object with seed and scenario", text, Magic)
	}
	var b [size]byte
	for n := uint64(0); ; n++ {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return h, fmt.Errorf("it ends after %d requests without saying that these are all; expected the whole file, which its run writes when it ends", n)
			}
			return h, err
		}
		at, number := binary.LittleEndian.Uint64(b[:]), int32(binary.LittleEndian.Uint32(b[8:]))
		if number == 0 {
			switch _, err := r.ReadByte(); {
			case at != n:
				return h, fmt.Errorf("it says that it has %d requests, and has %d; expected the file as its run wrote it", at, n)
			case !errors.Is(err, io.EOF):
				return h, fmt.Errorf("something follows the last of its %d requests; expected the file as its run wrote it", n)
			}
			return h, nil
		}
		field := func(i int) uint32 { return binary.LittleEndian.Uint32(b[12+4*i:]) }
		e := Request{Number: number, Sent: machine.Time(at &^ flags), TTFT: field(0), E2E: field(1), Prompt: int32(field(2)), Cached: int32(field(3)), Tokens: int32(field(4)),
			Completed: at&completed != 0, Judged: at&judged != 0, Good: at&good != 0}
		if number < 0 || e.Prompt < 0 || e.Cached < 0 || e.Cached > e.Prompt || e.Tokens < 0 || n == maxRequests {
			return h, fmt.Errorf("request %d of the file: found number %d, a prompt of %d tokens, %d of them cached, and an answer of %d; expected none below 0, and no more cached than there are", n+1, number, e.Prompt, e.Cached, e.Tokens)
		}
		each(e)
	}
}
