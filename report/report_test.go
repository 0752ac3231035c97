package report

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/recording"
	"github.com/windtunnel/windtunnel/report/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The scripts in testdata/scripts have a recording and its printed form.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out bytes.Buffer
			o := Options{Out: &out, Scenario: "test", Seed: 7, Color: d.HasArg("color")}
			switch d.Cmd {
			case "show":
				var file, detail string
				d.ScanArgs(t, "file", &file)
				if d.MaybeScanArgs(t, "detail", &detail) {
					o.Detail = Detail(detail)
				}
				events, err := readAll(filepath.Join("testdata", file))
				if err != nil {
					return err.Error()
				}
				if d.HasArg("json") {
					o.JSON = true
				}
				feed(t, o, events)
			case "many":
				var n int
				d.ScanArgs(t, "n", &n)
				o.Requests = n
				feed(t, o, many(n))
			case "read":
				_, err := Read("rec.ndjson", strings.NewReader(d.Input), func(record.Event) error { return nil })
				if err != nil {
					return err.Error() + "\n"
				}
				return "fine\n"
			}
			text := strings.ReplaceAll(out.String(), "\x1b", "ESC")
			return strings.ReplaceAll(text, "\n\n", "\n~\n") // an empty line would end the script's block
		})
	})
}

func feed(t *testing.T, o Options, events []record.Event) Summary {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		s.Record(e)
	}
	sum, err := s.End(false)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func readAll(path string) (events []record.Event, err error) {
	_, err = ReadFile(path, func(e record.Event) error { events = append(events, e); return nil })
	return events, err
}

// many returns requests that overlap: all are sent within a second and take one to two seconds.
func many(n int) []record.Event {
	var out []record.Event
	for i := range n {
		out = append(out, record.Event{Time: machine.Time(i) * machine.Second / machine.Time(n),
			Request: fmt.Sprint("r", i), Hop: record.Client, Step: record.RequestSent})
	}
	for i := range n {
		at := machine.Second + machine.Time(i)*2*machine.Second/machine.Time(n)
		out = append(out, record.Event{Time: at, Request: fmt.Sprint("r", i), Hop: record.Client,
			Step: record.LastTokenReceived},
			record.Event{Time: at, Request: fmt.Sprint("r", i), Hop: record.Client, Step: record.Finished,
				Details: record.Details{record.D("outcome", record.Completed)}})
	}
	return out
}

// A recording is read as it was written, plain and compressed, and a replay has the summary of the run.
func TestRecordAndReplay(t *testing.T) {
	events, err := readAll("testdata/three.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rec.ndjson", "rec.ndjson.gz"} {
		path := filepath.Join(t.TempDir(), name)
		ran := feed(t, Options{Out: &bytes.Buffer{}, File: path, Scenario: "s", Seed: 3}, events)
		var back []record.Event
		read, err := ReadFile(path, func(e record.Event) error { back = append(back, e); return nil })
		if err != nil || read == nil {
			t.Fatal(read, err)
		}
		if d := cmp.Diff(events, back); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(ran, *read); d != "" {
			t.Fatal(d)
		}
		replayed := feed(t, Options{Out: &bytes.Buffer{}, Scenario: "s", Seed: 3}, back)
		if d := cmp.Diff(ran, replayed); d != "" {
			t.Fatal(d)
		}
	}
}

// A replay reports the run's caches.
func TestReplayTellsTheCache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rec.ndjson")
	server := func(step record.Step, key string, n int) record.Event {
		return record.Event{Request: "r", Hop: record.Server, Step: step, Details: record.Details{record.D(key, n)}}
	}
	ran := feed(t, Options{Out: &bytes.Buffer{}, File: path},
		[]record.Event{{Request: "r", Hop: record.Client, Step: record.RequestSent},
			server(record.RequestReceived, "prompt_tokens", 40), server(record.PrefillStarted, "cached_tokens", 16)})
	events, err := readAll(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(ran.PrefixCache, feed(t, Options{Out: &bytes.Buffer{}}, events).PrefixCache); d != "" ||
		ran.PrefixCache == nil {
		t.Fatal(d)
	}
}

