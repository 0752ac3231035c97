// Package eventually is for tests that wait for a condition, and never for a
// time.
package eventually

import (
	"testing"
	"time"
)

// patience is how long a condition may take on the slowest of machines.
const patience = time.Minute

// maxWait is the longest wait between two looks. What many tests look at, Envoy's statistics, costs CPU time.
const maxWait = 16 * time.Millisecond

// Is waits until ok says true. It fails the test where that does not come; what
// says what was waited for.
func Is(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for wait := time.Millisecond; !ok(); wait = min(2*wait, maxWait) {
		select {
		case <-deadline.C:
			t.Fatalf("waited %v for: %s", patience, what)
		case <-time.After(wait):
		}
	}
}
