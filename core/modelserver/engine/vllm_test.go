package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// plain is vLLM V1's scheduler and block pool, slow and simple: every block has a number, every list is
// searched from its beginning, every step is composed by itself. It is a reference for Engine and shares nothing
// with it but the configuration, the messages and the timer.
type plain struct {
	c                Config
	now              machine.Time
	steps            uint64
	blocks           []plainBlock
	free             []int            // numbers of blocks; the first is taken next
	cached           map[uint64][]int // blocks with a content, oldest first
	waiting, running []*plainRequest
	said             []string
	// parted says that from here on a difference is to be expected: vLLM keeps content twice that Engine keeps once.
	parted bool
}

type plainBlock struct {
	refs  int
	named bool
	name  uint64
}

type plainRequest struct {
	*Submit
	arrival, total, made, computed, named int
	again                                 bool
	blocks                                []int
}

func (r *plainRequest) tokens() int { return r.PromptTokens + r.made }

func newPlain(c Config) *plain {
	p := &plain{c: c, cached: map[uint64][]int{}, blocks: make([]plainBlock, c.NumGPUBlocks)}
	for i := range p.blocks {
		p.free = append(p.free, i)
	}
	return p
}

// name is the name of block number i of a request: content that nobody else has, past what the request names.
func (r *plainRequest) name(i int) uint64 {
	if i < len(r.Hashes) {
		return r.Hashes[i]
	}
	return mix(mix(uint64(r.ID)) + uint64(i))
}

// find is the cached blocks with which a request can begin: full ones, without the one of its last token.
func (p *plain) find(r *plainRequest) (list []int) {
	for i := 0; !p.c.DisablePrefixCaching && i < (r.tokens()-1)/p.c.BlockSize; i++ {
		copies := p.cached[r.name(i)]
		if len(copies) == 0 {
			break
		}
		p.parted = p.parted || len(copies) > 1
		list = append(list, copies[0])
	}
	return list
}

// allocate gives a request the blocks for n more tokens behind those that were found, or nothing at all. A
// request that begins needs room for all its tokens (scheduler_reserve_full_isl).
func (p *plain) allocate(r *plainRequest, n int, found []int, begins bool) bool {
	size := p.c.BlockSize
	until := r.computed + len(found)*size + n
	blocks := (until + size - 1) / size
	need := blocks
	if begins {
		need = (r.tokens() + size - 1) / size
	}
	need -= len(r.blocks) + len(found)
	for _, b := range found {
		if p.blocks[b].refs == 0 {
			need++
		}
	}
	if need > len(p.free) {
		return false
	}
	for _, b := range found {
		if p.blocks[b].refs == 0 {
			p.free = slices.DeleteFunc(p.free, func(x int) bool { return x == b })
		}
		p.blocks[b].refs++
	}
	r.blocks, r.named = append(r.blocks, found...), max(r.named, len(found))
	for len(r.blocks) < blocks {
		b := p.free[0]
		p.free = p.free[1:]
		x := &p.blocks[b]
		if x.named {
			p.cached[x.name] = slices.DeleteFunc(p.cached[x.name], func(y int) bool { return y == b })
		}
		*x = plainBlock{refs: 1}
		r.blocks = append(r.blocks, b)
	}
	for ; !p.c.DisablePrefixCaching && r.named < min(until, r.tokens())/size; r.named++ {
		b, name := r.blocks[r.named], r.name(r.named)
		for _, other := range p.cached[name] {
			p.parted = p.parted || p.blocks[other].refs > 0
		}
		p.blocks[b].named, p.blocks[b].name = true, name
		p.cached[name] = append(p.cached[name], b)
	}
	return true
}

// release takes all blocks from a request, the last one first.
func (p *plain) release(r *plainRequest) {
	for _, b := range slices.Backward(r.blocks) {
		if p.blocks[b].refs--; p.blocks[b].refs == 0 {
			p.free = append(p.free, b)
		}
	}
	r.blocks, r.named, r.computed = nil, 0, 0
}

// enqueue puts a request where its turn is: by priority where that counts, then by arrival.
func (p *plain) enqueue(r *plainRequest) {
	p.waiting = append(p.waiting, r)
	slices.SortFunc(p.waiting, p.order)
}

func (p *plain) order(a, b *plainRequest) int {
	if p.c.Policy == PolicyPriority && a.Priority != b.Priority {
		return int(a.Priority - b.Priority)
	}
	return a.arrival - b.arrival
}

