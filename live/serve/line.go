package serve

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/internal/pause"
)

// Line holds the connections of a part that incidents break and slow down. The zero value does neither. All methods
// are safe for concurrent use.
type Line struct {
	delay atomic.Int64 // time.Duration

	mu    sync.Mutex // guards the fields below
	cut   bool
	conns map[*conn]struct{}
}

// Listener returns a listener whose connections are on the line; l itself without a line.
func (x *Line) Listener(l net.Listener) net.Listener {
	if x == nil {
		return l
	}
	return &lineListener{l, x}
}

// Dial returns a function that dials connections on the line; dial itself without a line.
func (x *Line) Dial(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string,
	string) (net.Conn, error) {
	if x == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil {
			c = x.add(c)
		}
		return c, err
	}
}

// errNoLine is the error of incidents that a run is not prepared for.
var errNoLine = errors.New("the connections cannot be broken or delayed: only a scenario with such an incident " +
	"prepares for it")

// Cut resets all connections of the line, and with stay new ones until Mend.
func (x *Line) Cut(stay bool) error {
	if x == nil {
		return errNoLine
	}
	x.mu.Lock()
	x.cut = stay
	var open []*conn
	for c := range x.conns {
		open = append(open, c)
	}
	x.mu.Unlock()
	for _, c := range open {
		c.reset()
	}
	return nil
}

// Mend accepts new connections again.
func (x *Line) Mend() error {
	x.mu.Lock()
	x.cut = false
	x.mu.Unlock()
	return nil
}

// Delay makes everything that is sent or received from now on so much later.
func (x *Line) Delay(by time.Duration) error {
	if x == nil {
		return errNoLine
	}
	x.delay.Store(int64(by))
	return nil
}

func (x *Line) add(c net.Conn) net.Conn {
	life, end := context.WithCancel(context.Background())
	out := &conn{Conn: c, line: x, life: life, end: end}
	out.room.L = &out.mu
	x.mu.Lock()
	if x.conns == nil {
		x.conns = map[*conn]struct{}{}
	}
	x.conns[out] = struct{}{}
	cut := x.cut
	x.mu.Unlock()
	if cut {
		out.reset()
	}
	return out
}

type lineListener struct {
	net.Listener
	line *Line
}

// Accept implements net.Listener.
func (l *lineListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.line.add(c), nil
}

// conn is a connection on a line.
type conn struct {
	net.Conn
	line *Line
	life context.Context // ends when the connection is closed
	end  context.CancelFunc

	mu      sync.Mutex // guards the fields below
	queue   []late     // what was written and not sent yet
	bytes   int        // in the queue
	room    sync.Cond  // signals that the queue is shorter, or the connection closed
	closing bool       // Close was called while the queue was not empty
}

// Bounds of a delayed connection: the bytes that Write queues before it waits, and the time that Close gives a peer to
// read what is queued.
const (
	mostQueued = 4 << 20
	lingers    = 10 * time.Second
)

// late is a piece that is sent at a time.
type late struct {
	at   time.Time
	data []byte
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if d := c.line.delay.Load(); d > 0 && n > 0 {
		pause.For(c.life, time.Duration(d))
	}
	return n, err
}

// Write implements net.Conn. It waits for delayed pieces only if the queue is full.
func (c *conn) Write(p []byte) (int, error) {
	d := time.Duration(c.line.delay.Load())
	c.mu.Lock()
	if len(c.queue) == 0 && d == 0 {
		c.mu.Unlock()
		return c.Conn.Write(p)
	}
	defer c.mu.Unlock()
	for c.bytes >= mostQueued && c.life.Err() == nil {
		c.room.Wait()
	}
	if c.life.Err() != nil {
		return 0, net.ErrClosed
	}
	c.bytes += len(p)
	if c.queue = append(c.queue, late{time.Now().Add(d), bytes.Clone(p)}); len(c.queue) == 1 {
		go c.send()
	}
	return len(p), nil
}

// send sends the queue, each piece at its time.
func (c *conn) send() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		next := c.queue[0]
		c.mu.Unlock()
		open := pause.For(c.life, time.Until(next.at))
		var err error
		if open {
			_, err = c.Conn.Write(next.data)
		}
		c.mu.Lock()
		c.bytes -= len(next.data)
		c.room.Signal()
		if c.queue = slices.Delete(c.queue, 0, 1); !open || err != nil {
			c.queue, c.bytes, c.closing = nil, 0, true
		}
	}
	if c.closing {
		_ = c.close() // who closed the connection does not wait
	}
}

// Close implements net.Conn. What was written before is sent first.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 {
		c.closing = true
		return c.Conn.SetWriteDeadline(c.queue[len(c.queue)-1].at.Add(lingers))
	}
	return c.close()
}

// close closes the connection. The caller holds the lock.
func (c *conn) close() error {
	c.end()
	c.room.Broadcast()
	c.line.mu.Lock()
	delete(c.line.conns, c)
	c.line.mu.Unlock()
	return c.Conn.Close()
}

// reset closes the connection at once, which the peer sees as a reset.
func (c *conn) reset() {
	if t, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		if err := t.SetLinger(0); errors.Is(err, net.ErrClosed) {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.close() // the reader and the writer get the error
}
