package calibrate

import (
	"fmt"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Server holds the data that a server reports about itself.
type Server struct {
	Model, Version string
	// ModelLen is the most tokens of a prompt with its answer. KVTokens is the KV cache's capacity in tokens. 0 means
	// unknown.
	ModelLen, KVTokens int
	// Busy is the number of requests that the server is serving.
	Busy int
	// Overhead is the duration of a request that computes nothing, as the median of 20.
	Overhead time.Duration
}

// Limits is the range of the probes.
type Limits struct {
	// MaxPrompt is the longest prompt in tokens, and MaxBatch the most requests at once.
	MaxPrompt, MaxBatch int
	// Contexts are the lengths of the prompts of decoding requests, ascending.
	Contexts []int
	// Repeats is the number of measurements of a prompt's time.
	Repeats int
	// Traffic is the number of random requests at each of the loads; 0 is none.
	Traffic int
	// KVTokens is the capacity of the server's KV cache; 0 is unknown.
	KVTokens int
	// ModelLen is the most tokens of a prompt with its answer; 0 is unknown.
	ModelLen int
}

// Bounds of limits.
const (
	mostPrompt  = 1 << 20
	mostBatch   = 4096
	mostRepeats = 1000
	mostTraffic = 100_000
	leastPrompt = 16
)

// Check returns an error about invalid limits.
func (l *Limits) Check() error {
	switch {
	case l.MaxPrompt < 2*leastPrompt || l.MaxPrompt > mostPrompt:
		return fmt.Errorf("the longest prompt is %d tokens; expected %d to %d", l.MaxPrompt, 2*leastPrompt, mostPrompt)
	case l.MaxBatch < 1 || l.MaxBatch > mostBatch:
		return fmt.Errorf("the largest batch is %d; expected 1 to %d", l.MaxBatch, mostBatch)
	case l.Repeats < 1 || l.Repeats > mostRepeats:
		return fmt.Errorf("%d repeats; expected 1 to %d", l.Repeats, mostRepeats)
	case l.Traffic < 0 || l.Traffic > mostTraffic:
		return fmt.Errorf("%d requests that come at random; expected 0 to %d", l.Traffic, mostTraffic)
	case len(l.Contexts) == 0 || len(l.Contexts) > 32 || !slices.IsSorted(l.Contexts) ||
		len(slices.Compact(slices.Clone(l.Contexts))) < len(l.Contexts) || l.Contexts[0] < 1:
		return fmt.Errorf("contexts %v; expected 1 to 32 lengths, ascending", l.Contexts)
	case l.KVTokens < 0 || l.ModelLen < 0:
		return fmt.Errorf("a KV cache of %d tokens and prompts with answers of %d; expected none or more", l.KVTokens,
			l.ModelLen)
	}
	return nil
}

// Probe is a set of requests to send at once to an idle server, and to wait for.
type Probe struct {
	// Name describes the purpose, in words.
	Name string
	// Requests is the number of requests. Each asks for exactly Tokens tokens, with a prompt of Prompt tokens. Prompts
	// of different probes differ from their first token on. Again repeats the prompts of the last probe.
	Requests, Prompt, Tokens int
	Again                    bool
	// Later holds further requests, each sent at its own time.
	Later []Send

	kind    kind
	heldOut bool
	load    int // percent, of traffic
}

// Send is one request that is sent at a time after the beginning of the probe. It asks for Tokens tokens, with a unique
// prompt of Prompt tokens.
type Send struct {
	At             machine.Time
	Prompt, Tokens int
}

type kind uint8

const (
	prefill kind = iota
	decode
	prefix
	mixed
	traffic
)

// Result holds the measurements of a probe.
type Result struct {
	// Arrived holds the arrival times of each request's tokens, since the beginning of the probe: first of Requests,
	// then of Later. Sent holds the actual times at which Later was sent.
	Arrived [][]machine.Time
	Sent    []machine.Time
	// Cached is the number of cached prompt tokens of the first request, -1 if the server does not report it.
	Cached int
}

// Plan holds the probes of one server, in order. Next returns a probe, and Took takes its result.
type Plan struct {
	limits   Limits
	overhead machine.Time
	list     []Probe
	next     int

	prompts map[int][]int64      // times in nanoseconds by length
	steps   map[int][]step       // by batch
	full    map[int]int          // context from which on a batch does not fit
	held    []comparison         // probes that the table does not use
	begin   map[int]machine.Time // time at which all of a batch of the shortest context decoded
	mixes   []mix                // steps of prompts and tokens together
	seen    []seen               // traffic
	Prefix  *Prefix              // result for a repeated prompt; nil until it was probed
}

// step is a measured decode step of requests with a mean context.
type step struct {
	context float64
	took    float64 // nanoseconds
}

// comparison is a held-out probe.
type comparison struct {
	probe   Probe
	context float64
	took    []float64 // each measured time
}

// mix is a measured step of a decoding batch and a prompt.
type mix struct {
	batch, prompt int
	step
}

// seen is the result of a traffic probe.
type seen struct {
	probe   Probe
	sent    []machine.Time
	figures figures
}

// Prefix is the result for a prompt that was sent before.
type Prefix struct {
	Tokens, Cached int
	Cold, Warm     machine.Time
}

// New returns the plan for a server that takes overhead for a request that computes nothing.
func New(l Limits, overhead machine.Time) (*Plan, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	p := &Plan{limits: l, overhead: overhead, prompts: map[int][]int64{}, steps: map[int][]step{}, full: map[int]int{},
		begin: map[int]machine.Time{}}
	for n := range l.prompts() {
		p.prefill(l.prompts()[n], false)
	}
	for _, b := range l.batches() {
		for _, c := range l.contexts() {
			p.decode(b, c, false)
		}
	}
	// Held-out probes: lengths and batches between those of the table.
	lengths := l.prompts()
	for i := 2; i+1 < len(lengths); i += 2 {
		p.prefill((lengths[i]+lengths[i+1])/2, true)
	}
	batches, contexts := l.batches(), l.contexts()
	for i := 1; i+1 < len(batches); i += 2 {
		p.decode((batches[i]+batches[i+1])/2, contexts[0], true)
		if len(contexts) > 2 {
			p.decode((batches[i]+batches[i+1])/2, (contexts[1]+contexts[2])/2, true)
		}
	}
	p.planMixed()
	p.planTraffic()
	again := lengths[len(lengths)-1] / 2
	p.list = append(p.list, Probe{Name: fmt.Sprintf("a prompt of %d tokens", again), Requests: 1, Prompt: again,
		Tokens: 1, kind: prefix},
		Probe{Name: fmt.Sprintf("the same prompt of %d tokens again", again), Requests: 1, Prompt: again, Tokens: 1,
			Again: true, kind: prefix})
	return p, nil
}

// prompts returns the prompt lengths of the table.
func (l *Limits) prompts() (out []int) {
	for n := leastPrompt; n < l.MaxPrompt; n *= 2 {
		out = append(out, n)
	}
	return append(out, l.MaxPrompt)
}

func (l *Limits) batches() (out []int) {
	for n := 1; n < l.MaxBatch; n *= 2 {
		out = append(out, n)
	}
	return append(out, l.MaxBatch)
}

// contexts returns the contexts that leave space for an answer.
func (l *Limits) contexts() (out []int) {
	for _, c := range l.Contexts {
		if c <= l.MaxPrompt {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		out = []int{l.MaxPrompt}
	}
	return out
}

func (p *Plan) prefill(n int, heldOut bool) {
	for range p.limits.Repeats {
		p.list = append(p.list, Probe{Name: fmt.Sprintf("a prompt of %d tokens", n), Requests: 1, Prompt: n, Tokens: 1,
			kind: prefill, heldOut: heldOut})
	}
}

// leastWindow and window are the minimum and the planned number of measured steps of a batch.
const leastWindow, window = 8, 32

func (p *Plan) decode(batch, context int, heldOut bool) {
	// The first requests to decode wait for the prompts of the others, in steps of at least 2,048 tokens.
	tokens := window + 2 + (batch*context+2047)/2048
	p.list = append(p.list, Probe{Name: fmt.Sprintf("%d at once of %d tokens", batch, context), Requests: batch,
		Prompt: context, Tokens: tokens, kind: decode, heldOut: heldOut})
}

// Next returns the next probe, or false if there is none.
func (p *Plan) Next() (Probe, bool) {
	for ; p.next < len(p.list); p.next++ {
		x := p.list[p.next]
		switch x.kind {
		case mixed:
			begin, known := p.begin[x.Requests]
			if !known {
				// Between two batches: the time at which the next larger one decoded.
				for _, b := range p.limits.batches() {
					if at, ok := p.begin[b]; ok && b > x.Requests && !known {
						begin, known = at, true
					}
				}
			}
			if !known {
				continue // fewer decoded at once
			}
			x.Later[0].At = begin + machine.Time(float64(window/4)*p.pace(x.Requests))
		case traffic:
			if x.Later == nil && !p.arrivals(&x) {
				continue
			}
		}
		if p.list[p.next] = x; x.kind != decode && x.kind != mixed {
			return x, true
		}
		if most, known := p.full[x.Requests]; known && x.Prompt >= most {
			continue // a batch of this size does not fit
		}
		if p.limits.ModelLen > 0 && x.Prompt+x.Tokens > p.limits.ModelLen {
			continue
		}
		if p.limits.KVTokens > 0 && x.Requests*(x.Prompt+x.Tokens) > p.limits.KVTokens {
			continue
		}
		return x, true
	}
	return Probe{}, false
}

// Left returns the number of remaining probes, and of all probes.
func (p *Plan) Left() (left, of int) { return len(p.list) - p.next, len(p.list) }

// Took takes the result of the last probe.
func (p *Plan) Took(r Result) error {
	x := p.list[p.next]
	p.next++
	if n := x.Requests + len(x.Later); len(r.Arrived) != n || len(r.Sent) != len(x.Later) {
		return fmt.Errorf("%s: %d of %d requests were answered", x.Name, len(r.Arrived), n)
	}
	for i, list := range r.Arrived {
		tokens := x.Tokens
		if i >= x.Requests {
			tokens = x.Later[i-x.Requests].Tokens
		}
		if len(list) != tokens {
			return fmt.Errorf("%s: %d tokens came, one piece each, of %d that were asked for; a server that sends "+
				"several at once (speculation, a stream interval) cannot be measured by its gaps", x.Name, len(list),
				tokens)
		}
	}
	first := r.Arrived[0][0]
	switch x.kind {
	case prefill:
		ns := int64(max(first-p.overhead, 1))
		last := len(p.held) - 1
		switch {
		case !x.heldOut:
			p.prompts[x.Prompt] = append(p.prompts[x.Prompt], ns)
		case last >= 0 && p.held[last].probe.Name == x.Name: // a repeat
			p.held[last].took = append(p.held[last].took, float64(ns))
		default:
			p.held = append(p.held, comparison{x, float64(x.Prompt), []float64{float64(ns)}})
		}
	case decode:
		s, ok := middle(r.Arrived, x.Prompt)
		switch {
		case !ok && x.heldOut:
		case !ok:
			p.full[x.Requests] = x.Prompt
		case x.heldOut:
			p.held = append(p.held, comparison{x, s.context, []float64{s.took}})
		default:
			p.steps[x.Requests] = append(p.steps[x.Requests], s)
			if x.Prompt == p.limits.contexts()[0] {
				for _, list := range r.Arrived {
					p.begin[x.Requests] = max(p.begin[x.Requests], list[0])
				}
			}
		}
	case mixed:
		s, ok := joined(r.Arrived, x.Prompt)
		switch {
		case !ok: // too late or too early: it gives no information
		case x.heldOut:
			p.held = append(p.held, comparison{x, s.context, []float64{s.took}})
		default:
			p.mixes = append(p.mixes, mix{x.Requests, x.Later[0].Prompt, s})
		}
	case traffic:
		y := seen{probe: x, sent: r.Sent}
		for i, list := range r.Arrived {
			y.figures.add(r.Sent[i]+p.overhead, list)
		}
		p.seen = append(p.seen, y)
	case prefix:
		if !x.Again {
			p.Prefix = &Prefix{Tokens: x.Prompt, Cold: first}
		} else if p.Prefix != nil {
			p.Prefix.Warm, p.Prefix.Cached = first, r.Cached
		}
	}
	return nil
}

// pace returns the duration of a batch's step at the shortest context, in nanoseconds: of that batch, or of the next
// larger measured one.
func (p *Plan) pace(batch int) float64 {
	for _, b := range p.limits.batches() {
		if list := p.steps[b]; b >= batch && len(list) > 0 {
			return list[0].took
		}
	}
	return 0
}

// middle returns the middle step among those in which all requests decode, with the median of their gaps. It returns
// false if there are too few.
func middle(arrived [][]machine.Time, prompt int) (step, bool) {
	from, to := machine.Time(0), machine.Never
	for _, list := range arrived {
		from, to = max(from, list[0]), min(to, list[len(list)-1])
	}
	var gaps []float64
	tokens := 0.0
	for _, list := range arrived {
		for i := 1; i < len(list); i++ {
			if list[i-1] >= from && list[i] <= to {
				gaps = append(gaps, float64(list[i]-list[i-1]))
				tokens += float64(prompt + i)
			}
		}
	}
	if len(gaps) < leastWindow*len(arrived) {
		return step{}, false
	}
	return step{context: tokens / float64(len(gaps)), took: median(gaps)}, true
}

// median returns the median of one or more values, which it sorts.
func median[N ~int64 | ~float64](values []N) N {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return values[n/2-1]/2 + values[n/2]/2
}
