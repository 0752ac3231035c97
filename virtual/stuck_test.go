package virtual

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// A run in which requests wait for an event that never comes ends and says so, whether or not the picker continues to
// scrape endpoints.
func TestNoHang(t *testing.T) {
	t.Parallel()
	for _, eachPage := range []bool{false, true} {
		s := batching(t, scored)
		s.Workload.Timeout = 0
		w, err := newWorld(s, nil, Options{eachPage: eachPage})
		if err != nil {
			t.Fatal(err)
		}
		w.start()
		for w.loop.InFlight() == 0 {
			at, e := w.queue.Pop()
			w.now = at
			w.idles(&e)
			w.play(e)
		}
		lost := w.queue // with the request on its way to the picker
		w.queue = machine.Queue[event]{}
		for lost.Len() > 0 {
			if at, e := lost.Pop(); e.kind == looks || e.kind == wake && e.of.(*place).asks {
				w.queue.Push(at, machine.ClassLook, e)
			}
		}
		at := w.now
		if err := w.playAll(nil); err == nil ||
			!strings.Contains(err.Error(), "nothing more happens, and 1 conversations") {
			t.Errorf("each page %v: %v", eachPage, err)
		}
		if pages := w.now > at; pages != eachPage || w.now > at+2*patience {
			t.Errorf("each page %v: it went on from %v to %v", eachPage, at, w.now)
		}
	}
}
