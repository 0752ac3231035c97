package serve

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// TakesTrailers tells whether a client has said that it reads trailers, as RFC
// 9110 wants it for fields that it can do without.
func TakesTrailers(r *http.Request) bool {
	for _, v := range r.Header["Te"] {
		if strings.Contains(strings.ToLower(v), "trailers") {
			return true
		}
	}
	return false
}

// Millis is a span in milliseconds, to the microsecond, as document 003's
// headers have it.
func Millis(t machine.Time) string {
	return strconv.FormatFloat(float64(t/machine.Microsecond)/1e3, 'f', -1, 64)
}
