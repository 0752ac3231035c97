package kvtransfer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

// The side channel is where one server asks another for the KV cache of a prompt, like NIXL's handshake: one TCP
// connection for each cache, one line of JSON for each message. The caller names the engine and the blocks. The holder
// checks that it holds exactly these blocks, and keeps them until the caller sends release or the holder's own time
// limit ends. The bytes do not use this connection; they travel over the simulated network.

const (
	maxSideLine  = 4 << 20
	maxSideConns = 4096
	sideTimeout  = 10 * time.Second // for one message from a caller
)

type sideRequest struct {
	Op       string `json:"op"` // hello, get, await, find or release
	EngineID string `json:"engine_id,omitempty"`
	Blocks   []int  `json:"block_ids,omitempty"`
	Request  string `json:"request_id,omitempty"`
	Key      string `json:"key,omitempty"` // for await: the cache, which may not be computed yet
	// Hashes, for find, are a prompt's blocks. The caller wants as many of them as the holder has.
	Hashes []uint64 `json:"hashes,omitempty"`
}

type sideAnswer struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
	// Waiting means that the cache is not computed yet, and that a further answer follows.
	Waiting bool `json:"waiting,omitempty"`
	// EngineID names the holder, because a caller with a key does not know it.
	EngineID string `json:"engine_id,omitempty"`
}

func sideRequestOf(q *enginecore.Question) sideRequest {
	return sideRequest{Op: string(q.Op), EngineID: q.EngineID, Blocks: q.Blocks.Numbers(), Key: q.Key, Hashes: q.Hashes}
}

func (q *sideRequest) question() enginecore.Question {
	return enginecore.Question{Op: enginecore.Op(q.Op), EngineID: q.EngineID, Blocks: connector.BlocksOf(q.Blocks),
		Key: q.Key, Hashes: q.Hashes}
}

func sideAnswerOf(r *enginecore.Reply) sideAnswer {
	return sideAnswer{OK: r.Err == "", Error: r.Err, Tokens: r.Tokens, Waiting: r.Waiting, EngineID: r.EngineID}
}

func (a *sideAnswer) reply() enginecore.Reply {
	r := enginecore.Reply{Err: a.Error, Tokens: a.Tokens, Waiting: a.Waiting, EngineID: a.EngineID}
	if !a.OK && r.Err == "" {
		r.Err = "refused without a reason"
	}
	return r
}

// channel is a port where other servers ask: the side channel or the meeting port.
type channel struct {
	e        *End
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	closed   bool
	done     sync.WaitGroup // counts the callers
}

// Address returns the address of the side channel. If the options set no address, the first call opens the side channel
// on the server's own address and any port. A channel on that address has the host that the server gives to others.
func (e *End) Address() (host string, port int, err error) {
	c := &e.side
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return "", 0, net.ErrClosed
	}
	if c.listener == nil {
		if err := c.listen(net.JoinHostPort(e.o.ListenHost, "0")); err != nil {
			return "", 0, err
		}
	}
	a, ok := c.listener.Addr().(*net.TCPAddr)
	if !ok {
		return "", 0, fmt.Errorf("side channel: not a TCP address: %v", c.listener.Addr())
	}
	if a.IP.IsUnspecified() || e.o.SideChannel == "" || a.IP.String() == e.o.ListenHost {
		return e.host, a.Port, nil
	}
	return a.IP.String(), a.Port, nil
}

// open listens at an address.
func (c *channel) open(address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listen(address)
}

// listen is open with c.mu locked.
func (c *channel) listen(address string) error {
	l, err := serve.Listen("KV caches", address)
	if err != nil {
		return err
	}
	c.listener, c.conns = l, map[net.Conn]bool{}
	c.e.o.Log.Info(c.e.name()+" side channel listens", "server", c.e.o.Name, "address", l.Addr().String())
	c.e.o.Announced.Go("KV caches at "+l.Addr().String(), func() error { return c.accept(l) })
	return nil
}

// accept serves callers until the channel is closed.
func (c *channel) accept(l net.Listener) error {
	for {
		conn, err := l.Accept()
		c.mu.Lock()
		switch {
		case c.closed && err == nil:
			_ = conn.Close()
			fallthrough
		case c.closed:
			c.mu.Unlock()
			return nil
		case errors.Is(err, net.ErrClosed):
			c.mu.Unlock()
			return err
		case err != nil: // most likely, no file descriptors are left
			c.mu.Unlock()
			pause.For(c.e.ctx, 100*time.Millisecond)
			continue
		case len(c.conns) >= maxSideConns:
			c.mu.Unlock()
			_ = conn.Close() // the caller sees a failed transfer
			continue
		}
		c.conns[conn] = true
		c.done.Go(func() { c.serve(conn) })
		c.mu.Unlock()
	}
}

func (c *channel) close() {
	c.mu.Lock()
	c.closed = true
	if c.listener != nil {
		_ = c.listener.Close()
	}
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.mu.Unlock()
	c.done.Wait()
}

func (c *channel) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
	}()
	r := bufio.NewReader(io.LimitReader(conn, 2*maxSideLine))
	if c.isHTTP(conn, r) {
		c.bootstrap(conn, r)
		return
	}
	var number enginecore.Inquiry
	defer func() {
		if number != 0 {
			c.e.left(number)
		}
	}()
	answers := make(chan enginecore.Answer, 2) // a reply that the cache is not ready, and then the cache
	limit := sideTimeout
	for {
		var q sideRequest
		_ = conn.SetDeadline(time.Now().Add(limit))
		if readLine(r, &q) != nil {
			return
		}
		c.e.o.Log.Info(c.e.name()+" side channel asked", "server", c.e.o.Name, "by", conn.RemoteAddr().String(), "op",
			q.Op, "blocks", max(len(q.Blocks), len(q.Hashes)))
		if !c.e.inquire(&number, q.question(), answers) {
			return
		}
		a, ok := c.answer(conn, r, answers)
		if !ok || a.Last {
			return
		}
		// The transfer takes place between get and release, so the caller has as long as the holder keeps the blocks.
		limit = c.e.o.Keeps.Duration()
	}
}

// answer sends the core's answers, and waits for a cache that is not computed yet. It returns false if the caller has
// left. An caller that waits sends nothing.
func (c *channel) answer(conn net.Conn, r *bufio.Reader, answers <-chan enginecore.Answer) (a enginecore.Answer,
	ok bool) {
	var left chan struct{}
	for {
		select {
		case a = <-answers:
		case <-left:
			return a, false
		case <-c.e.o.Engine.Done():
			return a, false
		}
		if left != nil {
			_ = conn.SetDeadline(time.Unix(1, 0)) // ends the Peek
			<-left
			_ = conn.SetDeadline(time.Now().Add(sideTimeout))
		}
		if writeLine(conn, sideAnswerOf(&a.Reply)) != nil {
			return a, false
		}
		if !a.Reply.Waiting {
			return a, true
		}
		_ = conn.SetDeadline(time.Time{})
		left = make(chan struct{})
		go func() {
			_, _ = r.Peek(1) // the caller's next message, or the end of the connection
			close(left)
		}()
	}
}

func readLine(r *bufio.Reader, into any) error {
	line, err := r.ReadSlice('\n')
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) && len(long) < maxSideLine {
		long = append(long, line...)
		line, err = r.ReadSlice('\n')
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(append(long, line...), into)
}

func writeLine(w io.Writer, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}
