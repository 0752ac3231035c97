package held

import (
	"encoding/binary"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// watch times an endpoint picker from outside. For every stream of every connection of a listener, it measures the
// time from the read of the request's last bytes from the socket to the write of the answer's first message. This
// includes gRPC's own time, and the time that a goroutine waits for a processor.
type watch struct {
	net.Listener
	took prometheus.Histogram
}

// newWatch returns a watch and the address of its metric (processing). It has no listener yet.
func newWatch() (*watch, string, error) {
	w := &watch{took: prometheus.NewHistogram(
		prometheus.HistogramOpts{Name: processingName, NativeHistogramBucketFactor: 1.05})}
	reg := prometheus.NewRegistry()
	reg.MustRegister(w.took)
	page, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	go func() { _ = http.Serve(page, promhttp.HandlerFor(reg, promhttp.HandlerOpts{})) }()
	return w, page.Addr().String(), nil
}

// over returns the listener to serve on.
func (w *watch) over(l net.Listener) net.Listener {
	w.Listener = l
	return w
}

func (w *watch) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	x := &watchedConn{Conn: c, took: w.took, heard: map[uint32]time.Time{}}
	x.in.skip = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	return x, nil
}

// watchedConn is a server's side of an HTTP/2 connection.
type watchedConn struct {
	net.Conn
	took    prometheus.Histogram
	in, out frames

	mu    sync.Mutex
	heard map[uint32]time.Time // when a stream's last data arrived; zero after its answer
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		now := time.Now()
		c.mu.Lock()
		c.in.read(b[:n], func(f frame) {
			if at, ok := c.heard[f.stream]; f.kind == dataFrame && f.length > 0 && !(ok && at.IsZero()) {
				c.heard[f.stream] = now
			}
		})
		c.mu.Unlock()
	}
	return n, err
}

func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.read(b[:n], func(f frame) {
		switch at := c.heard[f.stream]; {
		case f.kind == dataFrame && !at.IsZero():
			c.took.Observe(now.Sub(at).Seconds())
			c.heard[f.stream] = time.Time{}
		case f.kind == resetFrame, f.kind == headersFrame && f.flags&endStream != 0:
			delete(c.heard, f.stream)
		}
	})
	return n, err
}

// Frame types of RFC 9113, sections 4.1 and 6.
const (
	dataFrame, headersFrame, resetFrame = 0, 1, 3

	endStream = 1
	headBytes = 9
)

type frame struct {
	length      int
	kind, flags byte
	stream      uint32
}

// frames finds the frames in one direction of a connection, whatever the sizes of the reads.
type frames struct {
	head [headBytes]byte
	have int // bytes of head
	skip int // bytes that do not belong to a frame's head
	f    frame
}

// read calls a function for each frame after its last byte.
func (x *frames) read(b []byte, tell func(frame)) {
	for len(b) > 0 {
		if x.skip > 0 {
			n := min(x.skip, len(b))
			x.skip -= n
			if b = b[n:]; x.skip == 0 && x.have == headBytes {
				x.have = 0
				tell(x.f)
			}
			continue
		}
		n := copy(x.head[x.have:], b)
		x.have += n
		if b = b[n:]; x.have < headBytes {
			return
		}
		x.f = frame{length: int(x.head[0])<<16 | int(x.head[1])<<8 | int(x.head[2]), kind: x.head[3], flags: x.head[4],
			stream: binary.BigEndian.Uint32(x.head[5:]) &^ (1 << 31)}
		if x.skip = x.f.length; x.skip == 0 {
			x.have = 0
			tell(x.f)
		}
	}
}
