package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// link is one ZMTP connection: all that this package needs of ZMQ.
type link interface {
	Send(frames ...[]byte) error
	Recv() (frames [][]byte, err error)
}

const (
	handshakeTimeout = 5 * time.Second
	handshakeBytes   = 4096
	sendTimeout      = 10 * time.Second
	maxFrames        = 16
	// DefaultMaxMessage bounds one message from outside, in bytes.
	DefaultMaxMessage = 16 << 20
	// DefaultMaxPods is how many publishers one subscriber knows at a time.
	DefaultMaxPods = 10_000
)

// socket is a type of ZMQ socket, by its name in ZMTP.
type socket string

const (
	pubSocket    socket = "PUB"
	subSocket    socket = "SUB"
	routerSocket socket = "ROUTER"
	dealerSocket socket = "DEALER"
)

// talksTo are the types of socket that a peer may have.
var talksTo = map[socket][]socket{pubSocket: {subSocket, "XSUB"}, subSocket: {pubSocket, "XPUB"},
	routerSocket: {dealerSocket, routerSocket, "REQ"}, dealerSocket: {dealerSocket, routerSocket, "REP"}}

// conn is a link over TCP: ZMTP 3.0 (rfc.zeromq.org/spec/23) with the NULL mechanism.
type conn struct {
	net.Conn
	in    *bufio.Reader
	out   *bufio.Writer
	limit uint64 // bytes of a message
}

// The bits of a frame's first byte.
const (
	moreFrames = 1
	longFrame  = 2
	command    = 4
)

// greeting begins a connection: the signature, version 3.0 and the mechanism NULL, and zeros up to 64 bytes.
var greeting = append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x00NULL"), make([]byte, 48)...)

// handshake opens a ZMTP connection on a fresh net.Conn, which is closed if it fails.
func handshake(nc net.Conn, kind socket, maxMessage int) (c *conn, err error) {
	defer func() {
		if err != nil {
			nc.Close()
			err = fmt.Errorf("ZMTP handshake with %s: %w", nc.RemoteAddr(), err)
		}
	}()
	if err := nc.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	c = &conn{Conn: nc, in: bufio.NewReaderSize(nc, 64<<10), out: bufio.NewWriterSize(nc, 64<<10),
		limit: handshakeBytes}
	if _, err := nc.Write(greeting); err != nil {
		return nil, err
	}
	peer := make([]byte, len(greeting))
	if _, err := io.ReadFull(c.in, peer); err != nil {
		return nil, err
	}
	switch mechanism := bytes.TrimRight(peer[12:32], "\x00"); {
	case peer[0] != greeting[0] || peer[9]&1 == 0 || peer[10] < 3:
		return nil, fmt.Errorf("found the greeting %x; expected that of ZMTP 3", peer[:12])
	case string(mechanism) != "NULL":
		return nil, fmt.Errorf("found the mechanism %q; expected NULL", mechanism)
	}
	if err := c.write(command, property([]byte("\x05READY"), "Socket-Type", string(kind))); err != nil {
		return nil, err
	}
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	flags, body, err := c.read(c.limit)
	if err != nil {
		return nil, err
	}
	ready, isReady := bytes.CutPrefix(body, []byte("\x05READY"))
	if flags&command == 0 || !isReady {
		return nil, fmt.Errorf("found %.40q; expected the command READY", body)
	}
	if of := socket(propertyOf(ready, "Socket-Type")); !slices.Contains(talksTo[kind], of) {
		return nil, fmt.Errorf("found a %.20s socket; expected one of %s", of, talksTo[kind])
	}
	c.limit = uint64(maxMessage)
	return c, nc.SetDeadline(time.Time{})
}

// property appends a property of a command: its name and its value, each behind its length.
func property(to []byte, name, value string) []byte {
	to = append(append(to, byte(len(name))), name...)
	return append(binary.BigEndian.AppendUint32(to, uint32(len(value))), value...)
}

// propertyOf is a property of a command; nil where it is not there, or where the list of properties is malformed before it.
func propertyOf(list []byte, name string) []byte {
	for len(list) > 0 {
		n := 1 + int(list[0])
		if len(list) < n+4 {
			return nil
		}
		size := binary.BigEndian.Uint32(list[n:])
		if uint64(len(list)-n-4) < uint64(size) {
			return nil
		}
		if bytes.EqualFold(list[1:n], []byte(name)) {
			return list[n+4 : n+4+int(size)]
		}
		list = list[n+4+int(size):]
	}
	return nil
}

// Send sends one message of several frames.
func (c *conn) Send(frames ...[]byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	for i, frame := range frames {
		flags := byte(moreFrames)
		if i == len(frames)-1 {
			flags = 0
		}
		if err := c.write(flags, frame); err != nil {
			return err
		}
	}
	return c.out.Flush()
}

func (c *conn) write(flags byte, body []byte) error {
	head := append(c.out.AvailableBuffer(), flags, byte(len(body)))
	if len(body) > 255 {
		head[0] |= longFrame
		head = binary.BigEndian.AppendUint64(head[:1], uint64(len(body)))
	}
	if _, err := c.out.Write(head); err != nil {
		return err
	}
	_, err := c.out.Write(body)
	return err
}

var errTooLarge = errors.New("a ZMTP message is larger than the limit")

// Recv waits for the next message; Close ends the wait.
func (c *conn) Recv() (frames [][]byte, err error) {
	left := c.limit
	for {
		flags, body, err := c.read(left)
		switch {
		case err == nil && flags&command != 0 && len(frames) == 0:
			continue // no peer has one that matters here
		case err == nil && flags&^(moreFrames|longFrame) != 0:
			err = fmt.Errorf("malformed ZMTP from %s: a frame with the flags %x", c.RemoteAddr(), flags)
		case err == nil && len(frames) == maxFrames:
			err = errTooLarge
		}
		if err != nil {
			return nil, err
		}
		frames = append(frames, body)
		left -= uint64(len(body))
		if flags&moreFrames == 0 {
			return frames, nil
		}
	}
}

// read reads a frame of at most so many bytes.
func (c *conn) read(most uint64) (flags byte, body []byte, err error) {
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	width := 1
	if flags&longFrame != 0 {
		width = 8
	}
	size, err := c.in.Peek(width)
	if err != nil {
		return 0, nil, err
	}
	n := uint64(0)
	for _, b := range size {
		n = n<<8 | uint64(b)
	}
	_, _ = c.in.Discard(width) // they are there
	if n > most {
		return 0, nil, fmt.Errorf("%w of %d bytes in %d frames", errTooLarge, c.limit, maxFrames)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(c.in, body)
	return flags, body, err
}

// endpointAddress is the host:port of an endpoint like tcp://0.0.0.0:5555. As
// in ZMQ, * is every address.
func endpointAddress(endpoint string) (string, error) {
	const scheme = "tcp://"
	if len(endpoint) < len(scheme) || endpoint[:len(scheme)] != scheme {
		return "", fmt.Errorf("ZMQ endpoint %q: expected tcp://<address>:<port>", endpoint)
	}
	host, port, err := net.SplitHostPort(endpoint[len(scheme):])
	if err != nil {
		return "", fmt.Errorf("ZMQ endpoint %q: %w (expected tcp://<address>:<port>)", endpoint, err)
	}
	if host == "*" {
		host = ""
	}
	return net.JoinHostPort(host, port), nil
}
