package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// show returns the printed run.
func show(t *testing.T, o Options, events []record.Event, servers ...[]string) (string, Summary) {
	t.Helper()
	var out bytes.Buffer
	o.Out = &out
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	if len(servers) == 2 {
		s.servers(servers[0], servers[1])
	}
	for _, e := range events {
		s.Record(e)
	}
	sum, err := s.End(false)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), sum
}

// request returns a request of the run with this number, on this server, from at on.
func ours(n int, server string, at, took machine.Time, outcome record.Outcome) []record.Event {
	id := record.RequestID(1, n)
	return []record.Event{
		{Time: at, Request: id, Hop: record.Client, Step: record.RequestSent},
		{Time: at, Request: id, Hop: record.EPP, Step: record.EndpointPicked, Endpoint: server},
		{Time: at, Request: id, Hop: record.Server, Step: record.RequestReceived,
			Details: record.Details{record.D("prompt_tokens", 40)}},
		{Time: at, Request: id, Hop: record.Server, Step: record.PrefillStarted,
			Details: record.Details{record.D("cached_tokens", 0)}},
		{Time: at + took, Request: id, Hop: record.Client, Step: record.LastTokenReceived},
		{Time: at + took, Request: id, Hop: record.Client, Step: record.Finished,
			Details: record.Details{record.D("outcome", string(outcome))}},
	}
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in:\n%s", line, text)
		}
	}
}

// A request has the number of its id, whenever it appears, and its id is shown.
func TestOneNumber(t *testing.T) {
	events := append(ours(2, "10.0.0.1:8000", 0, machine.Second, record.Completed),
		ours(1, "10.0.0.1:8000", 0, 2*machine.Second, record.Broken)...)
	text, _ := show(t, Options{Detail: Steps}, events)
	has(t, text, "#2      +0.0000s  client   request_sent           id=req-1-000002",
		"#1      +0.0000s  client   request_sent           id=req-1-000001")
	text, _ = show(t, Options{Detail: Lines}, events)
	has(t, text, "req-1-000002  completed", "req-1-000001  broken", "outcomes   completed 1 · broken 1 (#1)")
}

// A summary shows what people look for: requests that did not complete, the slowest ones, servers in order, idle
// servers, a cache without hits.
func TestSummaryForPeople(t *testing.T) {
	var events []record.Event
	for n := range 6 {
		o := record.Completed
		if n%2 > 0 {
			o = record.Broken
		}
		events = append(events, ours(n+1, "10.0.0.10:8000", machine.Time(n), machine.Time(n+1)*machine.Second, o)...)
	}
	events = append(events, ours(7, "10.0.0.9:8000", 0, 1234*machine.Second, record.Left)...)
	events = append(events, ours(8, "10.0.0.9:8000", 0, 0, "")[:1]...)
	events = append(events, record.Event{Request: record.RequestID(1, 1), Hop: record.Sidecar,
		Step:     record.PrefillLegSent,
		Endpoint: "10.0.0.12:8000"})
	text, sum := show(t, Options{Detail: Progress, PrefixCache: true, Requests: 8}, events,
		[]string{"10.0.0.10:8000", "10.0.0.9:8000", "10.0.0.11:8000"}, []string{"10.0.0.12:8000", "10.0.0.13:8000"})
	has(t, text, "summary    8 requests in 1,234s", "broken 3 (#2 #4 #6)", "left 1 (#7)", "unfinished 1 (#8)",
		"endpoints  10.0.0.9:8000 1 · 10.0.0.10:8000 6 · 10.0.0.11:8000 0\n",
		"prefill    10.0.0.12:8000 1 · 10.0.0.13:8000 0\n",
		"5.000s  #5\n", "kv cache   0.0% of 280 prompt tokens were cached")
	if d := cmp.Diff(map[record.Outcome][]string{"broken": {"req-1-000002", "req-1-000004", "req-1-000006"},
		"left": {"req-1-000007"}, "unfinished": {"req-1-000008"}}, sum.NotCompleted); d != "" {
		t.Error(d)
	}
	if text, _ = show(t, Options{}, events); strings.Contains(text, "kv cache") {
		t.Error("a cache that nobody has found nothing")
	}
}

// A replay lists idle servers, as the run did.
func TestReplayTellsOfEveryServer(t *testing.T) {
	events := ours(1, "a", 0, machine.Second, record.Completed)
	ran, sum := show(t, Options{Detail: Lines, PrefixCache: true}, events, []string{"a", "b"}, []string{"c"})
	s, err := Start(Options{Out: &bytes.Buffer{}, Detail: Lines})
	if err != nil {
		t.Fatal(err)
	}
	s.Restore(sum)
	for _, e := range events {
		s.Record(e)
	}
	again, err := s.End(false)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sum, again); d != "" {
		t.Errorf("%s\nthe run:\n%s", d, ran)
	}
}

