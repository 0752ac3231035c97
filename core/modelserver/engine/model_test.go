package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
)

// bentTimer is a step time with every feature that a real one has: a fixed
// part, parts per request and per token with fractions of a nanosecond, and a
// bend with a jump.
type bentTimer struct {
	base, perDecode, perPrefill, perPair Fixed
	slope, steeper                       Fixed
	knot                                 int64
	jitter                               bool
}

func (b bentTimer) StepTime(s *Step) Fixed {
	f := b.base + b.perPrefill*Fixed(s.PrefillTokens) + b.perPair*Fixed(s.PrefillPairs) +
		b.perDecode*Fixed(s.DecodeSeqs)
	f += b.slope * Fixed(s.DecodeContext)
	if s.DecodeContext >= b.knot {
		f += b.steeper * Fixed(s.DecodeContext-b.knot+100)
	}
	if b.jitter {
		d := machine.NewDraw(1, "test", "jitter", s.Index)
		f += Fixed(d.Intn(int(b.base)))
	}
	return f
}

func (b bentTimer) DecodeLine(batch int, context int64) (Line, bool) {
	l := Line{Base: b.StepTime(&Step{DecodeSeqs: batch, DecodeContext: context}), Slope: b.slope, Until: b.knot}
	if context >= b.knot {
		l.Slope, l.Until = b.slope+b.steeper, NoKnot
	}
	return l, !b.jitter
}

type timed struct {
	at machine.Time
	m  Message
}

// story is a configuration and what happens to it. What a KVPull is answered
// with, and when, depends only on the request.
type story struct {
	cfg      Config
	messages []timed
}

func drawStory(t *rapid.T) story {
	n := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	flag := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }
	var s story
	c := &s.cfg
	c.Timer = bentTimer{
		base:       FixedNanos(float64(n("base", 1, 2000)) * 1.37),
		perDecode:  FixedNanos(0.37 * float64(n("per decode", 0, 100))),
		perPrefill: FixedNanos(3.3), perPair: FixedNanos(0.01), slope: FixedNanos(0.013 * float64(n("slope", 0, 50))),
		steeper: FixedNanos(0.7), knot: int64(n("knot", 1, 2000)), jitter: flag("jitter"),
	}
	c.Batching = rapid.SampledFrom(
		[]Batching{BatchingContinuous, BatchingContinuous, BatchingContinuous, BatchingStatic, BatchingNone}).Draw(t,
		"batching")
	c.BlockSize = rapid.SampledFrom([]int{1, 2, 4, 16}).Draw(t, "block size")
	c.NumGPUBlocks = n("blocks", 4, 120)
	c.MaxNumSeqs = n("seqs", 1, 12)
	c.MaxNumBatchedTokens = c.MaxNumSeqs + n("budget", 0, 100)
	if flag("long prefills limited") {
		c.LongPrefillTokenThreshold = n("threshold", 1, 40)
		c.MaxNumPartialPrefills = n("partial", 0, 2)
		c.MaxLongPartialPrefills = n("long partial", 0, 2)
	}
	c.MaxModelLen = max(2, min(c.NumGPUBlocks*c.BlockSize, 200))
	if flag("no chunks") {
		c.DisableChunkedPrefill = true
		c.MaxNumBatchedTokens = max(c.MaxNumBatchedTokens, c.MaxModelLen)
	}
	c.Policy = Policy(n("policy", 0, 1))
	c.DisablePrefixCaching = flag("no prefix caching")
	c.KVEvents = flag("kv events")
	if flag("cpu tier") {
		c.NumCPUBlocks, c.CPUBandwidth = n("cpu blocks", 1, 100), 1e12
	}
	c.ReportSteps = flag("report steps")
	c.KVHoldTimeout = machine.Time(n("hold timeout", 1, 4000))
	c.KVLoadFailure = KVLoadFailure(n("load failure", 0, 1))
	c.Adapters, c.MaxLoRAs, c.LoRALoadTime = []AdapterID{1, 2, 3}, n("loras", 1, 2),
		machine.Time(n("load time", 0, 500))
	c.MaxCPULoRAs, c.LoRAActivateTime = c.MaxLoRAs+n("cpu loras", 0, 2), machine.Time(n("activate time", 0, 200))
	transfers, pauses, controls := flag("transfers"), flag("pauses"), flag("controls")
	at := machine.Time(0)
	last := 0
	for range n("messages", 1, 40) {
		if !flag("at once") {
			at += machine.Time(n("gap", 0, 3000))
		}
		kind := n("kind", 0, 11)
		switch {
		case kind <= 7:
			last++
			m := &Submit{
				ID:           RequestID(last),
				PromptTokens: n("prompt", 1, min(c.MaxModelLen, 90)),
				MaxTokens:    n("max", 0, 60),
				StopAfter:    n("stop", 0, 60),
				Priority:     int32(n("priority", 0, 2)),
				Adapter:      AdapterID(max(0, n("adapter", -3, 3))),
			}
			if flag("every") {
				m.Interest = EveryToken
			}
			if pauses && flag("hold") {
				m.HoldAfterFirst = true
			}
			if transfers && flag("kv hold") {
				m.HoldKV = true
			}
			if transfers && flag("remote") {
				m.Remote = RemoteKV{From: 3, Handle: uint64(last), Tokens: n("remote tokens", 1, 90)}
			}
			// Prompts share prefixes: family f goes its own way at block d.
			f, d := uint64(n("family", 0, 2)), n("departs", 0, 12)
			for i := range n("known blocks", 0, 100) {
				h := uint64(1000 + i)
				if i >= d {
					h += 1000 * (f + 1)
				}
				m.Hashes = append(m.Hashes, mix(h))
			}
			s.messages = append(s.messages, timed{at, m})
		case kind == 8:
			s.messages = append(s.messages, timed{at, Abort{RequestID(n("who", 1, max(1, last)))}})
		case kind == 9:
			s.messages = append(s.messages, timed{at, Resume{RequestID(n("who", 1, max(1, last)))}})
		case kind == 10 && transfers:
			s.messages = append(s.messages, timed{at, KVReleased{uint64(n("who", 1, max(1, last)))}})
		case kind == 11 && controls:
			s.messages = append(s.messages,
				timed{at, Control{Op: Op(n("op", 1, int(OpRestart))), Adapter: AdapterID(n("adapter", 0, 4))}})
		}
	}
	return s
}

