package flowcontrol_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// TestScripts plays testdata/scripts. The commands are:
//
//	config          detector=…, ceilings=…, ttl=…, eviction, …; then one band per line
//	pool            one endpoint per line: waiting kv [age], or "n N" for N idle ones
//	load            one endpoint of the last pool: its place, waiting, kv, age
//	arrive          one request per line: name [priority=…] [flow=…] [bytes=…] [ttl=…] [ttft=…]
//	done, gone, placed  names
//	advance         a duration: plays so much time, waking only at Next
//	scrape          the same, reading the last pool's metrics every 50 ms
//	objectives, shutdown, state, next
//
// Every command prints the effects, each with the time at which it was due.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{t: t, ids: map[string]RequestID{}, names: map[RequestID]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return s.run(d)
		})
	})
}

type script struct {
	t     *testing.T
	c     *driver
	now   machine.Time
	ids   map[string]RequestID
	names map[RequestID]string
	out   strings.Builder
	wakes int
	count RequestID
	last  []Load
}

func (s *script) run(d *datadriven.TestData) string {
	s.out.Reset()
	s.wakes = 0
	if d.Cmd != "config" && s.c == nil {
		return "config comes first"
	}
	switch d.Cmd {
	case "config":
		return s.config(d)
	case "pool":
		s.last = s.loads(d.Input)
		s.c.Input(s.now, Pool{s.last})
	case "load":
		l := s.loads(d.CmdArgs[1].Key + " " + d.CmdArgs[2].Key + " " + d.CmdArgs[3].Key)[0]
		s.c.Input(s.now, LoadChanged{number(s.t, d.CmdArgs[0].Key), l})
	case "arrive":
		for _, line := range lines(d.Input) {
			s.c.Input(s.now, s.arrive(line))
		}
	case "done", "gone", "placed":
		for _, name := range names(d) {
			switch id := s.ids[name]; d.Cmd {
			case "done":
				s.c.Input(s.now, Done{ID: id, PromptTokens: 3, CompletionTokens: 4})
			case "gone":
				s.c.Input(s.now, Gone{id})
			case "placed":
				s.c.Input(s.now, Placed{id})
			}
		}
	case "objectives":
		var p []int
		for _, a := range names(d) {
			p = append(p, number(s.t, a))
		}
		s.c.Input(s.now, Objectives{p})
	case "shutdown":
		s.c.Input(s.now, Shutdown{})
	case "advance":
		s.play(s.now + span(s.t, d.CmdArgs[0].Key))
		fmt.Fprintf(&s.out, "woken %d times\n", s.wakes)
	case "scrape":
		for until := s.now + span(s.t, d.CmdArgs[0].Key); s.now < until; {
			s.play(min(until, s.now+50*machine.Millisecond))
			for i := range s.last {
				s.last[i].UpdatedAt = s.now
				s.c.Input(s.now, LoadChanged{i, s.last[i]})
			}
		}
		fmt.Fprintf(&s.out, "woken %d times\n", s.wakes)
	case "next":
		at, ok := s.c.Next()
		return fmt.Sprintln(at, ok)
	case "state":
		return s.state()
	default:
		return "unknown command"
	}
	s.c.Advance(s.now, s.print)
	return s.out.String()
}

func (s *script) play(until machine.Time) {
	for at, ok := s.c.Next(); ok && at <= until; at, ok = s.c.Next() {
		s.now = at
		s.wakes++
		s.c.Advance(at, s.print)
	}
	s.now = until
	s.c.Advance(until, s.print)
}

func (s *script) print(e Effect) {
	switch e.Kind {
	case Decided:
		fmt.Fprintf(&s.out, "%v %s %v", e.At, s.names[e.ID], e.Outcome)
		if e.Wait > 0 {
			fmt.Fprintf(&s.out, " after %v", e.Wait)
		}
		if r := e.Refusal(); r != nil {
			fmt.Fprintf(&s.out, ": %d %s [%s]", r.Status, r.Error(), r.Reason)
		}
	case Evict:
		r := e.Refusal()
		fmt.Fprintf(&s.out, "%v %s evicted for priority %d: %d %s [%s]", e.At, s.names[e.ID], e.ForPriority, r.Status,
			r.Error(), r.Reason)
	case RevocationConfirmed:
		fmt.Fprintf(&s.out, "%v %s revocation confirmed after %v", e.At, s.names[e.ID], e.Wait)
	case RevocationTimedOut:
		fmt.Fprintf(&s.out, "%v %s revocation timed out", e.At, s.names[e.ID])
	}
	s.out.WriteByte('\n')
}

