package modelserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

// The side channel is where one server asks another for the KV cache of a
// prompt, as NIXL's handshake does: one TCP connection per cache, one line of
// JSON per message. The asker names the engine and the blocks; the holder
// checks that it holds just these, and keeps them until the asker says
// release, or its own time limit passes. The bytes do not travel here but over
// the simulated network.

const (
	maxSideLine  = 4 << 20
	maxSideConns = 4096
	maxSideKey   = 1024             // bytes of a key
	sideTimeout  = 10 * time.Second // for one message of an asker
)

type sideRequest struct {
	Op       string `json:"op"` // hello, get, await, find or release
	EngineID string `json:"engine_id,omitempty"`
	Blocks   []int  `json:"block_ids,omitempty"`
	Request  string `json:"request_id,omitempty"`
	Key      string `json:"key,omitempty"` // of await: the cache that may still be computed
	// Hashes of find are a prompt's blocks, of which the asker wants as many as
	// are here.
	Hashes []uint64 `json:"hashes,omitempty"`
}

type sideAnswer struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
	// Waiting says that the cache is still to be computed; the answer proper
	// follows.
	Waiting bool `json:"waiting,omitempty"`
	// EngineID is the holder, which an asker with a key does not know.
	EngineID string `json:"engine_id,omitempty"`
}

// held are the caches that this server keeps for others.
type holds struct {
	mu   sync.Mutex
	byID map[int]*hold // by the first block
	by   map[uint64]*hold
	next int

	named   map[string]*hold           // by the key under which they are asked for
	waiting map[string][]chan struct{} // who asks for one that is not there yet
}

type hold struct {
	handle uint64
	key    string
	blocks []int
	tokens int
}

func (h *holds) add(handle uint64, count, tokens int) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID == nil {
		h.byID, h.by = map[int]*hold{}, map[uint64]*hold{}
	}
	x := &hold{handle: handle, tokens: tokens, blocks: make([]int, max(count, 1))}
	for i := range x.blocks {
		h.next = (h.next + 1) % (1 << 30) // a cache has far fewer, so none comes again while it is held
		x.blocks[i] = h.next
	}
	h.byID[x.blocks[0]], h.by[handle] = x, x
	return x
}

func (h *holds) remove(handle uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.by[handle]; x != nil {
		delete(h.by, handle)
		delete(h.byID, x.blocks[0])
		if h.named[x.key] == x {
			delete(h.named, x.key)
		}
	}
}

func (h *holds) holding(handle uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[handle] != nil
}

func (h *holds) find(blocks []int) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(blocks) == 0 {
		return nil
	}
	x := h.byID[blocks[0]]
	if x == nil || !slices.Equal(x.blocks, blocks) {
		return nil
	}
	return x
}

// sideChannel is a server's end of it.
type sideChannel struct {
	s        *Server
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	closed   bool
	done     sync.WaitGroup // of those who ask
}

// address is where others find the side channel; the first call opens it where
// the options did not say, on the server's own address and any port.
func (c *sideChannel) address() (host string, port int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return "", 0, net.ErrClosed
	}
	if c.listener == nil {
		if err := c.listen(net.JoinHostPort(c.s.listenHost(), "0")); err != nil {
			return "", 0, err
		}
	}
	a, ok := c.listener.Addr().(*net.TCPAddr)
	if !ok {
		return "", 0, fmt.Errorf("side channel: not a TCP address: %v", c.listener.Addr())
	}
	if a.IP.IsUnspecified() || c.s.opts.SideChannel == "" {
		return c.s.host, a.Port, nil
	}
	return a.IP.String(), a.Port, nil
}

// listen opens the channel; c.mu is held.
func (c *sideChannel) listen(address string) error {
	l, err := serve.Listen("KV caches", address)
	if err != nil {
		return err
	}
	c.listener, c.conns = l, map[net.Conn]bool{}
	c.s.serving.Go("KV caches at "+l.Addr().String(), func() error { return c.accept(l) })
	return nil
}

// accept takes askers until the channel is closed.
func (c *sideChannel) accept(l net.Listener) error {
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
		case err != nil: // out of descriptors, most likely
			c.mu.Unlock()
			pause.For(c.s.ctx, 100*time.Millisecond)
			continue
		case len(c.conns) >= maxSideConns:
			c.mu.Unlock()
			_ = conn.Close() // the asker sees a failed transfer
			continue
		}
		c.conns[conn] = true
		c.done.Go(func() { c.serve(conn) })
		c.mu.Unlock()
	}
}

func (c *sideChannel) close() {
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

func (c *sideChannel) serve(conn net.Conn) {
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
	var asked *hold
	for {
		var q sideRequest
		// Between get and release lies the transfer, so the asker has as long as
		// the holder keeps the blocks.
		limit := sideTimeout
		if asked != nil {
			limit = c.s.cfg.KVHoldTimeout.Duration()
		}
		_ = conn.SetDeadline(time.Now().Add(limit))
		if err := readLine(r, &q); err != nil {
			return
		}
		a := sideAnswer{OK: true}
		switch {
		case q.Op == "hello":
			a.EngineID = c.s.reader.EngineID
		case len(q.Key) > maxSideKey:
			a = sideAnswer{Error: fmt.Sprintf("a key of %d bytes; expected at most %d", len(q.Key), maxSideKey)}
		case q.Op == "get" && q.EngineID != c.s.reader.EngineID:
			a = sideAnswer{Error: fmt.Sprintf("this is engine %s and not %s", c.s.reader.EngineID, q.EngineID)}
		case q.Op == "get":
			if asked = c.s.holds.find(q.Blocks); asked == nil {
				a = sideAnswer{Error: "these blocks are not held here: they were released, have expired, or never were"}
			} else {
				a.Tokens = asked.tokens
			}
		case q.Op == "await" && q.EngineID != "" && q.EngineID != c.s.reader.EngineID:
			a = sideAnswer{Error: fmt.Sprintf("this is engine %s and not %s", c.s.reader.EngineID, q.EngineID)}
		case q.Op == "await":
			if asked = c.await(conn, r, q.Key); asked == nil {
				a = sideAnswer{Error: "nobody has prefilled this request here in time"}
			} else {
				a.Tokens, a.EngineID = asked.tokens, c.s.reader.EngineID
			}
		case q.Op == "find":
			a.Tokens, a.EngineID = c.s.cachedTokens(q.Hashes), c.s.reader.EngineID
		case q.Op == "release" && asked != nil:
			c.s.loop.send(engine.KVReleased{Handle: asked.handle})
		default:
			a = sideAnswer{Error: fmt.Sprintf("unexpected %q; expected get, then release", q.Op)}
		}
		if writeLine(conn, a) != nil || !a.OK || q.Op == "release" || q.Op == "find" || q.Op == "hello" {
			return
		}
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
