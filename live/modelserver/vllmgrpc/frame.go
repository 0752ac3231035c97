package vllmgrpc

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// frameHeader is the length in bytes of what stands before every message: a
// flag and the message's length.
const frameHeader = 5

// ReadMessage reads the one message of a unary or server-streaming call. Its
// errors carry gRPC status codes.
func ReadMessage(body []byte, m proto.Message) error {
	switch {
	case len(body) < frameHeader:
		return status.Error(codes.Internal, fmt.Sprintf("a gRPC message begins with %d bytes, got %d", frameHeader, len(body)))
	case body[0] == 1:
		return status.Error(codes.Unimplemented, "compressed messages are not supported; send them as they are (grpc-encoding: identity)")
	case body[0] != 0:
		return status.Error(codes.Internal, fmt.Sprintf("a gRPC message begins with the flag 0 or 1, got %d", body[0]))
	}
	n := uint64(binary.BigEndian.Uint32(body[1:]))
	if rest := uint64(len(body) - frameHeader); n != rest {
		return status.Error(codes.Internal, fmt.Sprintf("the call takes one message: it is said to have %d bytes, and %d came", n, rest))
	}
	if err := proto.Unmarshal(body[frameHeader:], m); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// AppendMessage appends one message with its frame.
func AppendMessage(b []byte, m proto.Message) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHeader)...)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err != nil {
		// Only a string that is no UTF-8 can do this; the server's own never are.
		return b[:at]
	}
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-frameHeader))
	return b
}
