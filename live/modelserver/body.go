package modelserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/held"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/live/serve"
)

const jsonType = "application/json"

// readWhole reads a plain request's body. Its error is what to answer; a nil
// answer with ok false means that the peer left while sending.
func readWhole(r *http.Request, into []byte, limit int64) (body []byte, answer *openai.Error, ok bool) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit), false
	}
	if n := min(int(r.ContentLength), trustedLength); n > cap(into) {
		into = make([]byte, 0, n+1)
	}
	b := into[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)) > limit {
			return nil, tooLarge(limit), false
		}
		if err == io.EOF {
			return b, nil, true
		}
		if err != nil {
			return nil, tooSlow(err), false
		}
	}
}

// trustedLength is the most room that is made for a body that has only been
// announced.
const trustedLength = 1 << 20

// tooSlow answers a body that was cut for its slowness; nil is another error.
func tooSlow(err error) *openai.Error {
	var slow *serve.SlowBodyError
	if !errors.As(err, &slow) {
		return nil
	}
	return openai.Errorf(http.StatusRequestTimeout, "", "%v; send it faster, or start the server with a larger --body-idle-timeout or --body-timeout.", slow)
}

func tooLarge(limit int64) *openai.Error {
	return openai.Errorf(http.StatusRequestEntityTooLarge, "", "The request body is longer than %d bytes.", limit)
}

// Readers' buffers. While a request is held its watch keeps the small one.
const (
	part1Buffer = 4 << 10
	part2Buffer = 512
)

var (
	part1Buffers = sync.Pool{New: func() any { return new([part1Buffer]byte) }}
	part2Buffers = sync.Pool{New: func() any { return new([part2Buffer]byte) }}
)

// readPart1 reads a held-open request's body until part 1 is whole. The body
// stays open behind it.
func readPart1(r *http.Request, reader *held.Reader) (violation string, err error) {
	buf := part1Buffers.Get().(*[part1Buffer]byte)
	defer part1Buffers.Put(buf)
	for !reader.PayloadDone() {
		n, err := r.Body.Read(buf[:])
		if n > 0 {
			if _, werr := reader.Write(buf[:n]); werr != nil {
				return werr.Error(), nil
			}
		}
		if err == io.EOF {
			if cerr := reader.Close(); cerr != nil {
				return cerr.Error(), nil
			}
			return "", nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// bodyWatch is the goroutine on the open body of a held request. While the
// request is held nobody else would see that the peer has left, because
// net/http looks at the connection only once the body is whole.
type bodyWatch struct {
	w     http.ResponseWriter
	whole atomic.Bool // the body's end was read; known before anybody is told
	done  chan struct{}
}

func watchBody(w http.ResponseWriter, r *http.Request, reader *held.Reader, b *box) *bodyWatch {
	watch := &bodyWatch{w: w, done: make(chan struct{})}
	go func() {
		defer close(watch.done)
		watch.read(r.Body, reader, b)
	}()
	return watch
}

func (w *bodyWatch) read(body io.Reader, reader *held.Reader, b *box) {
	buf := part2Buffers.Get().(*[part2Buffer]byte)
	defer part2Buffers.Put(buf)
	begun := false
	tell := func() {
		if !begun && reader.Part2Begun() {
			begun = true
			b.put(func(p *modelserver.Progress) { p.Part2Begun = true })
		}
	}
	tell()
	for {
		n, err := body.Read(buf[:])
		if n > 0 {
			if _, werr := reader.Write(buf[:n]); werr != nil {
				b.put(func(p *modelserver.Progress) { p.Violation = reasonOf(werr) })
				return
			}
			tell()
		}
		switch {
		case err == io.EOF:
			w.whole.Store(true)
			if cerr := reader.Close(); cerr != nil {
				b.put(func(p *modelserver.Progress) { p.Violation = reasonOf(cerr) })
				return
			}
			b.put(func(p *modelserver.Progress) { p.Part2, p.Metadata = true, reader.Metadata() })
			return
		case err != nil:
			b.put(func(p *modelserver.Progress) {
				p.Gone = fmt.Sprintf("the connection broke while the request was open: %v", err)
			})
			return
		}
	}
}

// finish ends the watch, whatever the body's state.
func (w *bodyWatch) finish() {
	// Once the body is whole net/http itself reads the connection, to see the
	// client leave. That read must not fail: it would end the context of this
	// connection's later requests as well.
	if !w.whole.Load() {
		stopReading(w.w)
	}
	<-w.done
}

// stopReading makes reads of the request's body fail, now and later. The
// connection cannot be used again: what was left of the body is unread.
// net/http notices that by itself.
func stopReading(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
}

func reasonOf(err error) string {
	var v *held.ViolationError
	if errors.As(err, &v) {
		return v.Reason
	}
	return err.Error()
}

// ownLength is the longest body whose length net/http tells by itself.
const ownLength = 2000

var jsonHeader = []string{jsonType} // shared by all answers: nobody changes it

// writeWhole answers with one whole body.
func writeWhole(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	if contentType == jsonType {
		h["Content-Type"] = jsonHeader
	} else {
		h["Content-Type"] = []string{contentType}
	}
	if len(body) > ownLength || len(body) == 0 {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone; there is nobody to tell
}
