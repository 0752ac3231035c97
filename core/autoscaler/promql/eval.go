package promql

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/metrics"
)

// Result is what a query comes to: a vector of series.
type Result []Sample

// engine evaluates queries over samples in memory. Its time limit is never reached: maxSamples is.
var engine = promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: time.Hour,
	LookbackDelta: Lookback.Duration()})

// maxSamples bounds what one query looks at.
const maxSamples = 10_000_000

// milliseconds is a time as Prometheus counts it.
func milliseconds(t machine.Time) int64 { return int64(t / machine.Millisecond) }

// Eval evaluates a query as of now. What is wrong with it then, such as two series where one is expected, is an error.
func (s *Store) Eval(q *Query, now machine.Time) (Result, error) {
	query, err := engine.NewInstantQuery(context.Background(), s, nil, q.evaluated, time.UnixMilli(milliseconds(now)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.text, err)
	}
	defer query.Close()
	r := query.Exec(context.Background())
	if r.Err != nil {
		return nil, fmt.Errorf("%s: %w", q.text, r.Err)
	}
	var out Result
	switch v := r.Value.(type) {
	case promql.Scalar:
		out = Result{{Value: v.V}}
	case promql.Vector:
		for _, x := range v {
			m := Sample{Value: x.F}
			x.Metric.Range(func(l labels.Label) {
				if l.Name == metricName {
					m.Name = l.Value
					return
				}
				m.Labels = append(m.Labels, metrics.Label{Name: l.Name, Value: l.Value})
			})
			out = append(out, m)
		}
	}
	return out, nil
}

// Querier implements storage.Queryable: from and to are in milliseconds, both included.
func (s *Store) Querier(from, to int64) (storage.Querier, error) { return querier{s, from, to}, nil }

type querier struct {
	s        *Store
	from, to int64
}

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, hints *storage.SelectHints,
	by ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{}
	for _, x := range q.s.series {
		if slices.ContainsFunc(by, func(m *labels.Matcher) bool { return !m.Matches(x.labels.Get(m.Name)) }) {
			continue
		}
		from, _ := slices.BinarySearchFunc(x.points, q.from, atOrAfter)
		to, _ := slices.BinarySearchFunc(x.points, q.to+1, atOrAfter)
		if hints != nil && hints.Range == 0 { // the newest counts
			from = max(from, to-1)
		}
		list := make([]chunks.Sample, 0, max(0, to-from))
		for _, p := range x.points[from:max(from, to)] {
			list = append(list, p)
		}
		set.list = append(set.list, storage.NewListSeries(x.labels, list))
	}
	return set
}

// LabelValues implements storage.Querier. Instant queries do not ask.
func (querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string,
	annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier. Instant queries do not ask.
func (querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string,
	annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (querier) Close() error { return nil }

type seriesSet struct {
	list []storage.Series
	next int
}

func (s *seriesSet) Next() bool                      { s.next++; return s.next <= len(s.list) }
func (s *seriesSet) At() storage.Series              { return s.list[s.next-1] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// point is a sample of a series: chunks.Sample. Where the series ended it is Prometheus' mark of that.
type point struct {
	at    int64 // milliseconds
	value float64
}

func atOrAfter(p point, at int64) int { return cmp.Compare(p.at, at) }

var ended = math.Float64frombits(value.StaleNaN)

func (p point) T() int64                    { return p.at }
func (p point) ST() int64                   { return 0 }
func (p point) F() float64                  { return p.value }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }
