package modelserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
)

// The sizes of the readers' buffers. While the server holds a request open, the request's watch keeps the small buffer.
const (
	part1Buffer = 4 << 10
	part2Buffer = 512
)

var (
	part1Buffers = sync.Pool{New: func() any { return new([part1Buffer]byte) }}
	part2Buffers = sync.Pool{New: func() any { return new([part2Buffer]byte) }}
)

// readPart1 reads a held-open request's body until part 1 is complete. The body stays open behind it.
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

// bodyWatch reads the open body of a held request in a goroutine of its own. Without it, the server would not notice
// that the peer has left while the request is held, because net/http reads the connection only once the body is
// complete.
type bodyWatch struct {
	w      http.ResponseWriter
	body   io.Reader
	reader *held.Reader
	box    *enginedrive.Box
	whole  atomic.Bool // the watch has read the body's end; set before it wakes the request
	done   chan struct{}
}

// bodyWatches are the goroutines of a server's watches. Some stay for the next request, because a new goroutine must
// grow its stack before it reads anything.
type bodyWatches struct {
	next    chan *bodyWatch
	leaving <-chan struct{} // closed when the server begins to stop
	idle    atomic.Int32
}

// maxIdleWatches limits how many goroutines wait for the next request.
const maxIdleWatches = 64

func newBodyWatches(leaving <-chan struct{}) *bodyWatches {
	return &bodyWatches{next: make(chan *bodyWatch), leaving: leaving}
}

func (p *bodyWatches) start(w http.ResponseWriter, body io.Reader, reader *held.Reader, b *enginedrive.Box) *bodyWatch {
	watch := &bodyWatch{w: w, body: body, reader: reader, box: b, done: make(chan struct{})}
	select {
	case p.next <- watch:
	default:
		go p.serve(watch)
	}
	return watch
}

func (p *bodyWatches) serve(w *bodyWatch) {
	for ; w != nil; w = p.wait() {
		w.read()
		close(w.done)
	}
}

// wait returns the next request's watch. It returns nil if enough goroutines wait already, or if the server stops.
func (p *bodyWatches) wait() *bodyWatch {
	defer p.idle.Add(-1)
	if p.idle.Add(1) > maxIdleWatches {
		return nil
	}
	select {
	case w := <-p.next:
		return w
	case <-p.leaving:
		return nil
	}
}

func (w *bodyWatch) read() {
	body, reader, b := w.body, w.reader, w.box
	buf := part2Buffers.Get().(*[part2Buffer]byte)
	defer part2Buffers.Put(buf)
	begun := false
	reportPart2 := func() {
		if !begun && reader.Part2Begun() {
			begun = true
			b.Put(func(p *modelserver.Progress) { p.Part2Begun = true })
		}
	}
	reportPart2()
	for {
		n, err := body.Read(buf[:])
		if n > 0 {
			if _, werr := reader.Write(buf[:n]); werr != nil {
				b.Put(func(p *modelserver.Progress) { p.Violation = reasonOf(werr) })
				return
			}
			reportPart2()
		}
		switch {
		case err == io.EOF:
			w.whole.Store(true)
			if cerr := reader.Close(); cerr != nil {
				b.Put(func(p *modelserver.Progress) { p.Violation = reasonOf(cerr) })
				return
			}
			b.Put(func(p *modelserver.Progress) { p.Part2, p.Metadata = true, reader.Metadata() })
			return
		case err != nil:
			b.Put(func(p *modelserver.Progress) {
				p.Gone = fmt.Sprintf("the connection broke while the request was open: %v", err)
			})
			return
		}
	}
}

// finish ends the watch, whether or not the body is complete.
func (w *bodyWatch) finish() {
	// Once the body is complete, net/http itself reads the connection, to see the client leave. That read must not
	// fail: a failure would also end the context of this connection's later requests.
	if !w.whole.Load() {
		stopReading(w.w)
	}
	<-w.done
}

// stopReading makes reads of the request's body fail, now and later. The connection cannot be used again, because the
// rest of the body is unread. net/http notices that by itself.
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
