package modelserver

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/held"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
)

// deadlines counts who touches the connection's read deadline.
type deadlines struct {
	http.ResponseWriter
	set int
}

func (d *deadlines) SetReadDeadline(time.Time) error { d.set++; return nil }

// The response may end between the body's last byte and the end of the
// goroutine that read it. The connection must stay as it is then: its next
// request would be taken for one whose client has left.
func TestWholeBodyLeavesTheConnectionAlone(t *testing.T) {
	t.Parallel()
	const boundary = "b"
	reader := held.NewReader(boundary, 1000)
	if _, err := reader.Write(held.Part1(boundary, []byte("{}"))); err != nil {
		t.Fatal(err)
	}
	w := &deadlines{ResponseWriter: httptest.NewRecorder()}
	box := new(enginedrive.Box)
	box.Init(1)
	watch := &bodyWatch{w: w, body: bytes.NewReader(held.Part2(boundary, "metadata")), reader: reader, box: box}
	watch.read()
	if s, _ := box.Look(nil); !s.Part2 || s.Metadata != "metadata" {
		t.Fatalf("%+v", s)
	}
	synctest.Test(t, func(t *testing.T) {
		watch.done = make(chan struct{})
		go watch.finish()
		synctest.Wait()
		close(watch.done) // only now
		synctest.Wait()
	})
	if w.set != 0 {
		t.Error("the read deadline was changed under net/http")
	}
}
