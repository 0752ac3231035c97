package epp

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A picker that stops serves clients that are connected and never check its health until they stop sending, for some
// seconds at most, and ends at once without clients.
func TestStopAwaitsClientsThatNeverCheck(t *testing.T) {
	for name, c := range map[string]struct {
		open        int
		sends, want time.Duration
	}{
		"nobody":                  {0, 0, 0},
		"a silent client":         {1, 0, 5 * time.Millisecond},
		"it learns in a second":   {1, time.Second, time.Second + quiet},
		"it does not learn of it": {1, time.Minute, quietLimit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := healthChecks{open: c.open}, time.Now()
				ctx, stop := context.WithCancel(t.Context())
				var sends sync.WaitGroup
				sends.Go(func() {
					for ctx.Err() == nil && time.Since(began) < c.sends {
						h.lastRequest.Store(time.Now().UnixNano())
						time.Sleep(time.Millisecond)
					}
				})
				h.awaitChecks(t.Context(), began)
				if took := time.Since(began); took < c.want || took > c.want+15*time.Millisecond {
					t.Errorf("it stops after %v, expected about %v", took, c.want)
				}
				stop()
				sends.Wait()
			})
		})
	}
}
