package report

import (
	"maps"
	"slices"
	"sync"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/overtime"
	"github.com/windtunnel/windtunnel/report/stats"
)

// Series shows a run over time: the requests sent and ended in each stretch, and those under way at its end. It has at
// most maxStretches stretches, as short as possible. It is safe for concurrent use. A nil Series ignores everything.
type Series struct {
	mu    sync.Mutex
	width machine.Time
	light bool       // counts alone, without percentiles
	slo   record.SLO // of requests without one of their own
	// missed counts the completed requests that missed each of its bounds: ttft, tpot or e2e.
	missed map[string]int
	list   []window
	level  Level // the newest
	kv     [2]float64
}

// maxStretches bounds the stretches, firstWidth is their first length, and maxStretched bounds the latencies that each
// keeps. Of more, one in two is kept, one in four, and so on.
const (
	maxStretches = 120
	firstWidth   = 100 * machine.Millisecond
	maxStretched = 1 << 12
)

// Level counts the requests under way by their progress.
type Level struct {
	InFlight int `json:"inFlight"` // sent and not ended
	Waiting  int `json:"waiting"`  // at a model server, before their prefill begins
	Running  int `json:"running"`  // prefilled or decoded there
}

// Window is one stretch. Times are in seconds. Percentiles are the 50th, 90th and 99th of the requests that completed
// in it, none without any.
type Window struct {
	From     float64                `json:"from"`
	Sent     int                    `json:"sent,omitempty"`
	Outcomes map[record.Outcome]int `json:"outcomes,omitempty"`
	// Good counts the requests that ended within their SLO, or completed where they have none.
	Good   int       `json:"good,omitempty"`
	TTFT   []float64 `json:"ttft,omitempty"`
	TPOT   []float64 `json:"tpot,omitempty"`
	E2E    []float64 `json:"e2e,omitempty"`
	Prompt int       `json:"promptTokens,omitempty"`
	Cached int       `json:"cachedTokens,omitempty"`
	Tokens int       `json:"tokens,omitempty"`
	// Level is at the end of the stretch. KV is the share of the KV caches in use, the mean over the pods and the
	// fullest pod's, where it is known.
	Level
	KV []float64 `json:"kv,omitempty"`
}

type window struct {
	Window
	ttft, tpot, e2e thinned
	fresh           bool // the percentiles are up to date
}

// thinned keeps values, evenly thinned where there are too many.
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

// NewSeries returns the series of a run that has not begun.
func NewSeries() *Series { return &Series{width: firstWidth} }

// at returns the window of a time. New windows before it get the last level.
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
	s.list[n].fresh = false
	return &s.list[n]
}

// widen joins each two windows.
func (s *Series) widen() {
	for i := 0; i < len(s.list); i += 2 {
		a := s.list[i]
		if i+1 < len(s.list) {
			b := &s.list[i+1]
			a.Sent, a.Prompt, a.Cached, a.Tokens = a.Sent+b.Sent, a.Prompt+b.Prompt, a.Cached+b.Cached,
				a.Tokens+b.Tokens
			a.Good += b.Good
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
		a.fresh = false
		s.list[i/2] = a
	}
	s.list = s.list[:(len(s.list)+1)/2]
	s.width *= 2
}

// locked calls f with the lock held, if there is a series.
func (s *Series) locked(f func()) {
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	}
}

func (s *Series) sent(now machine.Time) {
	s.locked(func() { s.at(now).Sent++ })
}

func (s *Series) ended(e *Ended, o record.Outcome, now machine.Time) {
	s.locked(func() {
		w := s.at(now)
		if w.Outcomes == nil {
			w.Outcomes = map[record.Outcome]int{}
		}
		w.Outcomes[o]++
		w.Prompt, w.Cached, w.Tokens = w.Prompt+int(e.Prompt), w.Cached+int(e.Cached), w.Tokens+int(e.Tokens)
		if e.Judged && e.Good || !e.Judged && e.good(s.slo) {
			w.Good++
		}
		if e.Completed && !e.Judged {
			e.addMissed(&s.missed, s.slo)
		}
		if !e.Completed || s.light {
			return
		}
		w.ttft.add(e.TTFT.Seconds())
		w.e2e.add(e.E2E.Seconds())
		if v, ok := e.TPOT(); ok {
			w.tpot.add(v)
		}
	})
}

// Level sets how many requests are under way.
func (s *Series) Level(now machine.Time, l Level) {
	s.locked(func() {
		s.at(now).Level = l
		s.level = l
	})
}

// KV sets the share of the KV caches in use: the mean, and that of the fullest pod.
func (s *Series) KV(now machine.Time, mean, most float64) {
	s.locked(func() {
		mean, most = round(mean), round(most)
		s.kv = [2]float64{mean, most}
		s.at(now)
		for i := int(max(now, 0) / s.width); i < len(s.list); i++ { // after a run, gauges come later than requests
			s.list[i].KV = []float64{mean, most}
		}
	})
}

// misses returns how many requests missed each bound of the run's SLO.
func (s *Series) misses() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.missed)
}

// overTime returns the run over time, with the ready servers of groups.
func (s *Series) overTime(groups []ServersSummary) *overtime.Run {
	windows, width := s.Windows()
	out := &overtime.Run{Width: width}
	for i := range windows {
		w := &windows[i]
		x := overtime.Stretch{From: Digits(w.From), Sent: w.Sent, Good: w.Good, Refused: w.Outcomes[record.Refused]}
		for _, n := range w.Outcomes {
			x.Ended += n
		}
		for j := range groups {
			if len(groups[j].Replicas) > 0 {
				x.Ready += groups[j].readyAt(w.From + width)
			}
		}
		out.Stretches = append(out.Stretches, x)
	}
	return out
}

// Windows returns the stretches so far, and the length of each in seconds.
func (s *Series) Windows() (list []Window, width float64) {
	if s == nil {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		w := &s.list[i]
		if !w.fresh {
			w.TTFT, w.TPOT, w.E2E, w.fresh = w.ttft.percentiles(), w.tpot.percentiles(), w.e2e.percentiles(), true
		}
		x := w.Window
		x.Outcomes = map[record.Outcome]int{}
		maps.Copy(x.Outcomes, w.Outcomes)
		list = append(list, x)
	}
	return list, s.width.Seconds()
}
