package vllmgrpc

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// frameHeader is the length in bytes of the prefix of every message: a flag and the message's length.
const frameHeader = 5

// Error is the reason why a call's message cannot be read.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }

func errorf(code Code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// ReadMessage parses the one message of a unary or server-streaming call. All its errors are of type Error.
func ReadMessage(body []byte, m proto.Message) error {
	switch {
	case len(body) < frameHeader:
		return errorf(Internal, "a gRPC message begins with %d bytes, got %d", frameHeader, len(body))
	case body[0] == 1:
		return errorf(Unimplemented,
			"compressed messages are not supported; send them as they are (grpc-encoding: identity)")
	case body[0] != 0:
		return errorf(Internal, "a gRPC message begins with the flag 0 or 1, got %d", body[0])
	}
	n := uint64(binary.BigEndian.Uint32(body[1:]))
	if rest := uint64(len(body) - frameHeader); n != rest {
		return errorf(Internal, "the call takes one message: it is said to have %d bytes, and %d came", n, rest)
	}
	if err := proto.Unmarshal(body[frameHeader:], m); err != nil {
		return errorf(Internal, "%v", err)
	}
	return nil
}

// Next takes the first message off a stream of messages. It returns the content of the message's frame, and the rest.
// ok is false if the stream does not contain all of it; need is then the length of the whole message in bytes, as far
// as it is known.
func Next(stream []byte) (message, rest []byte, need uint64, ok bool) {
	if len(stream) < frameHeader {
		return nil, stream, frameHeader, false
	}
	need = frameHeader + uint64(binary.BigEndian.Uint32(stream[1:]))
	if uint64(len(stream)) < need {
		return nil, stream, need, false
	}
	return stream[frameHeader:need], stream[need:], need, true
}

// AppendMessage appends one message with its frame.
func AppendMessage(b []byte, m proto.Message) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHeader)...)
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m)
	if err != nil {
		// Only a string that is not UTF-8 can fail. The server's own strings always are UTF-8.
		return b[:at]
	}
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-frameHeader))
	return b
}
