package promql

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/metrics"
)

// Lookback is for how long a query sees a sample after which none came, Prometheus'
// --query.lookback-delta.
const Lookback = 300 * machine.Second

// Sample is what a scrape, or a rule, says of one series.
type Sample struct {
	// Name is the metric's, of histograms with _bucket, _sum and _count.
	Name   string
	Labels []metrics.Label
	Value  float64
}

// Of are the samples of a page, with further labels.
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
	// Range is the longest range that a query looks at.
	Range machine.Time

	series  []*series // in the order in which they came
	byKey   map[string]*series
	targets map[string][]*series // what the last scrape of each target brought
}

type series struct {
	key    string
	labels labels.Labels // the metric's name among them
	points []point
	seen   machine.Time // of its newest sample
}

// key is a series' identity.
func key(m *Sample) string {
	var b strings.Builder
	b.WriteString(m.Name)
	for _, l := range m.Labels {
		b.WriteByte(0)
		b.WriteString(l.Name)
		b.WriteByte(1)
		b.WriteString(l.Value)
	}
	return b.String()
}

// Scraped takes what a scrape of a target brought at a time; ok is false where it failed. A
// series that the target had and has no more ends there, as all do where the scrape failed.
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
			x.points = append(x.points, point{milliseconds(at), ended})
		}
	}
	if s.targets[target] = now; now == nil {
		delete(s.targets, target)
	}
	s.forget(at)
}

// Record takes what a recording rule came to.
func (s *Store) Record(at machine.Time, rule string, samples []Sample) {
	s.Scraped(at, "rule "+rule, samples, true)
}

func (s *Store) add(at machine.Time, m *Sample) *series {
	k := key(m)
	x := s.byKey[k]
	if x == nil {
		b := labels.NewScratchBuilder(1 + len(m.Labels))
		b.Add(metricName, m.Name)
		for _, l := range m.Labels {
			b.Add(l.Name, l.Value)
		}
		b.Sort()
		x = &series{key: k, labels: b.Labels()}
		if s.byKey == nil {
			s.byKey = map[string]*series{}
		}
		s.byKey[k] = x
		s.series = append(s.series, x)
	}
	x.points, x.seen = append(x.points, point{milliseconds(at), m.Value}), at
	return x
}

// forget drops what no query sees any more.
func (s *Store) forget(now machine.Time) {
	oldest := milliseconds(now - max(Lookback, s.Range) - machine.Second)
	s.series = slices.DeleteFunc(s.series, func(x *series) bool {
		n := 0
		for n < len(x.points) && x.points[n].at < oldest {
			n++
		}
		x.points = x.points[n:]
		if len(x.points) == 0 {
			delete(s.byKey, x.key)
			return true
		}
		return false
	})
}
