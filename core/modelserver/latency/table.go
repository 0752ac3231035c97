package latency

import (
	"fmt"
	"slices"
	"sort"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
)

// Point is one measured step: a whole prompt of Context tokens (Decode false)
// or one token for each of Batch sequences of Context tokens.
type Point struct {
	Decode  bool
	Batch   int64
	Context int64
	// Prompt is the length of a whole prompt that a decode step also computes; 0 is none.
	Prompt      int64
	Nanoseconds int64
}

// Table is a timer from measured points. It returns its points exactly, and interpolates bilinearly in batch and mean
// context between them. Attention makes a prompt's time grow faster than its length, with the pairs of tokens. Table
// fits that part from the two longest prompts and removes it before it interpolates, so that chunks and cached prefixes
// take the right time.
type Table struct {
	batches  []int64          // knots, ascending
	contexts []int64          // knots of the mean context, ascending
	decode   [][]engine.Fixed // [batch][context]
	prompts  []int64          // knots of the prompt length, ascending
	linear   []engine.Fixed   // a prompt's time without its pairs
	pair     int64            // per pair, in 2^-36 ns
	read     engine.Fixed     // reading one token of KV cache
	mixed    engine.Fixed     // share of a prompt's time that a decode step adds, 1<<FixedShift is all
	extra    func(tokens, sampled int64) engine.Fixed
}

const (
	maxPoints = 100_000
	pairShift = 36
)

// NewTable builds a table from points in any order. Decode points must form a full grid of batches by contexts. Times
// that fall with longer contexts are measurement noise: NewTable raises them by up to 2 %, and refuses more. It also
// refuses any point faster than the hardware, if that is given.
func NewTable(points []Point, h *hardware.Hardware) (*Table, error) {
	t := &Table{mixed: 1 << engine.FixedShift, extra: func(int64, int64) engine.Fixed { return 0 }}
	if len(points) > maxPoints {
		return nil, fmt.Errorf("table has %d points; at most %d are read", len(points), maxPoints)
	}
	type cell struct{ batch, context int64 }
	decode, prefill := map[cell]int64{}, map[int64]int64{}
	var mixes []Point
	for _, p := range points {
		what := p.String()
		if p.Batch < 1 || p.Batch > 1<<16 || p.Context < 1 || p.Context > 1<<24 || p.Nanoseconds < 1 ||
			p.Nanoseconds > 3600e9 {
			return nil, fmt.Errorf("table: %s takes %s: batch must be 1 to 65536, context 1 to 16777216 tokens, time "+
				"above 0 and at most 1h", what, hardware.Round(p.Nanoseconds))
		}
		var twice bool
		switch {
		case p.Prompt < 0 || p.Prompt > 1<<24 || p.Prompt > 0 && !p.Decode:
			return nil, fmt.Errorf("table: %s: a mixed step decodes, and has a prompt of 1 to 16777216 tokens", what)
		case p.Prompt > 0:
			mixes = append(mixes, p)
		case p.Decode:
			_, twice = decode[cell{p.Batch, p.Context}]
			decode[cell{p.Batch, p.Context}] = p.Nanoseconds
		default:
			if p.Batch != 1 {
				return nil, fmt.Errorf("table: %s: prefill points must have batch 1", what)
			}
			_, twice = prefill[p.Context]
			prefill[p.Context] = p.Nanoseconds
		}
		if twice {
			return nil, fmt.Errorf("table: %s is given twice", what)
		}
		if h != nil {
			if err := h.RefuseFaster("table: "+what, p.Step(), p.Nanoseconds); err != nil {
				return nil, err
			}
		}
	}
	if len(prefill) < 2 || len(decode) == 0 {
		return nil, fmt.Errorf("table has %d prefill and %d decode points; expected at least 2 prompt lengths and 1 "+
			"decode step", len(prefill), len(decode))
	}
	batches, contexts := map[int64]bool{}, map[int64]bool{}
	for c := range decode {
		batches[c.batch], contexts[c.context] = true, true
	}
	t.batches, t.contexts, t.prompts = ascending(batches), ascending(contexts), ascending(prefill)
	for _, b := range t.batches {
		row := make([]engine.Fixed, len(t.contexts))
		for i, c := range t.contexts {
			ns, ok := decode[cell{b, c}]
			if !ok {
				return nil, fmt.Errorf("table: decode of %d sequences of %d tokens is missing; expected every batch "+
					"with every context", b, c)
			}
			row[i] = engine.Fixed(ns) << engine.FixedShift
		}
		if at := lift(row); at >= 0 {
			return nil, fmt.Errorf("table: decode of %d sequences takes %s at %d tokens and less at a longer "+
				"context; expected times that do not fall", b, hardware.Round(decode[cell{b, t.contexts[at]}]),
				t.contexts[at])
		}
		t.decode = append(t.decode, row)
	}
	if err := t.fitPrefill(prefill); err != nil {
		return nil, err
	}
	return t, t.fitMixed(mixes)
}

