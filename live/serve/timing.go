package serve

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// TakesTrailers reports whether a client accepts trailers (RFC 9110). Optional fields may be sent in trailers only
// then.
func TakesTrailers(r *http.Request) bool {
	return strings.Contains(strings.ToLower(strings.Join(r.Header["Te"], ",")), "trailers")
}

// Millis formats a duration in milliseconds, to the microsecond, as document 003's headers do.
func Millis(t machine.Time) string {
	return strconv.FormatFloat(float64(t/machine.Microsecond)/1e3, 'f', -1, 64)
}
