package stack

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/stream"
)

// Endpoint picker and model servers die again and again under load: every request
// ends, none with a clean 200 that is not whole, and nobody has one left.
func TestKillsUnderLoad(t *testing.T) {
	t.Parallel()
	hold := stream.Config{Hold: true, MetadataBytes: 8, Seed: 1}
	r := startReplicated(t, 1, hold, quick(nil))
	var whole, failed, wrong atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := r.post("/v1/chat/completions", chat)
				var late net.Error
				switch done := strings.Contains(a.body, "[DONE]"); {
				case errors.Is(a.err, context.DeadlineExceeded) || errors.As(a.err, &late) && late.Timeout():
					wrong.Add(1)
					t.Errorf("it never ended: %v", a.err)
				case a.err == nil && a.status == 200 && done:
					whole.Add(1)
				case a.err == nil && a.status == 200:
					wrong.Add(1)
					t.Errorf("a 200 that ends well and is not whole: %q", a.body)
				default:
					failed.Add(1)
				}
			}
		})
	}
	more := func(what string, by int64, of ...*atomic.Int64) {
		count := func() (n int64) {
			for _, x := range of {
				n += x.Load()
			}
			return n
		}
		want := count() + by
		r.until(what, func() bool { return count() >= want || wrong.Load() > 0 })
	}
	for round := range 6 {
		more("requests pass", 20, &whole)
		p := r.pickers[len(r.pickers)-1]
		address := p.Addr()
		p.Kill()
		more("its death is felt", 1, &failed)
		r.startPicker(t, address, hold)
		more("requests pass its successor", 20, &whole)
		for _, act := range []string{"crash", "restart"} {
			if a := r.postTo(r.Fleet.Servers()[round%2].URL(), "/admin/"+act, ""); a.status != 200 {
				t.Fatalf("%s: %d %v %s", act, a.status, a.err, a.body)
			}
			more("requests end, well or not", 20, &whole, &failed)
		}
	}
	close(stop)
	wg.Wait()
	r.idle()
	last := r.pickers[len(r.pickers)-1]
	r.until("the picker has no stream", func() bool { return last.Active() == 0 })
	t.Logf("%d whole, %d failed", whole.Load(), failed.Load())
}