func ascending[V any](set map[int64]V) []int64 {
	keys := make([]int64, 0, len(set))
	for k := range set {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	return keys
}

// lift makes a row ascending. It raises values by at most 2 %, and returns the index of the point before a deeper fall,
// or -1.
func lift(row []engine.Fixed) int {
	for i := 1; i < len(row); i++ {
		if row[i] < row[i-1] {
			if (row[i-1]-row[i])*50 > row[i-1] {
				return i - 1
			}
			row[i] = row[i-1]
		}
	}
	return -1
}

// fitPrefill splits prompt times into a linear part and a part per pair.
func (t *Table) fitPrefill(prefill map[int64]int64) error {
	n := len(t.prompts)
	short, long := t.prompts[n-2], t.prompts[n-1]
	// If the rest is proportional to length, f(long) - f(short)·long/short consists of pairs alone.
	bend := prefill[long] - machine.MulDiv(prefill[short], long, short)
	if pairs := long*(long+1)/2 - machine.MulDiv(short*(short+1)/2, long, short); bend > 0 && pairs > 0 {
		t.pair = machine.MulDiv(bend, 1<<pairShift, pairs)
	}
	for _, p := range t.prompts {
		t.linear = append(t.linear, engine.Fixed(prefill[p])<<engine.FixedShift-t.pairs(p*(p+1)/2))
	}
	if at := lift(t.linear); at >= 0 || t.linear[0] <= 0 {
		return fmt.Errorf("table: prefill of %d tokens does not fit its neighbours: without attention longer prompts "+
			"would take less time", t.prompts[max(at, 0)])
	}
	last := len(t.batches) - 1
	if k := len(t.contexts); k > 1 {
		span := (t.contexts[k-1] - t.contexts[k-2]) * t.batches[last]
		t.read = (t.decode[last][k-1] - t.decode[last][k-2]) / engine.Fixed(span)
	}
	return nil
}

// fitMixed finds the share of a prompt's time that it takes in a step that also decodes: the share with the least
// square error over the measured mixed steps.
func (t *Table) fitMixed(points []Point) error {
	var product, square float64
	// If the prompt alone takes as long, it hides the decoding, and the point does not determine the share.
	decisive := slices.DeleteFunc(slices.Clone(points), func(p Point) bool {
		return p.Nanoseconds <= int64(t.StepTime(hardware.PrefillStep(p.Prompt)).Time())*201/200
	})
	if len(decisive) == 0 {
		decisive = points
	}
	for _, p := range decisive {
		s := p.Step()
		decode, prompt := t.parts(s)
		product += float64(prompt) * float64(p.Nanoseconds<<engine.FixedShift-int64(decode))
		square += float64(prompt) * float64(prompt)
	}
	if square == 0 {
		return nil
	}
	share := product / square
	if share < 0 || share > 4 {
		return fmt.Errorf("table: prompts take %.2f times as long beside decoding as alone; expected 0 to 4: the "+
			"mixed steps and the others are not of the same server", share)
	}
	t.mixed = engine.FixedNanos(share)
	return nil
}

func (t *Table) pairs(n int64) engine.Fixed {
	return engine.Fixed(machine.MulDiv(n, t.pair, 1<<(pairShift-engine.FixedShift)))
}

// segment returns i with knots[i] <= x < knots[i+1]; -1 below the first and len-1 from the last on.
func segment(knots []int64, x int64) int {
	low, high := -1, len(knots)-1
	for low < high {
		mid := (low + high + 1) / 2
		if knots[mid] <= x {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// between interpolates between knots i and i+1. It returns the first value below the first knot, and continues with the
// last slope beyond the last knot.
func between(knots []int64, x int64, value func(i int) engine.Fixed) engine.Fixed {
	i := segment(knots, x)
	switch {
	case i < 0:
		return value(0)
	case knots[i] == x, len(knots) == 1:
		return value(i)
	}
	i = min(i, len(knots)-2)
	a, b := value(i), value(i+1)
	if b <= a { // noise: fall to b, but no further beyond it
		return max(b, a-engine.Fixed(machine.MulDiv(int64(a-b), x-knots[i], knots[i+1]-knots[i])))
	}
	return a + engine.Fixed(machine.MulDiv(int64(b-a), x-knots[i], knots[i+1]-knots[i]))
}

// DecodeLine implements engine.StepTimer: the knots are those of the mean
// context, times the batch.
func (t *Table) DecodeLine(batch int, context int64) (engine.Line, bool) {
	return t.line(int64(batch), context), true
}

func (t *Table) line(batch, context int64) engine.Line {
	k := segment(t.contexts, context/batch)
	at := func(k int) engine.Fixed {
		return between(t.batches, batch, func(i int) engine.Fixed { return t.decode[i][k] })
	}
	extra := t.extra(batch, batch)
	if k < 0 {
		return engine.Line{Base: at(0) + extra, Until: t.contexts[0] * batch}
	}
	line := engine.Line{Base: at(k) + extra, Until: engine.NoKnot}
	last := len(t.contexts) - 1
	if last == 0 {
		return line
	}
	from := k
	if k == last {
		from = last - 1 // beyond the table, the last slope continues
	} else {
		line.Until = t.contexts[k+1] * batch
	}
	rise := at(from+1) - at(from)
	line.Slope = max(0, rise/engine.Fixed((t.contexts[from+1]-t.contexts[from])*batch))
	line.Base += line.Slope * engine.Fixed(context-t.contexts[k]*batch)
	return line
}

// StepTime implements engine.StepTimer. A mixed step takes the time of its decodes alone, plus the time that its prompt
// tokens add to a batch of that many tokens (or the share of it that measured mixed steps take), and never less than
// its prompts alone.
func (t *Table) StepTime(s *engine.Step) engine.Fixed {
	batch := int64(s.DecodeSeqs)
	if s.PrefillTokens == 0 {
		if batch == 0 {
			return oneNanosecond
		}
		return t.line(batch, s.DecodeContext).Base
	}
	alone := t.tokens(s.PrefillTokens) + t.attention(s) + t.extra(s.PrefillTokens, int64(s.PrefillFinished))
	if batch == 0 {
		return alone
	}
	decode, prompt := t.parts(s)
	if t.mixed != 1<<engine.FixedShift {
		prompt = engine.Fixed(machine.MulDiv(int64(prompt), int64(t.mixed), 1<<engine.FixedShift))
	}
	return max(alone, decode+prompt)
}

// tokens returns the time of prompt tokens without their attention.
func (t *Table) tokens(n int64) engine.Fixed {
	return between(t.prompts, n, func(i int) engine.Fixed { return t.linear[i] })
}

func (t *Table) attention(s *engine.Step) engine.Fixed {
	return max(t.pairs(s.PrefillPairs), t.read*engine.Fixed(s.PrefillContext))
}

// parts returns the two parts of a mixed step: the time of its decodes alone, and the time that its prompt tokens add
// to a batch of that many tokens.
func (t *Table) parts(s *engine.Step) (decode, prompt engine.Fixed) {
	batch := int64(s.DecodeSeqs)
	decode = t.line(batch, s.DecodeContext).Base - t.extra(batch, batch)
	return decode, t.tokens(s.PrefillTokens+batch) - t.tokens(batch) + t.attention(s) +
		t.extra(s.PrefillTokens+batch, batch+int64(s.PrefillFinished))
}

// Step returns the work of the measured step.
func (p Point) Step() *engine.Step {
	if p.Prompt > 0 {
		s := hardware.PrefillStep(p.Prompt)
		s.DecodeSeqs, s.DecodeContext = int(p.Batch), p.Batch*p.Context
		return s
	}
	if p.Decode {
		return hardware.DecodeStep(p.Batch, p.Context)
	}
	return hardware.PrefillStep(p.Context)
}

// String returns the name of the point in errors.
func (p Point) String() string {
	if p.Prompt > 0 {
		return fmt.Sprintf("prefill of %d tokens beside decode of %d sequences of %d tokens", p.Prompt, p.Batch,
			p.Context)
	}
	if p.Decode {
		return fmt.Sprintf("decode of %d sequences of %d tokens", p.Batch, p.Context)
	}
	return fmt.Sprintf("prefill of %d tokens", p.Context)
}
