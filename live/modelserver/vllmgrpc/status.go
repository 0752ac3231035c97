package vllmgrpc

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// ContentType is the content type of requests and responses.
const ContentType = "application/grpc"

// IsGRPC says whether a content type is gRPC's with protobuf messages.
func IsGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, ContentType)
	return ok && (rest == "" || rest == "+proto" || strings.HasPrefix(rest, ";"))
}

// CodeOf is the code for what an HTTP client would be answered with.
func CodeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusOK:
		return codes.OK
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return codes.Unavailable
	case http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	}
	if httpStatus >= 500 {
		return codes.Internal
	}
	return codes.Unknown
}

// EscapeMessage writes a status message as its trailer carries it: printable
// ASCII as it is, every other byte as %XX.
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
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// ParseTimeout reads the header grpc-timeout: up to eight digits and a unit.
func ParseTimeout(v string) (time.Duration, error) {
	errForm := errors.New("grpc-timeout: expected up to eight digits and one of H, M, S, m, u, n, got " + strconv.Quote(v))
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