// schedule composes a step: how many tokens each request gets, in the order in which they were asked.
func (p *plain) schedule() (asked []*plainRequest, got map[*plainRequest]int, preempted []RequestID) {
	budget, got := p.c.MaxNumBatchedTokens, map[*plainRequest]int{}
	limited := func(n int) int {
		if t := p.c.LongPrefillTokenThreshold; t > 0 {
			n = min(n, t)
		}
		return n
	}
	for i := 0; i < len(p.running) && budget > 0; i++ {
		r := p.running[i]
		n := min(limited(r.tokens()-r.computed), budget)
		for !p.allocate(r, n, nil, false) {
			victim := p.running[len(p.running)-1]
			if p.c.Policy == PolicyPriority {
				victim = slices.MaxFunc(p.running, p.order)
			}
			at := slices.Index(p.running, victim)
			p.running = slices.Delete(p.running, at, at+1)
			if given, had := got[victim]; had {
				budget += given
				delete(got, victim)
				asked = slices.DeleteFunc(asked, func(x *plainRequest) bool { return x == victim })
				i--
			}
			p.release(victim)
			p.enqueue(victim)
			victim.again = true
			preempted = append(preempted, victim.ID)
			if victim == r {
				return asked, got, preempted
			}
		}
		asked, got[r] = append(asked, r), n
		budget -= n
	}
	for len(preempted) == 0 && len(p.waiting) > 0 && budget > 0 && len(p.running) < p.c.MaxNumSeqs {
		r := p.waiting[0]
		found := p.find(r)
		n := limited(r.tokens() - len(found)*p.c.BlockSize)
		if p.c.DisableChunkedPrefill && n > budget {
			break
		}
		n = min(n, budget)
		if !p.allocate(r, n, found, true) {
			break
		}
		p.waiting = p.waiting[1:]
		r.computed = len(found) * p.c.BlockSize
		p.running = append(p.running, r)
		asked, got[r] = append(asked, r), n
		budget -= n
	}
	return asked, got, preempted
}

// step plays one step, if there is anything to compute.
func (p *plain) step() bool {
	asked, got, preempted := p.schedule()
	for again := preempted; len(asked) == 0 && len(again) > 0; preempted = append(preempted, again...) {
		asked, got, again = p.schedule()
	}
	if len(asked) == 0 {
		return false
	}
	work, line := Step{Index: p.steps}, stepLine{at: p.now, preempted: preempted, used: len(p.blocks) - len(p.free)}
	for _, r := range asked {
		n, c := int64(got[r]), int64(r.computed)
		line.add(r.ID, got[r])
		// a prompt's first computation takes a prefill's time, whatever its length
		if n == 1 && (r.made > 0 || r.again) {
			work.DecodeSeqs, work.DecodeContext = work.DecodeSeqs+1, work.DecodeContext+c+1
			continue
		}
		work.PrefillSeqs, work.PrefillTokens = work.PrefillSeqs+1, work.PrefillTokens+n
		work.PrefillContext += c
		work.PrefillPairs += n*c + n*(n+1)/2
		if r.computed+got[r] == r.tokens() {
			work.PrefillFinished++
		}
	}
	p.said = append(p.said, line.String())
	p.steps++
	p.now += p.c.Timer.StepTime(&work).Time()
	for _, r := range asked {
		if r.computed += got[r]; r.computed < r.tokens() {
			continue
		}
		if r.made++; r.made == r.total {
			p.running = slices.DeleteFunc(p.running, func(x *plainRequest) bool { return x == r })
			p.release(r)
			p.said = append(p.said, fmt.Sprintf("%d finished %d", p.now, r.ID))
		}
	}
	return true
}

// play plays messages to their end, or to the step from which on there may be a difference.
func (p *plain) play(messages []timed) []string {
	for number := 0; ; {
		for ; number < len(messages) && messages[number].at <= p.now; number++ {
			m := messages[number].m.(*Submit)
			total, _ := p.c.outputTokens(m)
			p.enqueue(&plainRequest{Submit: m, arrival: number, total: int(total)})
		}
		said := len(p.said)
		if more := p.step(); p.parted {
			return p.said[:said]
		} else if !more && number == len(messages) {
			return p.said
		} else if !more {
			p.now = messages[number].at
		}
	}
}

// stepLine holds the work of a step, for comparison.
type stepLine struct {
	at        machine.Time
	requests  []string
	preempted []RequestID
	used      int
}

func (l *stepLine) add(id RequestID, tokens int) {
	l.requests = append(l.requests, fmt.Sprintf("%d:%d", id, tokens))
}

func (l *stepLine) String() string {
	slices.Sort(l.preempted)
	requests := strings.Join(l.requests, " ")
	return fmt.Sprintf("%d computes %s, preempted %v, uses %d blocks", l.at, requests, l.preempted, l.used)
}

