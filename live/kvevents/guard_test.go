package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"testing/iotest"
)

// reading is a connection that reads a stream.
func reading(stream []byte, one bool) *conn {
	c := &conn{Conn: &net.TCPConn{}, in: bufio.NewReader(bytes.NewReader(stream)), limit: 512}
	if one {
		c.in = bufio.NewReader(iotest.OneByteReader(bytes.NewReader(stream)))
	}
	return c
}

// messages are all that a connection receives, and why no more.
func (c *conn) messages() (out [][][]byte, err error) {
	for {
		m, err := c.Recv()
		if err != nil {
			return out, err
		}
		out = append(out, m)
	}
}

// Messages of known sizes: Recv stops at the first that is too large or has too many frames, and has all before it.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{3, 1, 0, 0, 128, 3})
	f.Add([]byte{100, 1, 29, 0})
	f.Add(make([]byte, 40))
	f.Fuzz(func(t *testing.T, frames []byte) {
		var stream []byte
		message, parts, whole, large := 0, 0, 0, false
		for ; len(frames) >= 2 && !large; frames = frames[2:] {
			size, flags := int(frames[0])*4, frames[1]&3 // 1: more frames follow; 2: the size has 8 bytes
			if size > 255 {
				flags |= 2
			}
			stream = append(stream, flags)
			if flags&2 != 0 {
				stream = binary.BigEndian.AppendUint64(stream, uint64(size))
			} else {
				stream = append(stream, byte(size))
			}
			stream = append(stream, make([]byte, size)...)
			message, parts = message+size, parts+1
			large = message > 512 || parts > maxFrames
			if flags&1 == 0 {
				message, parts = 0, 0
				if !large {
					whole++
				}
			}
		}
		got, err := reading(stream, false).messages()
		if errors.Is(err, errTooLarge) != large || len(got) != whole {
			t.Fatalf("a message too large: %v, received %d of %d messages, %v", large, len(got), whole, err)
		}
	})
}

// Of any bytes Recv makes the same however they are cut.
func FuzzGuardCuts(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 4, 0})
	f.Add([]byte{4, 1, 7, 1, 1, 8, 0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		want, err := reading(stream, false).messages()
		got, err2 := reading(stream, true).messages()
		if len(want) != len(got) || (err == nil) != (err2 == nil) {
			t.Fatalf("in one: %d, %v; in parts: %d, %v", len(want), err, len(got), err2)
		}
	})
}