func (s *script) config(d *datadriven.TestData) string {
	c := DefaultConfig()
	band := func(line string) Band {
		b := Band{}
		for _, f := range strings.Fields(line) {
			k, v, _ := strings.Cut(f, "=")
			switch k {
			case "priority":
				b.Priority = number(s.t, v)
			case "maxBytes":
				b.MaxBytes, _ = config.ParseQuantity(v)
			case "maxRequests":
				b.MaxRequests, _ = config.ParseQuantity(v)
			case "ttl":
				ttl := span(s.t, v)
				b.RequestTTL = &ttl
			case "fairness":
				b.Fairness.Kind = v
			case "ordering":
				b.Ordering = Ordering(v)
			}
		}
		return b
	}
	for _, a := range d.CmdArgs {
		v := ""
		if len(a.Vals) > 0 {
			v = a.Vals[0]
		}
		switch a.Key {
		case "concurrency":
			c.Detector.Kind = ConcurrencyDetectorType
			c.Detector.Concurrency.MaxConcurrency = int64(number(s.t, v))
		case "tokens":
			c.Detector.Concurrency.Mode = ModeTokens
			c.Detector.Concurrency.MaxTokenConcurrency = int64(number(s.t, v))
		case "ceilings":
			c.UsageLimit = UsageLimit{Kind: v, Threshold: 1}
			if len(a.Vals) > 1 {
				low, _ := strconv.ParseFloat(a.Vals[1], 64)
				c.UsageLimit.Holdback.MinCeiling = &low
			}
			if len(a.Vals) > 2 {
				c.UsageLimit.Holdback.Domain = a.Vals[2]
			}
		case "threshold":
			c.UsageLimit.Threshold, _ = strconv.ParseFloat(v, 64)
		case "ttl":
			c.RequestTTL = span(s.t, v)
		case "emptyTTL":
			ttl := span(s.t, v)
			c.NoEndpointTTL = &ttl
		case "maxRequests":
			c.MaxRequests, _ = config.ParseQuantity(v)
		case "maxBytes":
			c.MaxBytes, _ = config.ParseQuantity(v)
		case "eviction":
			c.Eviction = true
		default:
			s.t.Fatalf("config: unknown argument %s", a.Key)
		}
	}
	for _, line := range lines(d.Input) {
		switch kind, rest, _ := strings.Cut(line, " "); kind {
		case "band":
			c.Bands = append(c.Bands, band(rest))
		case "default":
			c.DefaultBand = band(rest)
		case "negative":
			b := band(rest)
			c.DefaultNegativeBand = &b
		default:
			s.t.Fatalf("config: unknown line %q", line)
		}
	}
	made, err := newDriver(c)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	s.c, s.now = made, 0
	return ""
}

func (s *script) loads(input string) (loads []Load) {
	for _, line := range lines(input) {
		f := strings.Fields(line)
		if f[0] == "n" {
			loads = make([]Load, number(s.t, f[1]))
			for i := range loads {
				loads[i] = Load{Scraped: true, UpdatedAt: s.now}
			}
			continue
		}
		kv, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		l := Load{Waiting: number(s.t, f[0]), KVUsage: machine.Float(kv), Scraped: true, UpdatedAt: s.now}
		if len(f) > 2 {
			l.UpdatedAt -= span(s.t, f[2])
		}
		loads = append(loads, l)
	}
	return loads
}

func (s *script) arrive(line string) Arrive {
	f := strings.Fields(line)
	s.count++
	id := s.count
	s.ids[f[0]], s.names[id] = id, f[0]
	a := Arrive{ID: id, FairnessID: "default-flow", Bytes: 60}
	for _, kv := range f[1:] {
		k, v, _ := strings.Cut(kv, "=")
		switch k {
		case "priority":
			a.Priority = number(s.t, v)
		case "flow":
			a.FairnessID = v
		case "bytes":
			a.Bytes = int64(number(s.t, v))
		case "tokens":
			a.Tokens = int64(number(s.t, v))
		case "ttl":
			a.TTL = span(s.t, v)
		case "ttft":
			a.TTFT = span(s.t, v)
		default:
			s.t.Fatalf("arrive: unknown %q", kv)
		}
	}
	return a
}

func (s *script) state() string {
	v := s.c.Snapshot(s.now)
	fmt.Fprintf(&s.out, "saturation %.3g stale %d queued %d (%d bytes) running %d\n", v.Saturation, v.StaleEndpoints,
		v.Queued, v.QueuedBytes, v.Running)
	for _, b := range v.Bands {
		fmt.Fprintf(&s.out, "band %d ceiling %.3g queued %d/%d bytes %d/%d", b.Priority, b.Ceiling, b.Requests,
			b.MaxRequests, b.Bytes, b.MaxBytes)
		for _, f := range b.Flows {
			fmt.Fprintf(&s.out, " %s:%d", f.FairnessID, f.Requests)
		}
		s.out.WriteByte('\n')
	}
	if v.PendingReclaim > 0 || v.Revoked > 0 || v.RevokedTimedOut > 0 {
		fmt.Fprintf(&s.out, "reclaim target %.3g pending %.3g confirmed %d timed out %d\n", v.ReclaimTarget,
			v.PendingReclaim, v.Revoked, v.RevokedTimedOut)
	}
	for _, p := range v.Programs {
		fmt.Fprintf(&s.out, "program %s service %.4g wait %.4g ms in flight %d\n", p.ID, p.AttainedService,
			p.AverageWaitMs, p.InFlight)
	}
	return s.out.String()
}

func lines(input string) (out []string) {
	for line := range strings.Lines(input) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func names(d *datadriven.TestData) (out []string) {
	for _, a := range d.CmdArgs {
		out = append(out, a.Key)
	}
	return out
}

func number(t *testing.T, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func span(t *testing.T, text string) machine.Time {
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return machine.FromDuration(d)
}
