package record

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
)

func TestEventRoundTrip(t *testing.T) {
	e := Event{Time: 1234567 * machine.Microsecond, Request: "r1", Attempt: 2, Hop: EPP, Step: Part1Sent,
		Endpoint: "127.0.0.1:8000", Details: Details{D("bytes", 3.0), D("a", "x")}}
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":1.234567,"request":"r1","attempt":2,"hop":"epp","step":"part1_sent","endpoint":"127.0.0.1:8000",` +
		`"details":{"bytes":3,"a":"x"}}`
	if string(line) != want {
		t.Fatalf("got  %s\nwant %s", line, want)
	}
	var back Event
	if err := json.Unmarshal(line, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, back); d != "" {
		t.Fatal(d)
	}
}

func heldEvents(id string) []Event {
	var out []Event
	seen := map[At]bool{}
	now := machine.Time(0)
	for _, e := range HeldEdges() {
		for _, at := range []At{e.Before, e.After} {
			if !seen[at] {
				seen[at] = true
				now += machine.Millisecond
				out = append(out, Event{Time: now, Request: id, Hop: at.Hop, Step: at.Step})
			}
		}
	}
	return out
}

func TestEdgesAndSame(t *testing.T) {
	ok := heldEvents("r1")
	if err := CheckEdges(ok, HeldEdges()); err != nil {
		t.Fatal(err)
	}
	if err := Same(ok, heldEvents("r1")); err != nil {
		t.Fatal(err)
	}
	swapped := heldEvents("r1")
	for i := range swapped {
		if swapped[i].Step == Part2Sent {
			swapped[i].Time = 0
		}
	}
	if err := CheckEdges(swapped, HeldEdges()); err == nil || !strings.Contains(err.Error(), "epp part2_sent") {
		t.Fatalf("a part 2 sent before the first token passed: %v", err)
	}
	if err := Same(ok, swapped); err == nil || !strings.Contains(err.Error(), "at epp") {
		t.Fatalf("a different order passed: %v", err)
	}
	if err := Same(ok, ok[:len(ok)-2]); err == nil {
		t.Fatal("a missing step passed")
	}
	if err := Same(ok, heldEvents("r2")); err == nil {
		t.Fatal("another request passed")
	}
}

func TestTee(t *testing.T) {
	if Tee(nil, nil) != nil {
		t.Fatal("recording nothing is not free")
	}
	n := 0
	count := Func(func(Event) { n++ })
	Tee(nil, count, count).Record(Event{})
	if n != 2 {
		t.Fatalf("recorded %d times", n)
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"time":1,"request":"r","hop":"epp","step":"s","details":{"a":[1,{"b":null}]}}`))
	f.Add([]byte(`{"time":1e400}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		if _, err := json.Marshal(e); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOutcomeOfStatus(t *testing.T) {
	for status, want := range map[int]Outcome{200: Completed, 204: Completed, 400: Refused, 404: Refused, 413: Refused,
		429: Overloaded, 500: ServerError, 502: Unavailable, 503: Unavailable, 504: TimedOut, 302: Broken} {
		if got := OutcomeOfStatus(status); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
}

// A request has one number, in its id, in views and in questions about it.
func TestNumbers(t *testing.T) {
	for id, label := range map[string]string{
		RequestID(1, 7): "#7", RequestID(1, 1_234_567): "#1234567", "req-1-7": "req-1-7", "req-x": "req-x",
		"req-1-00000x":                         "req-1-00",
		"8b1f3c5e-9d7a-4f60-8a3f-1f0a7f3f1c11": "8b1f3c5e", "r1": "r1", "": "", "1234567é": "1234567",
	} {
		if got := Label(id); got != label {
			t.Errorf("%q is called %q, expected %q", id, got, label)
		}
	}
	for _, name := range []string{"req-1-000007", "7", "#7"} {
		if !Named(name, RequestID(1, 7)) {
			t.Errorf("%s does not find the request", name)
		}
	}
	for _, name := range []string{"70", "", "#", "req-1", "req-1-00", "07"} {
		if Named(name, RequestID(1, 7)) {
			t.Errorf("%q finds another request", name)
		}
	}
	if !Named("8b1f3c5e", "8b1f3c5e-9d7a-4f60-8a3f-1f0a7f3f1c11") || Named("8b1", "8b1f3c5e-9d7a") {
		t.Error("an id is found by what a view shows of it, and by no less")
	}
}
