package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// A life counts for its pool and its group as its events do.
func TestPoolsOfLives(t *testing.T) {
	list := []Pool{{Name: "a",
		Groups: []Group{{Name: "big", Endpoints: []string{"10.0.0.1:8000", "10.0.0.2:8000"}},
			{Name: "small", Endpoints: []string{"10.0.0.3:8000"}}}},
		{Name: "b", Groups: []Group{{Endpoints: []string{"10.1.0.1:8000"}}}}}
	whole, events := NewTally(), NewTally()
	whole.setPools(list)
	events.setPools(list)
	for i, endpoint := range []string{"10.0.0.1:8000", "10.0.0.3:8000", "10.1.0.1:8000", "10.0.0.1:8000"} {
		at := func(n int) machine.Time { return machine.Time(100*i+n) * machine.Millisecond }
		l := &record.Life{Request: record.RequestID(1, i+1), Number: i + 1, Endpoint: endpoint, Sent: at(0),
			Picked:  at(1),
			Reached: at(2), Started: at(2), First: at(10 + i), FirstSeen: at(11 + i), FirstGot: at(12 + i),
			Last: at(50), LastSeen: at(51), LastGot: at(52), Prompt: 100, Tokens: 7}
		whole.Sending(l.Sent, 1)
		whole.Lived(l)
		for e := range l.Events {
			if e.Hop == record.EPP && e.Step == record.RequestReceived {
				e.Details = append(e.Details,
					record.D("pool", map[bool]string{true: "b", false: "a"}[endpoint == "10.1.0.1:8000"]))
			}
			events.Record(e)
		}
	}
	got, want := whole.Summary(), events.Summary()
	if d := cmp.Diff(want.Pools, got.Pools); d != "" {
		t.Errorf("events (-) and lives (+) differ: %s", d)
	}
	var b bytes.Buffer
	if err := got.Write(&b, false, 0); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(b.String(), "pool  ")
	table, _, _ = strings.Cut(table, "kv cache")
	if want := `       requests completed   tokens ttft p50      p99  e2e p50      p99
  a                 3         3       21   13.0ms   15.0ms   52.0ms   52.0ms
    big ×2          2         2       14   12.0ms   15.0ms   52.0ms   52.0ms
    small ×1        1         1        7   13.0ms   13.0ms   52.0ms   52.0ms
  b                 1         1        7   14.0ms   14.0ms   52.0ms   52.0ms
`; table != want {
		t.Errorf("got\n%s expected\n%s", table, want)
	}
}
