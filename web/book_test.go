package web

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// play records requests in a book.
func play(b *Book, from, to int) {
	for n := from; n <= to; n++ {
		id, at := record.RequestID(1, n), machine.Time(n)*machine.Millisecond
		for i, x := range []record.Event{
			{Hop: record.Client, Step: record.RequestSent},
			{Hop: record.EPP, Step: record.EndpointPicked, Endpoint: "10.0.0.1:8000", Attempt: 1},
			{Hop: record.Client, Step: record.Finished,
				Details: record.Details{record.D("outcome", "completed"), record.D("tokens", 3)}},
		} {
			x.Request, x.Time = id, at+machine.Time(i)*machine.Microsecond
			b.Record(x)
		}
	}
}

// all returns frames until nothing is new.
func all(t *testing.T, b *Book, c *cursor) (out []frame) {
	t.Helper()
	for f := b.frame(c, nil); f != nil; f = b.frame(c, nil) {
		out = append(out, strict[frame](t, f))
	}
	return out
}

// However slowly a browser reads, it receives every request. Many changes of a row are sent as one, and gaps are
// reported.
func TestFrames(t *testing.T) {
	l := usual
	l.changes = 1 << 12
	b, c := newBook(l), cursor{}
	play(b, 1, 5000)
	known := map[string]bool{}
	read := func() (gaps, snapshots int) {
		for _, f := range all(t, b, &c) {
			if len(f.Rows) > frameRows {
				t.Errorf("a frame of %d rows, expected %d at most", len(f.Rows), frameRows)
			}
			for _, r := range f.Rows {
				if len(r) != 2+int(momentCount)+len(columns) {
					t.Fatalf("a row of %d columns: %v", len(r), r)
				}
				known[r[1].(string)] = true
			}
			if f.Gap > 0 {
				gaps++
			}
			if f.Snapshot != nil {
				snapshots++
			}
		}
		return gaps, snapshots
	}
	if gaps, snapshots := read(); gaps != 0 || snapshots != 1 || len(known) != 5000 {
		t.Errorf("first: %d gaps, %d snapshots, %d requests; expected 0, 1, 5000", gaps, snapshots, len(known))
	}
	play(b, 5001, 5003)
	if fs := all(t, b, &c); len(fs) != 1 || len(fs[0].Rows) != 3 {
		t.Errorf("three requests of three events each came as %d frames, %v", len(fs), fs)
	}
	play(b, 5004, 5003+l.changes/3+1)
	if gaps, snapshots := read(); gaps != 1 || snapshots != 1 {
		t.Errorf("behind by more than is kept: %d gaps, %d snapshots; expected 1 and 1", gaps, snapshots)
	}
	if n := 5003 + l.changes/3 + 1; len(known) != n {
		t.Errorf("%d requests are known of %d", len(known), n)
	}
	if fs := all(t, b, &c); len(fs) != 0 {
		t.Errorf("nothing is new, and %v is told", fs)
	}
}

// A book stays within its bounds and reports what it dropped.
func TestBounds(t *testing.T) {
	l := limits{rows: 100, bytes: 10_000, changes: 1000, names: 50, gauges: 10, notices: 10}
	b := newBook(l)
	play(b, 1, l.rows+l.rows/16+10)
	c := cursor{}
	fs := all(t, b, &c)
	if fs[0].First == nil || len(b.rows) > l.rows+l.rows/16 || len(b.index) != len(b.rows) {
		t.Errorf("%d rows are kept with %d names, and %d went", len(b.rows), len(b.index), *fs[0].First)
	}
	if _, _, ok := b.Steps("1"); ok {
		t.Error("the steps of a request that went are told")
	}
	if b.bytes > l.bytes {
		t.Errorf("%d bytes of steps, expected %d at most", b.bytes, l.bytes)
	}
	for i := range l.names + 10 {
		b.name(fmt.Sprint("name ", i))
	}
	if len(b.names) > l.names+1 {
		t.Errorf("%d names", len(b.names))
	}
}

// Text from outside is escaped.
func TestHostileText(t *testing.T) {
	b, c := NewBook(), cursor{}
	id := "</script><img src=x onerror=alert(1)>\u2028\x00"
	b.Record(record.Event{Request: id, Hop: record.Client, Step: record.RequestSent})
	f := b.frame(&c, nil)
	if x := strict[frame](t, f); x.Rows[0][1] != id {
		t.Errorf("%s", f)
	}
	for _, c := range f {
		if c == '<' || c == 0 {
			t.Errorf("markup in a frame: %s", f)
		}
	}
}

// The page's own files are small.
func TestSize(t *testing.T) {
	const most = 150_000
	total := len(theSite().index) // compressed, as served
	for _, a := range theSite().assets {
		total += len(a.zip)
	}
	t.Logf("%d bytes compressed", total)
	if total > most {
		t.Errorf("the page has %d bytes compressed, expected %d at most", total, most)
	}
	for specifier, file := range bare {
		if _, err := fs.ReadFile(files, file); err != nil {
			t.Errorf("%s: %v", specifier, err)
		}
	}
	if n := len(theSite().modules()); n < 4 {
		t.Errorf("only %d modules were found", n)
	}
}

// between is a writer that calls a function before each write.
type between func()

func (f between) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// Events do not wait while a file of the run is written.
func TestEventsWhileShared(t *testing.T) {
	b := NewBook()
	play(b, 1, 3*sharedSteps)
	taken := 0
	err := b.write(between(func() {
		if !b.mu.TryLock() {
			t.Fatal("an event waits until the file is written")
		}
		b.mu.Unlock()
		play(b, 3*sharedSteps+taken+1, 3*sharedSteps+taken+1)
		taken++
	}), &Meta{})
	if err != nil || taken < 2 || len(b.rows) != 3*sharedSteps+taken {
		t.Fatal(err, taken, len(b.rows))
	}
}
