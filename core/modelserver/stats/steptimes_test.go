package stats

import (
	"math"
	"slices"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// bench is an engine with what counts at it.
type bench struct {
	*Stats
	eng  *engine.Engine
	fx   engine.Effects
	seqs map[engine.RequestID]*Sequence
}

func newBench(t testing.TB, c engine.Config) *bench {
	eng, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	c = eng.Config()
	return &bench{Stats: New(&c), eng: eng, seqs: map[engine.RequestID]*Sequence{}}
}

func (b *bench) submit(now machine.Time, m *engine.Submit, q *Sequence) {
	q.PromptTokens, q.MaxTokens, q.Arrived, q.Queued = m.PromptTokens, m.MaxTokens, now, now
	if q.EveryToken {
		m.Interest = engine.EveryToken
	}
	b.seqs[m.ID] = q
	b.input(now, m)
}

func (b *bench) input(now machine.Time, m engine.Message) {
	b.eng.Input(now, m, &b.fx)
	b.deliver()
}

func (b *bench) deliver() {
	for i := range b.fx.List {
		b.Effect(&b.fx, &b.fx.List[i], b.seqs[b.fx.List[i].Request])
	}
	b.fx.Reset()
	b.Delivered()
}

// run plays to the end.
func (b *bench) run() {
	for at, ok := b.eng.Next(); ok && b.eng.InFlight() > 0; at, ok = b.eng.Next() {
		b.eng.Advance(at, &b.fx)
		b.deliver()
	}
}

// A request with only its ends reported adds exactly the same to the histogram of inter-token latency as a request with
// every token reported, even if a long prompt is computed in between.
func TestIntervalsAreTheSameUntold(t *testing.T) {
	t.Parallel()
	var got [2]histogram
	for every := range got {
		b := newBench(t, engine.Config{ReportSteps: true, NumGPUBlocks: 1000,
			Timer: latency.PerToken{Step: engine.ToFixed(15 * machine.Millisecond),
				PrefillToken: engine.ToFixed(machine.Millisecond)}})
		b.submit(0, &engine.Submit{ID: 1, PromptTokens: 10, MaxTokens: 20}, &Sequence{EveryToken: every == 1})
		b.eng.Advance(100*machine.Millisecond, &b.fx)
		b.deliver()
		// computes its prompt beside the first
		b.submit(100*machine.Millisecond, &engine.Submit{ID: 2, PromptTokens: 300, MaxTokens: 8},
			&Sequence{EveryToken: every == 1})
		b.run()
		got[every] = b.itl
	}
	if got[0].n != 19+7 || !slices.Equal(got[0].counts, got[1].counts) || math.Abs(got[0].sum-got[1].sum) > 1e-9 {
		t.Errorf("untold %d intervals %v, %v s; told %d %v, %v s", got[0].n, got[0].counts, got[0].sum, got[1].n,
			got[1].counts, got[1].sum)
	}
	used := 0
	for _, n := range got[0].counts {
		if n > 0 {
			used++
		}
	}
	if used < 2 {
		t.Errorf("all in one bucket: %v", got[0].counts)
	}
	if len(got[0].counts) != itlBuckets {
		t.Errorf("%d buckets, room for %d", len(got[0].counts), itlBuckets)
	}
}

// What begins at the zero of time is as scheduled as what begins later.
func TestZeroOfTime(t *testing.T) {
	t.Parallel()
	for _, at := range []machine.Time{0, machine.Second} {
		b := newBench(t, engine.Config{ReportSteps: true, NumGPUBlocks: 100,
			Timer: latency.PerToken{Step: engine.ToFixed(10 * machine.Millisecond)}})
		b.submit(at, &engine.Submit{ID: 1, PromptTokens: 10, MaxTokens: 5}, &Sequence{})
		b.run()
		if b.queue.sum != 0 || b.inference.n != 1 || b.prefill.n != 1 || b.decode.n != 1 || b.tpot.n != 1 ||
			b.e2e.n != 1 || b.QueriedTokens != 10 {
			t.Errorf("begun at %v: queue %v s, %d inferences, %d prefills, %d decodes, %d times per token", at,
				b.queue.sum, b.inference.n, b.prefill.n, b.decode.n, b.tpot.n)
		}
	}
}
