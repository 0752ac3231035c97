package report

import (
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/stats"
)

// Series is a run over time: what was sent and what ended in each stretch of it,
// and how much was under way at its end. Stretches are as short as they can be
// with no more than maxStretches of them. It is safe for concurrent use; a nil
// Series takes nothing.
type Series struct {
	mu    sync.Mutex
	width machine.Time
	list  []window
	level Level // the newest
	kv    [2]float64
}

// maxStretches is how many stretches there are at most, firstWidth how long they are
// at first, and maxStretched how many latencies of each are kept: of more one in
// two, one in four …
const (
	maxStretches = 120
	firstWidth   = 100 * machine.Millisecond
	maxStretched = 1 << 12
)

// Level is how many requests are under way, and how far.
type Level struct {
	InFlight int `json:"inFlight"` // sent and not ended
	Waiting  int `json:"waiting"`  // at a model server, before their prefill begins
	Running  int `json:"running"`  // prefilled or decoded there
}

// Window is one stretch. Times are in seconds, percentiles the 50th, 90th and 99th of the
// requests that completed in it; without any there are none.
type Window struct {
	From     float64                `json:"from"`
	Sent     int                    `json:"sent,omitempty"`
	Outcomes map[record.Outcome]int `json:"outcomes,omitempty"`
	TTFT     []float64              `json:"ttft,omitempty"`
	TPOT     []float64              `json:"tpot,omitempty"`
	E2E      []float64              `json:"e2e,omitempty"`
	Prompt   int                    `json:"promptTokens,omitempty"`
	Cached   int                    `json:"cachedTokens,omitempty"`
	Tokens   int                    `json:"tokens,omitempty"`
	// Level is that at its end; KV is the share of the KV caches in use, on average over
	// the pods and of the fullest, where somebody says.
	Level
	KV []float64 `json:"kv,omitempty"`
}

type window struct {
	Window
	ttft, tpot, e2e thinned
	told            bool // percentiles are those of what was kept
}

// thinned keeps values, evenly thinned where they are too many.
type thinned struct {
	list   []float64
	stride int
	seen   int
}

func (t *thinned) add(v float64) {
	t.stride = max(t.stride, 1)
	if t.seen++; t.seen%t.stride != 0 {
		return
	}
	if t.list = append(t.list, v); len(t.list) == maxStretched {
		t.stride *= 2
		for i := range t.list[:maxStretched/2] {
			t.list[i] = t.list[2*i]
		}
		t.list = t.list[:maxStretched/2]
	}
}

func (t *thinned) take(o *thinned) {
	for _, v := range o.list {
		t.add(v)
	}
}

func (t *thinned) percentiles() []float64 {
	if len(t.list) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(t.list))
	return []float64{round(stats.Quantile(sorted, 0.5)), round(stats.Quantile(sorted, 0.9)),
		round(stats.Quantile(sorted, 0.99))}
}

// NewSeries is one of a run that has not begun.
func NewSeries() *Series { return &Series{width: firstWidth} }

// at is the window of a time. Those between it and the last one have the level of
// then.
func (s *Series) at(now machine.Time) *window {
	for now/s.width >= maxStretches {
		s.widen()
	}
	n := int(max(now, 0) / s.width)
	for len(s.list) <= n {
		w := window{}
		w.From, w.Level = (machine.Time(len(s.list)) * s.width).Seconds(), s.level
		if s.kv[1] > 0 {
			w.KV = []float64{s.kv[0], s.kv[1]}
		}
		s.list = append(s.list, w)
	}
	s.list[n].told = false
	return &s.list[n]
}

// widen makes one window of two.
func (s *Series) widen() {
	for i := 0; i < len(s.list); i += 2 {
		a := s.list[i]
		if i+1 < len(s.list) {
			b := &s.list[i+1]
			a.Sent, a.Prompt, a.Cached, a.Tokens = a.Sent+b.Sent, a.Prompt+b.Prompt, a.Cached+b.Cached,
				a.Tokens+b.Tokens
			for o, n := range b.Outcomes {
				if a.Outcomes == nil {
					a.Outcomes = map[record.Outcome]int{}
				}
				a.Outcomes[o] += n
			}
			a.ttft.take(&b.ttft)
			a.tpot.take(&b.tpot)
			a.e2e.take(&b.e2e)
			a.Level, a.KV = b.Level, b.KV
		}
		a.told = false
		s.list[i/2] = a
	}
	s.list = s.list[:(len(s.list)+1)/2]
	s.width *= 2
}

func (s *Series) sent(now machine.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at(now).Sent++
}

func (s *Series) ended(e *Ended, o record.Outcome, now machine.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.at(now)
	if w.Outcomes == nil {
		w.Outcomes = map[record.Outcome]int{}
	}
	w.Outcomes[o]++
	w.Prompt, w.Cached, w.Tokens = w.Prompt+int(e.Prompt), w.Cached+int(e.Cached), w.Tokens+int(e.Tokens)
	if !e.Completed {
		return
	}
	w.ttft.add(e.TTFT.Seconds())
	w.e2e.add(e.E2E.Seconds())
	if v, ok := e.TPOT(); ok {
		w.tpot.add(v)
	}
}

// Level takes how much is under way.
func (s *Series) Level(now machine.Time, l Level) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at(now).Level = l
	s.level = l
}

// KV takes the share of KV caches in use: on average, and of the fullest pod.
func (s *Series) KV(now machine.Time, mean, most float64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mean, most = round(mean), round(most)
	s.kv = [2]float64{mean, most}
	s.at(now)
	for i := int(max(now, 0) / s.width); i < len(s.list); i++ { // of a run that is over they come later
		s.list[i].KV = []float64{mean, most}
	}
}

// Windows are the stretches until now and how long each is, in seconds.
func (s *Series) Windows() (list []Window, width float64) {
	if s == nil {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		w := &s.list[i]
		if !w.told {
			w.TTFT, w.TPOT, w.E2E, w.told = w.ttft.percentiles(), w.tpot.percentiles(), w.e2e.percentiles(), true
		}
		x := w.Window
		x.Outcomes = map[record.Outcome]int{}
		for o, n := range w.Outcomes {
			x.Outcomes[o] = n
		}
		list = append(list, x)
	}
	return list, s.width.Seconds()
}
