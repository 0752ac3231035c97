// Package eventually is for tests that wait for a condition, and never for a
// time.
package eventually

import (
	"testing"
	"time"
)

// patience is how long a condition may take on the slowest of machines.
const patience = time.Minute

// Is waits until ok says true. It fails the test where that does not come; what
// says what was waited for.
func Is(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("waited %v for: %s", patience, what)
		case <-tick.C:
		}
	}
}
