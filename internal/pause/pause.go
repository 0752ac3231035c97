// Package pause waits, but not longer than somebody cares.
package pause

import (
	"context"
	"time"
)

// For waits for a time and says whether it has passed; false means that the
// context ended first, or had ended before.
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
