package epp

import (
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
				stopped := make(chan struct{})
				defer close(stopped)
				go func() {
					for time.Since(began) < c.sends && !closed(stopped) {
						h.lastRequest.Store(time.Now().UnixNano())
						time.Sleep(time.Millisecond)
					}
				}()
				h.awaitChecks(t.Context(), began)
				if took := time.Since(began); took < c.want || took > c.want+15*time.Millisecond {
					t.Errorf("it stops after %v, expected about %v", took, c.want)
				}
			})
		})
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