func TestCutShort(t *testing.T) {
	var whole bytes.Buffer
	z := gzip.NewWriter(&whole)
	events, err := os.ReadFile("testdata/one.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(events); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	none := func(record.Event) error { return nil }
	if _, err := Read("rec.gz", bytes.NewReader(whole.Bytes()[:whole.Len()/2]), none); err == nil ||
		!strings.Contains(err.Error(), "cut short") {
		t.Fatalf("got %v", err)
	}
	long := `{"time":1,"request":"` + strings.Repeat("x", recording.MaxLineBytes) + `"}`
	var at *recording.LineError
	if _, err := Read("long", strings.NewReader("\n"+long), none); !errors.As(err, &at) || at.Line != 2 {
		t.Fatalf("got %v", err)
	}
}

// A full disk or a closed pipe is reported once, at the end, and stops nothing.
func TestWriteFails(t *testing.T) {
	for _, json := range []bool{false, true} {
		s, err := Start(Options{Out: broken{}, JSON: json})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range many(2000) {
			s.Record(e)
		}
		sum, err := s.End(true)
		if !errors.Is(err, errBroken) || sum.Requests != 2000 {
			t.Fatalf("%v %+v", err, sum)
		}
	}
	if _, err := Start(Options{File: filepath.Join(t.TempDir(), "no", "such")}); err == nil ||
		!strings.Contains(err.Error(), "--record") {
		t.Fatalf("%v", err)
	}
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// The tally drops requests that have ended.
func TestTallyForgets(t *testing.T) {
	tally := NewTally()
	for i := range 50_000 {
		id := fmt.Sprint(i)
		tally.Record(record.Event{Request: id, Hop: record.Client, Step: record.RequestSent})
		tally.Record(record.Event{Request: id, Hop: record.Client, Step: record.Finished,
			Details: record.Details{record.D("outcome", "completed")}})
		tally.Record(record.Event{Request: "foreign" + id, Hop: record.EPP, Step: record.ResponseEndSeen})
	}
	if tally.open.Len() > 2*lateRequests {
		t.Fatalf("%d of 100000 ended requests are remembered", tally.open.Len())
	}
	if s := tally.Summary(); s.Requests != 50_000 || s.Failed() != 0 {
		t.Fatalf("%+v", s)
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"one.ndjson", "three.ndjson"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"summary":{"requests":1}}`))
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, detail := range []Detail{Steps, Lines, Progress} {
			s, err := Start(Options{Out: &bytes.Buffer{}, Detail: detail})
			if err != nil {
				t.Fatal(err)
			}
			_, err = Read("fuzz", bytes.NewReader(data), func(e record.Event) error { s.Record(e); return nil })
			var at *recording.LineError
			if err != nil && !errors.As(err, &at) {
				t.Fatalf("an error without a line: %v", err)
			}
			if _, err := s.End(false); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A long run in wall time is not silent between its tenths; what virtual time
// prints depends on counts alone.
func TestProgressIsNotSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		silence machine.Time
		lines   int
	}{{0, 0}, {maxSilence, 5}} {
		var out bytes.Buffer
		tally := NewTally()
		v := NewView(&out, tally, Progress, 1_000_000, false)
		v.silence = c.silence
		for second := range 59 {
			e := record.Event{Time: machine.Time(time.Duration(second) * time.Second), Request: strconv.Itoa(second),
				Hop: record.Client, Step: record.RequestSent}
			tally.Record(e)
			v.Record(e)
		}
		if n := strings.Count(out.String(), "\n"); n != c.lines {
			t.Errorf("silence %v: %d lines, expected %d:\n%s", c.silence, n, c.lines, out.String())
		}
	}
}

// A tally keeps its bounds for any recording, counts the dropped requests, and still counts their outcomes.
func TestTallyIsBounded(t *testing.T) {
	t.Parallel()
	tally := NewTally()
	event := func(id string, hop record.Hop, step record.Step, attempt int, d ...record.Detail) {
		tally.Record(record.Event{Request: id, Attempt: attempt, Hop: hop, Step: step, Endpoint: "e", Details: d})
	}
	const many = maxOpen + maxOpen/8
	for i := range many {
		event(strconv.Itoa(i), record.Client, record.RequestSent, 0)
	}
	long := strings.Repeat("x", 4096)
	for i := range 1000 {
		event(long+strconv.Itoa(i), record.EPP, record.Part1Sent, 1)
		event("again", record.EPP, record.Part1Sent, i)
		event("steps", record.Client, record.Step(strconv.Itoa(i)), 0)
		event("hops", record.Hop(strconv.Itoa(i)+long), record.Step(long), 0)
		event(strconv.Itoa(i), record.Client, record.Finished, 0, record.D("outcome", strconv.Itoa(i%100)))
		tally.Record(record.Event{Request: "endpoints", Hop: record.EPP, Step: record.EndpointPicked,
			Endpoint: strconv.Itoa(i) + long})
	}
	for i := range 2 * maxEndpoints {
		tally.Record(record.Event{Request: "endpoints", Hop: record.EPP, Step: record.EndpointPicked,
			Endpoint: strconv.Itoa(i)})
	}
	if n := tally.open.Len(); n > maxOpen {
		t.Errorf("%d requests are followed", n)
	}
	for _, id := range tally.open.Keys() {
		if len(id) > longestName {
			t.Fatalf("an id of %d bytes is kept", len(id))
		}
		if r, _ := tally.open.Peek(id); len(r.begun) > maxBegun || len(r.server) > longestName {
			t.Fatalf("%s: %d spans, %d bytes", id, len(r.begun), len(r.server))
		}
	}
	s := tally.Summary()
	if s.Requests != many || s.Unfinished != many-1000 || s.Dropped < many-maxOpen {
		t.Errorf("%d requests, %d unfinished, %d dropped", s.Requests, s.Unfinished, s.Dropped)
	}
	sum := func(counts map[record.Outcome]int) (n int) {
		for _, c := range counts {
			n += c
		}
		return n
	}
	if len(s.Outcomes) > maxOutcomes+1 || sum(s.Outcomes) != 1000 || len(s.Hops) > maxHops+1 ||
		len(s.Hops[record.Client]) > maxSteps+1 || len(s.Endpoints) > maxEndpoints+1 {
		t.Errorf("%d outcomes of %d, %d hops, %d steps, %d endpoints", len(s.Outcomes), sum(s.Outcomes), len(s.Hops),
			len(s.Hops[record.Client]), len(s.Endpoints))
	}
	var out bytes.Buffer
	if err := s.Write(&out, false, 0); err != nil ||
		!strings.Contains(out.String(), "dropped    "+terminal.Thousands(s.Dropped)) || len(out.String()) > 1<<17 {
		t.Errorf("%v, %d bytes: %.2000s", err, len(out.String()), out.String())
	}
	tally = NewTallyFor(many)
	for i := range many {
		event(strconv.Itoa(i), record.Client, record.RequestSent, 0)
	}
	if n := tally.Summary().Dropped; n > 0 {
		t.Errorf("%d of a run's own requests are not followed", n)
	}
}