// watched plays the same messages with an Engine, and says the same of it.
func watched(t *testing.T, c Config, messages []timed) (said []string) {
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var fx Effects
	var preempted []RequestID
	steps := uint64(0)
	look := func() {
		var ended []string
		for i := range fx.List {
			switch f := &fx.List[i]; f.Kind {
			case Preempted:
				preempted = append(preempted, f.Request)
			case Finished:
				ended = append(ended, fmt.Sprintf("%d finished %d", f.At, f.Request))
			}
		}
		said = append(said, ended...)
		fx.Reset()
		if !e.run.active || e.run.begun == 0 || e.step.Index < steps {
			return
		}
		steps = e.step.Index + 1
		line := stepLine{at: e.run.schedule.Start, preempted: preempted, used: e.pool.used()}
		for s := e.batch.first; s != none; s = e.reqs[s].next {
			switch r := &e.reqs[s]; {
			case r.phase == phaseDecode && !r.starved:
				line.add(r.id, 1)
			case r.phase == phasePrefill && slices.Contains(e.fills, s):
				line.add(r.id, int(r.take))
			}
		}
		said, preempted = append(said, line.String()), nil
	}
	for {
		wake, ok := e.Next()
		switch {
		case len(messages) > 0 && (!ok || messages[0].at < wake):
			e.Input(messages[0].at, messages[0].m, &fx)
			messages = messages[1:]
		case ok:
			e.Advance(wake, &fx)
		default:
			return said
		}
		look()
	}
}

// drawn is scenario number n: a small engine, and requests that share prefixes and want more than there is.
func drawn(n uint64) (c Config, messages []timed) {
	d := machine.NewDraw(n, "vllm", "scenario", 0)
	between := func(low, high int) int { return low + d.Intn(high-low+1) }
	timer := bentTimer{base: FixedNanos(float64(between(50, 500))), perDecode: FixedNanos(3), perPrefill: FixedNanos(2),
		perPair: FixedNanos(1), slope: FixedNanos(1), knot: 1 << 40}
	c = Config{BlockSize: []int{2, 4, 16}[d.Intn(3)], NumGPUBlocks: between(8, 60), MaxNumSeqs: between(1, 12),
		Policy: Policy(d.Intn(2)), DisablePrefixCaching: d.Intn(4) == 0, Timer: timer, SingleSteps: true}
	c.MaxNumBatchedTokens = c.MaxNumSeqs + between(0, 60)
	c.MaxModelLen = min(c.NumGPUBlocks*c.BlockSize, 150)
	switch d.Intn(4) {
	case 0:
		c.LongPrefillTokenThreshold = between(4, 40)
	case 1:
		c.DisableChunkedPrefill, c.MaxNumBatchedTokens = true, max(c.MaxNumBatchedTokens, c.MaxModelLen)
	}
	at, gap := machine.Time(0), between(0, 3000)
	for i := range between(5, 40) {
		at += machine.Time(between(0, gap))
		m := &Submit{ID: RequestID(i + 1), PromptTokens: between(1, min(c.MaxModelLen-1, 100)),
			MaxTokens: between(1, 60), Priority: int32(d.Intn(3))}
		family, departs := uint64(d.Intn(3)), between(0, 8)
		for b := range m.PromptTokens / c.BlockSize {
			name := uint64(1000 + b)
			if b >= departs {
				name = uint64(m.ID)*10_000 + name
			}
			m.Hashes = append(m.Hashes, mix(family*100+name))
		}
		messages = append(messages, timed{at, m})
	}
	return c, messages
}

// Step by step an Engine computes what vLLM V1 does: the same requests the same number of tokens, with the same
// ones preempted and as many blocks in use, so that all end at the same nanosecond.
func TestSchedulesAsVLLMDoes(t *testing.T) {
	whole, steps, preempted := 0, 0, 0
	for n := range uint64(200) {
		c, messages := drawn(n)
		p := newPlain(c)
		want := p.play(messages)
		got := watched(t, c, messages)
		if p.parted {
			got = got[:min(len(got), len(want))]
		} else {
			whole++
		}
		if d := firstDiff(want, got); d != "" {
			t.Fatalf("scenario %d: %+v\nvLLM (-) and the engine (+) differ:\n%s", n, c, d)
		}
		steps += len(want)
		for _, line := range want {
			if strings.Contains(line, "preempted [") && !strings.Contains(line, "preempted []") {
				preempted++
			}
		}
	}
	t.Logf("%d of 200 scenarios to their end, %d lines, %d steps with preemptions", whole, steps, preempted)
	if whole < 100 || preempted < 100 {
		t.Errorf("%d scenarios were compared to their end, with %d steps that preempt; expected 100 of each",
			whole, preempted)
	}
}
