package flowcontrol_test

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// A story is a configuration and messages at times, drawn at random.
type story struct {
	config   Config
	messages []timed
	end      machine.Time
}

type timed struct {
	at  machine.Time
	msg Message
}

func drawStory(t *rapid.T) story {
	fairness := rapid.SampledFrom([]string{GlobalStrict, RoundRobin, ProgramAware})
	ordering := rapid.SampledFrom([]Ordering{FCFS, EDF, SLODeadline})
	limit := rapid.SampledFrom([]int64{0, 1, 3, 7})
	priority := rapid.IntRange(-3, 3)
	band := rapid.Custom(func(t *rapid.T) Band {
		return Band{
			Priority: priority.Draw(t, "priority"), MaxRequests: limit.Draw(t, "requests"),
			MaxBytes: 100 * limit.Draw(t, "bytes"),
			Fairness: Fairness{Kind: fairness.Draw(t, "fairness")}, Ordering: ordering.Draw(t, "ordering"),
		}
	})
	s := story{config: DefaultConfig()}
	c := &s.config
	c.Bands = rapid.SliceOfNDistinct(band, 0, 4, func(b Band) int { return b.Priority }).Draw(t, "bands")
	c.DefaultBand = band.Draw(t, "default band")
	c.MaxRequests, c.MaxBytes = 2*limit.Draw(t, "all requests"), 200*limit.Draw(t, "all bytes")
	c.RequestTTL = rapid.SampledFrom([]machine.Time{0, 7 * machine.Millisecond, 500 * machine.Millisecond}).Draw(t,
		"ttl")
	if rapid.Bool().Draw(t, "split ttl") {
		ttl := rapid.SampledFrom([]machine.Time{0, 3 * machine.Millisecond}).Draw(t, "no endpoint ttl")
		c.NoEndpointTTL = &ttl
	}
	c.Detector.Kind = rapid.SampledFrom([]string{UtilizationDetectorType, ConcurrencyDetectorType}).Draw(t, "detector")
	c.Detector.Concurrency.MaxConcurrency = 2
	c.Detector.Concurrency.MaxTokenConcurrency = 50
	c.Detector.Concurrency.Mode = rapid.SampledFrom([]string{ModeRequests, ModeTokens, ModeHybrid}).Draw(t, "mode")
	c.UsageLimit.Kind = rapid.SampledFrom([]string{StaticUsageLimit, PriorityHoldback, SoftReflectiveCeiling}).Draw(t,
		"ceilings")
	low := 0.2
	c.UsageLimit.Holdback = Holdback{MinCeiling: &low,
		Domain: rapid.SampledFrom([]string{DomainRank, DomainValue}).Draw(t, "domain")}
	c.Eviction = rapid.Bool().Draw(t, "eviction")

	id := rapid.Custom(func(t *rapid.T) RequestID { return RequestID(rapid.IntRange(1, 40).Draw(t, "id")) })
	load := rapid.Custom(func(t *rapid.T) Load {
		return Load{Scraped: rapid.Bool().Draw(t, "scraped"), Waiting: rapid.IntRange(0, 8).Draw(t, "waiting"),
			KVUsage: machine.Float(rapid.Float64Range(0, 1).Draw(t, "kv"))}
	})
	at, next := machine.Time(0), RequestID(0)
	for range rapid.IntRange(0, 60).Draw(t, "messages") {
		at += machine.Time(rapid.IntRange(0, 3000).Draw(t, "gap")) * machine.Microsecond
		var m Message
		switch rapid.IntRange(0, 11).Draw(t, "kind") {
		case 0, 1, 2, 3, 4:
			next++
			m = Arrive{
				ID: next, Priority: priority.Draw(t, "priority"),
				FairnessID: rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "flow"),
				Bytes:      int64(rapid.IntRange(-1, 150).Draw(t, "bytes")),
				Tokens:     int64(rapid.IntRange(0, 30).Draw(t, "tokens")),
				TTL:        machine.Time(rapid.IntRange(0, 3).Draw(t, "ttl")) * 1700 * machine.Microsecond,
				TTFT:       machine.Time(rapid.IntRange(0, 3).Draw(t, "ttft")) * machine.Millisecond,
			}
		case 5, 6:
			m = Done{ID: id.Draw(t, "done"), PromptTokens: 3, CompletionTokens: 4}
		case 7:
			m = Gone{id.Draw(t, "gone")}
		case 8:
			m = Placed{id.Draw(t, "placed")}
		case 9:
			loads := rapid.SliceOfN(load, 0, 3).Draw(t, "loads")
			for i := range loads {
				loads[i].UpdatedAt = at
			}
			m = Pool{loads}
		case 10:
			l := load.Draw(t, "load")
			l.UpdatedAt = at - machine.Time(rapid.IntRange(0, 250).Draw(t, "age"))*machine.Millisecond
			l.Requests = int64(rapid.IntRange(0, 2).Draw(t, "running"))
			m = LoadChanged{rapid.IntRange(-1, 3).Draw(t, "endpoint"), l}
		case 11:
			m = Objectives{rapid.SliceOfN(priority, 0, 3).Draw(t, "objectives")}
		}
		s.messages = append(s.messages, timed{at, m})
	}
	s.end = at + 2*machine.Second
	return s
}

