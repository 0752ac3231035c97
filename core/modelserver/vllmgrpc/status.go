package vllmgrpc

import (
	"errors"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ContentType is the content type of requests and responses.
const ContentType = "application/grpc"

// IsGRPC reports whether a content type is gRPC's with protobuf messages.
func IsGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, ContentType)
	return ok && (rest == "" || rest == "+proto" || strings.HasPrefix(rest, ";"))
}

// Code is gRPC's status of a call.
type Code uint32

// The codes of https://grpc.io/docs/guides/status-codes.
const (
	OK                Code = 0
	Unknown           Code = 2
	InvalidArgument   Code = 3
	DeadlineExceeded  Code = 4
	NotFound          Code = 5
	PermissionDenied  Code = 7
	ResourceExhausted Code = 8
	Unimplemented     Code = 12
	Internal          Code = 13
	Unavailable       Code = 14
	Unauthenticated   Code = 16
)

// CodeOf returns the code that corresponds to an HTTP status.
func CodeOf(httpStatus int) Code {
	for _, x := range statuses {
		if x.status == httpStatus {
			return x.code
		}
	}
	if httpStatus >= 500 {
		return Internal
	}
	return Unknown
}

// HTTPOf returns the HTTP status that corresponds to a code.
func HTTPOf(code Code) int {
	for _, x := range statuses {
		if x.code == code {
			return x.status
		}
	}
	return 500
}

// statuses maps codes to HTTP statuses, the most general code first.
var statuses = []struct {
	code   Code
	status int
}{
	{OK, 200}, {InvalidArgument, 400}, {Unauthenticated, 401}, {PermissionDenied, 403}, {NotFound, 404},
	{ResourceExhausted, 429}, {Internal, 500},
	{Unimplemented, 501}, {Unavailable, 503}, {DeadlineExceeded, 504}, {ResourceExhausted, 413}, {Unavailable, 502},
}

// EnvoyCodeOf returns the code that Envoy sends in a local reply, or in a reply of its endpoint picker, with an HTTP
// status (its Grpc::Utility::httpToGrpcStatus).
func EnvoyCodeOf(httpStatus int) Code {
	switch httpStatus {
	case 400:
		return Internal
	case 401:
		return Unauthenticated
	case 403:
		return PermissionDenied
	case 404:
		return Unimplemented
	case 429, 502, 503, 504:
		return Unavailable
	}
	return Unknown
}

// HTTPMessage returns the status message of a call that is answered with an HTTP status and nothing else.
func HTTPMessage(httpStatus int) string { return "HTTP status " + strconv.Itoa(httpStatus) }

// ReadStatus parses the status of a call from the headers Grpc-Status and Grpc-Message. It returns false without a
// status.
func ReadStatus(code, message string) (Code, string, bool) {
	n, err := strconv.ParseUint(code, 10, 32)
	if err != nil {
		return 0, "", false
	}
	if text, err := url.PathUnescape(message); err == nil {
		message = text
	}
	return Code(n), message, true
}

// EscapeMessage encodes a status message for its trailer: printable ASCII unchanged, every other byte as %XX.
func EscapeMessage(message string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(message) {
		if c := message[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond,
	'n': time.Nanosecond,
}

// ParseTimeout parses the header grpc-timeout: up to eight digits and a unit.
func ParseTimeout(v string) (time.Duration, error) {
	errForm := errors.New("grpc-timeout: expected up to eight digits and one of H, M, S, m, u, n, got " +
		strconv.Quote(v))
	if len(v) < 2 || len(v) > 9 {
		return 0, errForm
	}
	unit, ok := timeoutUnits[v[len(v)-1]]
	n, err := strconv.ParseUint(v[:len(v)-1], 10, 63)
	if !ok || err != nil {
		return 0, errForm
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * unit, nil
}
