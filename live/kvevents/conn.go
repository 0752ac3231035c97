package kvevents

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const (
	handshakeTimeout = 5 * time.Second
	handshakeBytes   = 4096
	sendTimeout      = 10 * time.Second
	maxFrames        = 16
	// DefaultMaxMessage bounds one received message, in bytes.
	DefaultMaxMessage = 16 << 20
	// DefaultMaxPods bounds the publishers that one subscriber keeps state for at a time.
	DefaultMaxPods = 10_000
)

// conn is one ZMTP connection over TCP.
type conn struct {
	guard *guard
	zmtp  *zmq4.Conn
	peer  net.Addr
}

// handshake opens a ZMTP connection on a new net.Conn. The argument server is true on the side that accepted the
// connection. On an error, handshake closes the net.Conn.
func handshake(nc net.Conn, kind zmq4.SocketType, server bool, maxMessage int) (c *conn, err error) {
	defer func() {
		// The library indexes the peer's metadata without checking it.
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("the peer's greeting is malformed: %v", p)
		}
		if err != nil {
			nc.Close()
			err = fmt.Errorf("ZMTP handshake with %s: %w", nc.RemoteAddr(), err)
		}
	}()
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	g := &guard{Conn: nc, in: bufio.NewReaderSize(nc, 64<<10), skip: 64, limit: handshakeBytes}
	z, err := zmq4.Open(g, null.Security(), kind, nil, server, nil)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	g.limit = uint64(maxMessage)
	g.out = bufio.NewWriterSize(nc, 64<<10)
	return &conn{g, z, nc.RemoteAddr()}, nil
}

// Send sends one message of one or more frames.
func (c *conn) Send(frames ...[]byte) error {
	if err := c.guard.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if err := c.zmtp.SendMsg(zmq4.NewMsgFrom(frames...)); err != nil {
		return err
	}
	return c.guard.out.Flush()
}

// Recv waits for the next message. Close ends the wait.
func (c *conn) Recv() (frames [][]byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			frames, err = nil, fmt.Errorf("malformed ZMTP from %s: %v", c.guard.RemoteAddr(), p)
		}
	}()
	for {
		msg, err := c.zmtp.RecvMsg()
		if err != nil {
			return nil, err
		}
		if msg.Type != zmq4.CmdMsg {
			return msg.Frames, nil
		}
	}
}

func (c *conn) Close() error { return c.guard.Close() }

var errTooLarge = errors.New("a ZMTP message is larger than the limit")

// guard follows the frames of a ZMTP stream as they are read. It fails the read before the library allocates memory
// for a frame that is too large. It buffers both directions.
type guard struct {
	net.Conn
	in  *bufio.Reader
	out *bufio.Writer

	skip    uint64 // bytes until the next frame's head; at first the greeting's length
	head    [9]byte
	headLen int
	limit   uint64 // bytes per message
	message uint64 // bytes of this message so far
	frames  int
}

func (g *guard) Read(p []byte) (int, error) {
	n, err := g.in.Read(p)
	if bad := g.follow(p[:n]); bad != nil {
		return 0, fmt.Errorf("from %s: %w", g.RemoteAddr(), bad)
	}
	return n, err
}

func (g *guard) Write(p []byte) (int, error) {
	if g.out == nil { // during the handshake
		return g.Conn.Write(p)
	}
	return g.out.Write(p)
}

// follow parses the frames' heads to know its position in the stream. A ZMTP 3.0 frame is a byte of flags (1: more
// frames follow; 2: the size has 8 bytes), the size, and the body.
func (g *guard) follow(p []byte) error {
	for len(p) > 0 {
		if g.skip > 0 {
			n := min(g.skip, uint64(len(p)))
			g.skip -= n
			p = p[n:]
			continue
		}
		g.head[g.headLen] = p[0]
		g.headLen++
		p = p[1:]
		need := 2
		if g.head[0]&2 != 0 {
			need = 9
		}
		if g.headLen < need {
			continue
		}
		size := uint64(g.head[1])
		if need == 9 {
			size = binary.BigEndian.Uint64(g.head[1:])
		}
		g.headLen = 0
		if g.frames++; size > g.limit || g.message+size > g.limit || g.frames > maxFrames {
			return fmt.Errorf("%w of %d bytes in %d frames", errTooLarge, g.limit, maxFrames)
		}
		g.message += size
		g.skip = size
		if g.head[0]&1 == 0 {
			g.message, g.frames = 0, 0
		}
	}
	return nil
}

// endpointAddress returns the host:port of an endpoint such as tcp://0.0.0.0:5555. As in ZMQ, * stands for every
// address.
func endpointAddress(endpoint string) (string, error) {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return "", fmt.Errorf("ZMQ endpoint %q: expected tcp://<address>:<port>", endpoint)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("ZMQ endpoint %q: %w (expected tcp://<address>:<port>)", endpoint, err)
	}
	if host == "*" {
		host = ""
	}
	return net.JoinHostPort(host, port), nil
}
