// Package eventually lets tests wait for a condition instead of a time.
package eventually

import (
	"testing"
	"time"
)

// patience is how long a condition may take on a very slow machine.
const patience = 3 * time.Minute

// maxWait is the longest pause between two checks. The most common check, of Envoy's statistics, costs CPU time.
const maxWait = 16 * time.Millisecond

// Is waits until ok returns true. If that does not happen, it fails the test; what names the condition.
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
