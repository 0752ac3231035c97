// Package pause waits for a time or for the end of a context, and wakes goroutines that wait for work.
package pause

import (
	"context"
	"time"
)

// For waits for a time and returns true. It returns false as soon as the context has ended.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Wake wakes the reader of a channel of capacity 1. It does nothing while the reader has not taken an earlier wake-up,
// because the reader then sees the new work with the old.
func Wake(reader chan<- struct{}) {
	select {
	case reader <- struct{}{}:
	default:
	}
}
