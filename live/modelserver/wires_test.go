package modelserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windtunnel/windtunnel/core/link"
	"github.com/windtunnel/windtunnel/live/drive"
)

// A transfer that is cancelled leaves its share to the others, which are there
// the sooner: whoever waits for them is told then, and not when they would have
// been there.
func TestCancelledTransferLeavesItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		n, err := newNetwork(TransferOptions{NIC: link.Wire{BytesPerSecond: 1e9, RDMA: true}}, 2, drive.Since(began), func(int, int) {})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if _, err := n.move(ctx, 0, 1, 1e9); !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled transfer says %v", err)
			}
		}()
		time.AfterFunc(500*time.Millisecond, cancel) // until then each has a quarter
		x, err := n.move(t.Context(), 0, 1, 1e9)
		if err != nil {
			t.Fatal(err)
		}
		<-x.whole
		if took := time.Since(began); took < 1200*time.Millisecond || took > 1300*time.Millisecond {
			t.Errorf("the other is told after %v, expected 1.25 s", took)
		}
	})
}