// play drives a machine through the story. A lazy driver wakes the machine at Next. An eager one also wakes it every
// quarter of a millisecond, and a sleepy one only for messages. With moved, each message goes to another machine, which
// continues from the last one's state. watch sees the machine after every message and effect.
func (s story) play(t *rapid.T, eager, sleepy, moved bool, watch func(*driver, Message, *Effect)) (effects []Effect) {
	c, err := newDriver(s.config)
	if err != nil {
		t.Fatal(err)
	}
	sink := func(e Effect) {
		effects = append(effects, e)
		if watch != nil {
			watch(c, nil, &e)
		}
	}
	now := machine.Time(0)
	advance := func(to machine.Time) {
		for !sleepy {
			at, ok := c.Next()
			if ok && at < now {
				t.Fatalf("Next is %v at %v", at, now)
			}
			if eager {
				quarter := machine.Millisecond / 4
				if step := (now/quarter + 1) * quarter; !ok || step < at {
					at, ok = step, true
				}
			}
			if !ok || at > to {
				break
			}
			now = at
			c.Advance(now, sink)
		}
		now = to
		c.Advance(now, sink)
	}
	for _, m := range s.messages {
		advance(m.at)
		if moved {
			c.move(t, s.config)
		}
		c.Input(now, m.msg)
		if watch != nil {
			watch(c, m.msg, nil)
		}
		c.Advance(now, sink)
	}
	advance(s.end)
	c.Input(now, Shutdown{})
	c.Advance(now, sink)
	for _, e := range effects {
		if e.Kind == Decided && e.Outcome == Dispatched {
			c.Input(now, Done{ID: e.ID})
		}
	}
	c.Advance(now, func(Effect) {})
	if v := c.Snapshot(now); v.Queued != 0 || v.QueuedBytes != 0 || v.Running != 0 {
		t.Fatalf("left behind: %+v", v)
	}
	if _, ok := c.Next(); ok {
		t.Fatal("an empty machine wants to be woken")
	}
	return effects
}

// It does not matter when a driver wakes the machine, as long as it is not later than Next. Lazy, eager and sleepy
// drivers see the same effects at the same times, and so does a driver that continues from a saved state.
func propNoLostWakeUp(t *rapid.T) {
	s := drawStory(t)
	lazy := s.play(t, false, false, false, nil)
	if d := gocmp.Diff(lazy, s.play(t, true, false, false, nil)); d != "" {
		t.Fatalf("woken every 250 µs (-lazy +eager):\n%s", d)
	}
	if d := gocmp.Diff(lazy, s.play(t, false, true, false, nil)); d != "" {
		t.Fatalf("woken only by messages (-lazy +sleepy):\n%s", d)
	}
	if d := gocmp.Diff(lazy, s.play(t, false, false, true, nil)); d != "" {
		t.Fatalf("with its state saved and loaded before every message (-one +many):\n%s", d)
	}
	if !slices.IsSortedFunc(lazy, func(a, b Effect) int { return int(a.At - b.At) }) {
		t.Fatal("effects out of order")
	}
}

