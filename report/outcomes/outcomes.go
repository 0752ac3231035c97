// Package outcomes writes 40 bytes about each request of a run, and reads them again. That is enough to compare runs
// request by request, at a hundredth of a recording's size.
//
// A file is a line of text, Magic and a JSON object with the run's seed and scenario, then 40 bytes for each request in
// the order in which they ended, and a last 40 that hold the number of requests. All numbers are little-endian:
//
//	 0  8  when the client sent it, in nanoseconds; the upper three bits are flags
//	 8  8  time to the first token, in nanoseconds
//	16  8  time to the last token, or until the request failed, in nanoseconds
//	24  4  its number, from 1
//	28  4  tokens of the prompt
//	32  4  of these, cached
//	36  4  tokens of the answer
//
// Bit 63 is set if the request completed, bit 62 if it carried an SLO, and bit 61 if it kept that SLO. The last 40
// bytes have the number 0, and the count in place of the time of sending.
//
// Files of version 1 are still read. They have 32 bytes for each request: sending (8), number (4), time to the first
// and to the last token in microseconds (4 each), and the three counts of tokens.
package outcomes

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/files"
)

// Magic is the beginning of a file, and oldMagic that of version 1.
const (
	Magic    = "windtunnel outcomes 2 "
	oldMagic = "windtunnel outcomes 1 "
)

const (
	size, oldSize = 40, 32

	maxLine = 64 << 10
	// maxRequests bounds the requests of a file. A larger number is a broken file.
	maxRequests = 1 << 31

	completed = 1 << 63
	judged    = 1 << 62
	good      = 1 << 61
	flags     = completed | judged | good
)

// Request is a request that has ended. It has the fields of report.Ended, which documents them.
type Request struct {
	Sent, TTFT, E2E         machine.Time
	Number                  int32
	Prompt, Cached, Tokens  int32
	Completed, Judged, Good bool
}

// Header has the run's seed and scenario.
type Header struct {
	Seed     uint64 `json:"seed"`
	Scenario string `json:"scenario,omitempty"`
}

// Writer writes a file. It keeps errors until Close.
type Writer struct {
	file  *os.File
	out   *bufio.Writer
	count uint64
	err   error
}

// Create creates a file and writes its header.
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

// Add writes a request.
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
	w.put(at, e.TTFT, e.E2E, e.Number, e.Prompt, e.Cached, e.Tokens)
}

func (w *Writer) put(at uint64, ttft, e2e machine.Time, counts ...int32) {
	var b [size]byte
	for i, v := range [...]uint64{at, uint64(ttft), uint64(e2e)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	for i, v := range counts {
		binary.LittleEndian.PutUint32(b[24+4*i:], uint32(v))
	}
	if w.err == nil {
		_, w.err = w.out.Write(b[:])
	}
}

// Close writes the end and closes the file.
func (w *Writer) Close() error {
	w.put(w.count, 0, 0)
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return errors.Join(w.err, w.file.Close())
}

// Is reports whether a file is one of outcomes, by its beginning. A file that cannot be read is none.
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
	return err == nil && (string(b) == Magic || string(b) == oldMagic)
}

// ReadFile reads a file, and calls each with every request.
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

// Read is ReadFile for an open file.
func Read(from io.Reader, each func(Request)) (h Header, err error) {
	r := bufio.NewReaderSize(from, maxLine)
	line, err := r.ReadSlice('\n')
	decode, record := decode, make([]byte, size)
	text, ok := bytes.CutPrefix(line, []byte(Magic))
	if !ok {
		text, ok = bytes.CutPrefix(line, []byte(oldMagic))
		decode, record = decodeOld, record[:oldSize]
	}
	if err != nil || !ok {
		return h, fmt.Errorf("found no line that begins with %q; expected a file that windtunnel sim --outcomes wrote",
			Magic)
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("line 1: found %.60q after %q; expected a JSON object with seed and scenario", text, Magic)
	}
	for n := uint64(0); ; n++ {
		if _, err := io.ReadFull(r, record); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return h, fmt.Errorf("it ends after %d requests, without their count; expected the whole file, which "+
					"its run writes when it ends", n)
			}
			return h, err
		}
		e := decode(record)
		at := binary.LittleEndian.Uint64(record)
		if e.Number == 0 {
			switch _, err := r.ReadByte(); {
			case at != n:
				return h, fmt.Errorf("its end counts %d requests, and it has %d; expected the file as its run wrote it",
					at, n)
			case !errors.Is(err, io.EOF):
				return h, fmt.Errorf("something follows the last of its %d requests; expected the file as its run "+
					"wrote it", n)
			}
			return h, nil
		}
		if e.Number < 0 || min(e.TTFT, e.E2E) < 0 || e.E2E > math.MaxInt64-e.Sent || e.Prompt < 0 || e.Cached < 0 ||
			e.Cached > e.Prompt || e.Tokens < 0 || n == maxRequests {
			return h, fmt.Errorf("request %d of the file: found number %d, %s to its first token and %s to its last, "+
				"a prompt of %d tokens, "+
				"%d of them cached, and an answer of %d; expected none below 0, and at most the prompt cached",
				n+1, e.Number, time.Duration(e.TTFT), time.Duration(e.E2E), e.Prompt, e.Cached, e.Tokens)
		}
		at &= flags
		e.Completed, e.Judged, e.Good = at&completed != 0, at&judged != 0, at&good != 0
		each(e)
	}
}

// decode reads a record without its flags.
func decode(b []byte) Request {
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[i:]) }
	return Request{Sent: machine.Time(at(0) &^ flags), TTFT: machine.Time(at(8)), E2E: machine.Time(at(16)),
		Number: number(b[24:]), Prompt: number(b[28:]), Cached: number(b[32:]), Tokens: number(b[36:])}
}

// decodeOld reads a record of version 1.
func decodeOld(b []byte) Request {
	took := func(i int) machine.Time {
		return machine.Time(binary.LittleEndian.Uint32(b[i:])) * machine.Microsecond
	}
	return Request{Sent: machine.Time(binary.LittleEndian.Uint64(b) &^ flags), TTFT: took(12), E2E: took(16),
		Number: number(b[8:]), Prompt: number(b[20:]), Cached: number(b[24:]), Tokens: number(b[28:])}
}

func number(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) }