// Requests by hand are shown step by step, after the summary of the run's own requests, and counted separately.
func TestSentByHand(t *testing.T) {
	var out bytes.Buffer
	began := time.Now()
	s, err := Start(Options{Out: &out, Detail: Lines,
		Clock: func() machine.Time { return machine.Time(time.Since(began)) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ours(1, "10.0.0.1:8000", 0, 1000, record.Completed) {
		s.Record(e)
	}
	settled := false
	if err := s.Loaded(func(sum Summary) bool {
		settled = sum.Outcomes[record.Completed] == 1
		return settled
	}); err != nil || !settled {
		t.Fatal(err, settled)
	}
	before := out.String()
	has(t, before, "req-1-000001  completed", "summary    1 request in")
	const id = "8b1f3c5e-9d7a-4f60-8a3f-1f0a7f3f1c11"
	for _, e := range []record.Event{
		{Time: 2000, Request: id, Hop: record.EPP, Step: record.RequestReceived},
		{Time: 2000, Request: id, Hop: record.EPP, Step: record.EndpointPicked, Endpoint: "10.0.0.1:8000"},
		{Time: 3000, Request: id, Hop: record.Envoy, Step: record.Logged,
			Details: record.Details{record.D("status", 200)}},
	} {
		s.Record(e)
	}
	sum, err := s.End(false)
	if err != nil {
		t.Fatal(err)
	}
	after := strings.TrimPrefix(out.String(), before)
	has(t, after, "8b1f3c5e    +0.0000s  epp      request_received       id="+id,
		"by hand    1 request besides · status 200 1 · 10.0.0.1:8000 1\n")
	if strings.Contains(after, "summary") {
		t.Errorf("the summary is told twice:\n%s", after)
	}
	if sum.Requests != 1 || sum.Endpoints["10.0.0.1:8000"] != 1 || sum.Hops[record.Envoy] != nil ||
		sum.ByHand.Requests != 1 {
		t.Errorf("%+v", sum)
	}
}

// Incidents stand between the requests, at their time.
func TestIncidentsAreShown(t *testing.T) {
	events := append(ours(1, "a", 0, machine.Second, record.Completed),
		record.Event{Time: 2 * machine.Second, Hop: record.Server, Step: record.IncidentBegan,
			Endpoint: "10.0.0.3:8000",
			Details:  record.Details{record.D("what", "lose-rank"), record.D("rank", 3)}},
		record.Event{Time: 2 * machine.Second, Hop: record.Server, Step: record.EngineStep,
			Details: record.Details{record.D("step", 9)}})
	for _, detail := range []Detail{Steps, Lines, Progress} {
		text, _ := show(t, Options{Detail: detail}, events)
		has(t, text, "2.0000s  server   incident_began         → 10.0.0.3:8000  what=lose-rank  rank=3\n")
		if strings.Contains(text, "engine_step") {
			t.Errorf("steps of engines are shown:\n%s", text)
		}
	}
}

// No line is longer than the terminal, so that none is broken within a number.
func TestNarrow(t *testing.T) {
	events, err := readAll("testdata/three.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	events = append(events, ours(1, "10.0.0.1:8000", 0, machine.Second, record.Completed)...)
	events = append(events, record.Event{Time: machine.Second, Request: "r1", Hop: record.EPP, Step: record.Part1Sent,
		Details: record.Details{record.D("headers_set",
			[]string{"x-gateway-destination-endpoint", "x-target-pod", "x-selected-pod", "content-type"})}})
	judge := func(Summary) []Expectation {
		return []Expectation{{What: "completed", Expected: "75%..99%", Found: "86.25%", OK: true},
			{What: "total p99", Expected: "at most 1.2s", Found: "1.319456s", OK: false}}
	}
	for _, columns := range []int{60, 80} {
		for _, detail := range []Detail{Steps, Lines, Progress} {
			text, _ := show(t, Options{Detail: detail, Columns: columns, Color: true, Judge: judge, PrefixCache: true},
				events, []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"}, nil)
			for line := range strings.Lines(text) {
				if n := terminal.Columns(strings.TrimSuffix(line, "\n")); n > columns {
					t.Errorf("%d columns, %s: %d are in %q", columns, detail, n, line)
				}
			}
		}
	}
}