// Every request has exactly one outcome, no request waits beyond a limit, no request leaves before one of a higher
// band, and only running requests are evicted.
func propRules(t *rapid.T) {
	s := drawStory(t)
	arrived, decided := map[RequestID]Arrive{}, map[RequestID]Outcome{}
	evicted := map[RequestID]bool{}
	over, ending := map[RequestID]bool{}, RequestID(0)
	s.play(t, false, false, false, func(c *driver, m Message, e *Effect) {
		if m != nil { // an eviction may cross with the end of its request
			over[ending], ending = true, 0
		}
		switch m := m.(type) {
		case Arrive:
			arrived[m.ID] = m
		case Done:
			if outcome, ok := decided[m.ID]; ok && outcome == Dispatched {
				ending = m.ID
			}
		}
		v := c.Snapshot(0)
		if max := s.config.MaxRequests; max > 0 && v.Queued > max {
			t.Fatalf("%d wait, limit %d", v.Queued, max)
		}
		if max := s.config.MaxBytes; max > 0 && v.QueuedBytes > max {
			t.Fatalf("%d bytes wait, limit %d", v.QueuedBytes, max)
		}
		total := int64(0)
		for _, b := range v.Bands {
			if b.Requests > b.MaxRequests || b.Bytes > b.MaxBytes {
				t.Fatalf("band %+v is over its limit", b)
			}
			inFlows := int64(0)
			for _, f := range b.Flows {
				inFlows += f.Requests
			}
			if inFlows != b.Requests {
				t.Fatalf("band %+v does not add up", b)
			}
			total += b.Requests
		}
		if total != v.Queued {
			t.Fatalf("bands hold %d, all %d", total, v.Queued)
		}
		if e == nil {
			return
		}
		a, known := arrived[e.ID]
		switch e.Kind {
		case Decided:
			if _, twice := decided[e.ID]; twice || !known {
				t.Fatalf("%+v: decided twice, or unknown", e)
			}
			if e.Outcome == Dispatched {
				for id, other := range arrived {
					if _, gone := decided[id]; !gone && other.Priority > a.Priority && waits(c, other.Priority) > 0 &&
						undecided(decided, arrived, other.Priority) == waits(c, other.Priority) {
						t.Fatalf("%+v left before %+v", e, other)
					}
				}
			}
			decided[e.ID] = e.Outcome
		case Evict:
			if decided[e.ID] != Dispatched || over[e.ID] || evicted[e.ID] || a.Priority >= 0 ||
				a.Priority >= e.ForPriority {
				t.Fatalf("evicted %+v: %+v", a, e)
			}
			evicted[e.ID] = true
		}
	})
	for id := range arrived {
		if _, ok := decided[id]; !ok {
			t.Fatalf("%+v has no outcome", arrived[id])
		}
	}
}

func waits(c *driver, priority int) int64 {
	for _, b := range c.Snapshot(0).Bands {
		if b.Priority == priority {
			return b.Requests
		}
	}
	return 0
}

// undecided counts the requests of a priority that have no outcome yet; equal
// to what waits, none of their outcomes is still on its way to the sink.
func undecided(decided map[RequestID]Outcome, arrived map[RequestID]Arrive, priority int) (n int64) {
	for id, a := range arrived {
		if _, ok := decided[id]; !ok && a.Priority == priority {
			n++
		}
	}
	return n
}

func TestNoLostWakeUp(t *testing.T) { rapid.Check(t, propNoLostWakeUp) }
func TestRules(t *testing.T)        { rapid.Check(t, propRules) }

func FuzzStory(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		propNoLostWakeUp(t)
		propRules(t)
	}))
}

// With one slot and everybody waiting, the policies show their whole order:
// round robin serves every flow once in each round, global-strict by arrival,
// program-aware never lets a flow get two more than another that waits.
func TestFairness(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{GlobalStrict, RoundRobin, ProgramAware}).Draw(t, "fairness")
		config := DefaultConfig()
		config.Detector.Kind = ConcurrencyDetectorType
		config.Detector.Concurrency.MaxConcurrency = 1
		config.DefaultBand.Fairness.Kind = kind
		c, err := newDriver(config)
		if err != nil {
			t.Fatal(err)
		}
		c.Input(0, Pool{make([]Load, 1)})
		c.Input(0, Arrive{ID: 1, FairnessID: "first"})
		flows := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 40).Draw(t, "flows")
		left := map[string]int{}
		for i, flow := range flows {
			c.Input(machine.Time(i)*machine.Millisecond, Arrive{ID: RequestID(i + 2), FairnessID: flow})
			left[flow]++
		}
		now := machine.Time(len(flows)) * machine.Millisecond
		var order []RequestID
		take := func(e Effect) { order = append(order, e.ID) }
		c.Advance(now, take)
		for range flows {
			c.Input(now, Done{ID: order[len(order)-1], PromptTokens: 10, CompletionTokens: 10})
			now += machine.Millisecond
			c.Advance(now, take)
		}
		if len(order) != len(flows)+1 {
			t.Fatalf("%d of %d left", len(order)-1, len(flows))
		}
		served := map[string]int{}
		for i, id := range order[1:] {
			if kind == GlobalStrict && id != RequestID(i+2) {
				t.Fatalf("global-strict took %d at place %d", id, i)
			}
			flow := flows[id-2]
			served[flow]++
			left[flow]--
			for other, n := range left {
				if kind != GlobalStrict && n > 0 && served[flow] > served[other]+1 {
					t.Fatalf("%s: %s has had %d, %s waits with %d", kind, flow, served[flow], other, served[other])
				}
			}
		}
	})
}
