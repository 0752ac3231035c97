package record

import (
	"fmt"
	"strconv"
	"strings"
)

// RequestID returns the id of a run's nth request, counted from 1. Every hop knows the request by this id, and every
// view shows its number.
func RequestID(seed uint64, n int) string {
	b := make([]byte, 0, 32)
	b = append(strconv.AppendUint(append(b, "req-"...), seed, 10), '-')
	for digits := 100_000; digits > max(n, 1); digits /= 10 {
		b = append(b, '0')
	}
	return string(strconv.AppendInt(b, int64(n), 10))
}

// RequestPrefix returns the prefix of all request ids of a run.
func RequestPrefix(seed uint64) string { return fmt.Sprintf("req-%d-", seed) }

// RequestNumber returns the number in an id that RequestID made; false for ids of other clients' requests.
func RequestNumber(id string) (n int, ok bool) {
	rest, ok := strings.CutPrefix(id, "req-")
	if !ok {
		return 0, false
	}
	_, number, ok := strings.Cut(rest, "-")
	if !ok || len(number) < 6 || strings.Trim(number, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(number)
	return n, err == nil && n > 0
}

// shortID is the length in bytes to which Label cuts another client's id.
const shortID = 8

// Label returns the name of a request in views: #7 for the run's seventh, else the beginning of its id.
func Label(id string) string {
	if n, ok := RequestNumber(id); ok {
		return "#" + strconv.Itoa(n)
	}
	if len(id) > shortID {
		return strings.ToValidUTF8(id[:shortID], "")
	}
	return id
}

// Named reports whether name means the request with this id: it may be the id, its number (7, #7), or a beginning of
// the id that is at least as long as a Label.
func Named(name, id string) bool {
	if n, ok := RequestNumber(id); ok {
		return name == id || strings.TrimPrefix(name, "#") == strconv.Itoa(n)
	}
	return name == id || len(name) >= shortID && strings.HasPrefix(id, name)
}
