package epp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/core/epp/metric"
)

// adder is one series: a counter or gauge that is added to, or a histogram that observes.
type adder interface{ Add(float64) }

type (
	observes struct{ prometheus.Observer }
	sets     struct{ prometheus.Gauge }
)

// Add observes a value.
func (o observes) Add(v float64) { o.Observe(v) }

// Add puts a value in the place of the last one.
func (s sets) Add(v float64) { s.Set(v) }

// vector returns a family's metrics under one name, and a series by its labels.
func vector(f *metric.Family, name, help string, labels []string) (prometheus.Collector, func(...string) adder) {
	switch f.Kind {
	case metric.Counter:
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		return v, func(values ...string) adder { return v.WithLabelValues(values...) }
	case metric.Histogram:
		o := prometheus.HistogramOpts{Name: name, Help: help, Buckets: f.Buckets}
		if f.Native {
			o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = metric.NativeFactor, metric.NativeBuckets
		}
		v := prometheus.NewHistogramVec(o, labels)
		return v, func(values ...string) adder { return observes{v.WithLabelValues(values...)} }
	case metric.Summary:
		v := prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: name, Help: help,
			Objectives: metric.Quantiles, MaxAge: 10 * time.Minute}, labels)
		return v, func(values ...string) adder { return observes{v.WithLabelValues(values...)} }
	}
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	if f.Kind == metric.Last {
		return v, func(values ...string) adder { return sets{v.WithLabelValues(values...)} }
	}
	return v, func(values ...string) adder { return v.WithLabelValues(values...) }
}

const older = " Deprecated name."

// exposed are families of metrics on a page, each under its name and, where it has one, under its older name, by
// Family.Number.
type exposed []struct {
	main, old func(values ...string) adder
	older     []int   // of the older one's labels, among the labels
	none      *labels // of a family that has none
}

// expose registers families.
func expose(reg prometheus.Registerer, families ...*metric.Family) exposed {
	all := make(exposed, len(metric.Kept))
	for _, f := range families {
		x := &all[f.Number]
		var main, old prometheus.Collector
		main, x.main = vector(f, f.Name, f.Help, f.Labels)
		reg.MustRegister(main)
		if f.Old != "" {
			old, x.old = vector(f, f.Old, f.Help+older, f.OldLabels)
			reg.MustRegister(old)
			x.older = f.Older()
		}
		if x.none = newLabels(nil); f.Always {
			all.find(f, nil)
		}
	}
	return all
}

// both are a family's series of some labels: one where there is no older name.
type both []adder

func (x exposed) find(f *metric.Family, values []string) both {
	e := &x[f.Number]
	found := append(make(both, 0, 2), e.main(values...))
	if e.old != nil {
		found = append(found, e.old(some(values, e.older)...))
	}
	return found
}

// some are the values at these places.
func some(values []string, at []int) []string {
	out := make([]string, len(at))
	for i, j := range at {
		out[i] = values[j]
	}
	return out
}

// add adds a number, or observes it.
func (x exposed) add(f *metric.Family, v float64, values ...string) {
	if len(values) == 0 {
		x.addTo(f, x[f.Number].none, v)
		return
	}
	for _, m := range x.find(f, values) {
		m.Add(v)
	}
}

// addTo is add for labels that are made once, which keep both series. To find a
// metric by its labels' texts costs more than to count, and a request is counted
// a dozen times.
func (x exposed) addTo(f *metric.Family, l *labels, v float64) {
	found, ok := l.found[f.Number].Load().(both)
	if !ok {
		found = x.find(f, l.list)
		l.found[f.Number].Store(found)
	}
	for _, m := range found {
		m.Add(v)
	}
}

// reading passes the present metrics to a collector, under both names.
type reading struct {
	out   chan<- prometheus.Metric
	descs map[string]*prometheus.Desc
}

func (r reading) send(f *metric.Family, v float64, values ...string) {
	r.one(f, f.Name, f.Help, f.Labels, v, values)
	if f.Old == "" {
		return
	}
	r.one(f, f.Old, f.Help+older, f.OldLabels, v, some(values, f.Older()))
}

func (r reading) one(f *metric.Family, name, help string, labels []string, v float64, values []string) {
	d := r.descs[name]
	if d == nil {
		d = prometheus.NewDesc(name, help, labels, nil)
		r.descs[name] = d
	}
	kind := prometheus.GaugeValue
	if f.Kind == metric.Counter {
		kind = prometheus.CounterValue
	}
	r.out <- prometheus.MustNewConstMetric(d, kind, v, values...)
}

// newServerMetrics registers the server's own metrics; those about streams only on request.
func newServerMetrics(r *prometheus.Registry, aboutStreams bool) exposed {
	of := prometheus.Registerer(r)
	if !aboutStreams {
		of = prometheus.NewRegistry() // nobody reads it
	}
	m := expose(of, metric.Streams, metric.StreamTime, metric.StreamsEnded)
	m[metric.Processing.Number] = expose(r, metric.Processing)[metric.Processing.Number]
	return m
}

// ended counts a stream that is over.
func (x exposed) ended(took time.Duration, err error) {
	x.add(metric.Streams, -1)
	x.add(metric.StreamTime, took.Seconds())
	x.add(metric.StreamsEnded, 1, status.Code(err).String())
}