// play plays a story to its end as the virtual driver does, and returns all its effects, expanded. It calls check after
// every message and wake-up.
func (s story) play(t *rapid.T, single bool, check func(*Engine)) (*Engine, []string) {
	cfg := s.cfg
	cfg.SingleSteps = single
	e, err := New(cfg)
	if err != nil {
		t.Fatalf("%+v: %v", cfg, err)
	}
	var all expansion
	var fx Effects
	var pending machine.Queue[Message]
	for _, m := range s.messages {
		class := machine.ClassArrival
		if _, ok := m.m.(Abort); ok {
			class = machine.ClassAbort
		}
		pending.Push(m.at, class, m.m)
	}
	for steps := 0; ; steps++ {
		if steps > 50_000 {
			t.Fatalf("no end in sight: %+v", e.Stats())
		}
		wake, ok := e.Next()
		at, more := pending.Next()
		switch {
		case !ok && !more:
			// Whoever still pauses is let go.
			paused := 0
			for s := range e.reqs {
				if r := &e.reqs[s]; r.phase == phasePaused || r.phase == phaseParked {
					pending.Push(e.Now()+1, machine.ClassArrival, Resume{r.id})
					paused++
				}
			}
			if paused == 0 {
				return e, all.sorted()
			}
			continue
		case ok && (!more || wake <= at):
			if wake < e.Now() {
				t.Fatalf("Next is %v, before the engine's own time %v", wake, e.Now())
			}
			e.Advance(wake, &fx)
		default:
			_, m := pending.Pop()
			e.Input(at, m, &fx)
		}
		check(e)
		for i := range fx.List {
			f := &fx.List[i]
			if f.Kind == KVPull {
				delay := machine.Time(f.Bytes/1000 + int64(f.Request%5)*100)
				var answer Message = KVArrived{f.Request}
				if f.Request%4 == 0 {
					answer = KVFailed{f.Request}
				}
				pending.Push(f.At+delay, machine.ClassArrival, answer)
			}
			all.add(&fx, f)
		}
		fx.Reset()
	}
}

// expansion expands runs and orders simultaneous effects, so that two expansions of one story are equal.
type expansion struct {
	rows []row
}

type row struct {
	at   machine.Time
	text string
}

func (x *expansion) add(fx *Effects, f *Effect) {
	switch f.Kind {
	case Tokens:
		for k := range int(f.Count) {
			x.rows = append(x.rows, row{f.Schedule.End(k + 1),
				fmt.Sprintf("token %d of %d", int(f.First)+k, f.Request)})
		}
	case Stepped:
		for k := range int(f.Count) {
			x.rows = append(x.rows, row{f.Schedule.End(k + 1),
				fmt.Sprintf("step %d %d %+v", f.First, f.Batch, fx.Step(f, k))})
		}
	case BlockStored, BlockRemoved:
		for _, h := range fx.BlockHashes(f) {
			x.rows = append(x.rows, row{f.At, fmt.Sprintf("%v %v %x", f.Kind, f.Tier, h)})
		}
	default:
		x.rows = append(x.rows, row{f.At, f.String()})
	}
}

func (x *expansion) sorted() []string {
	slices.SortStableFunc(x.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.text, b.text))
	})
	list := make([]string, len(x.rows))
	for i, r := range x.rows {
		list[i] = fmt.Sprintf("%d %s", r.at, r.text)
	}
	return list
}

// Many steps at once are exactly as many single steps.
func TestMacroStepsEqualSingleSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		one, single := s.play(t, true, func(*Engine) {})
		many, macro := s.play(t, false, func(*Engine) {})
		if d := firstDiff(single, macro); d != "" {
			t.Fatalf("%+v\nsingle steps (-) and macro-steps (+) differ:\n%s", s.cfg, d)
		}
		if d := gocmp.Diff(one.Stats(), many.Stats()); d != "" {
			t.Fatalf("counters differ:\n%s", d)
		}
	})
}

// firstDiff shows where two courses of a story part, which says more than all
// that follows from it.
func firstDiff(a, b []string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	if i == len(a) && i == len(b) {
		return ""
	}
	from := max(0, i-25)
	return strings.Join(a[from:i], "\n") + "\n" + gocmp.Diff(a[i:min(i+12, len(a))], b[i:min(i+12, len(b))])
}
