package promql

import (
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Lookback is how long a query sees the last sample of a series, Prometheus' --query.lookback-delta.
const Lookback = 300 * machine.Second

// Sample is one value of a series, from a scrape or a rule.
type Sample struct {
	// Name is the metric's, of histograms with _bucket, _sum and _count.
	Name   string
	Labels []metrics.Label
	Value  float64
}

// Of returns the samples of a page, with further labels.
func Of(p metrics.Page, more ...metrics.Label) (out []Sample) {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for _, s := range p[name].Samples {
			out = append(out, Sample{name, append(slices.Clone(s.Labels), more...), s.Value})
		}
	}
	return out
}

// Store keeps series. The zero value keeps none for longer than Lookback.
type Store struct {
	// Range is the longest range of all queries.
	Range machine.Time

	series  []*series // in the order of their first samples
	byKey   map[string]*series
	targets map[string][]*series // the series of the last scrape of each target
}

type series struct {
	name   string
	labels []metrics.Label // by name
	points []point
	seen   machine.Time // of its newest sample
}

type point struct {
	at    machine.Time
	value float64
	stale bool // the series ended
}

// key returns a series' identity.
func key(name string, labels []metrics.Label) string {
	var b strings.Builder
	b.WriteString(name)
	for _, l := range labels {
		b.WriteByte(0)
		b.WriteString(l.Name)
		b.WriteByte(1)
		b.WriteString(l.Value)
	}
	return b.String()
}

// Scraped takes the result of scraping a target at a time; ok is false after a failure. A series that the target no
// longer has ends, and all its series end after a failure.
func (s *Store) Scraped(at machine.Time, target string, samples []Sample, ok bool) {
	if s.targets == nil {
		s.targets = map[string][]*series{}
	}
	was := s.targets[target]
	var now []*series
	if ok {
		for i := range samples {
			now = append(now, s.add(at, &samples[i]))
		}
	}
	for _, x := range was {
		if x.seen < at {
			x.points = append(x.points, point{at: at, stale: true})
		}
	}
	if s.targets[target] = now; now == nil {
		delete(s.targets, target)
	}
	s.forget(at)
}

// Record takes the result of a recording rule.
func (s *Store) Record(at machine.Time, rule string, samples []Sample) {
	s.Scraped(at, "rule "+rule, samples, true)
}

func (s *Store) add(at machine.Time, m *Sample) *series {
	labels := slices.SortedFunc(slices.Values(m.Labels),
		func(a, b metrics.Label) int { return strings.Compare(a.Name, b.Name) })
	k := key(m.Name, labels)
	x := s.byKey[k]
	if x == nil {
		x = &series{name: m.Name, labels: labels}
		if s.byKey == nil {
			s.byKey = map[string]*series{}
		}
		s.byKey[k] = x
		s.series = append(s.series, x)
	}
	x.points, x.seen = append(x.points, point{at: at, value: m.Value}), at
	return x
}

// forget drops samples that no query sees any more.
func (s *Store) forget(now machine.Time) {
	oldest := now - max(Lookback, s.Range) - machine.Second
	s.series = slices.DeleteFunc(s.series, func(x *series) bool {
		n := 0
		for n < len(x.points) && x.points[n].at < oldest {
			n++
		}
		x.points = x.points[n:]
		if len(x.points) == 0 {
			delete(s.byKey, key(x.name, x.labels))
			return true
		}
		return false
	})
}

// at returns the value of a series that an instant query sees.
func (x *series) at(now machine.Time) (float64, bool) {
	for i := len(x.points) - 1; i >= 0; i-- {
		if p := &x.points[i]; p.at <= now {
			return p.value, !p.stale && p.at > now-Lookback
		}
	}
	return 0, false
}

// within returns the samples of a series in the range that ends now.
func (x *series) within(now, span machine.Time) (out []point) {
	for _, p := range x.points {
		if p.at > now-span && p.at <= now && !p.stale {
			out = append(out, p)
		}
	}
	return out
}
