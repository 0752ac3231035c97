package epp

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// twin is one metric under two names: the real EPP's of today and the older
// one that dashboards still read, if there is one. The older one has some of the labels.
type twin[M any] struct {
	main, old vector[M]
	idx       []int // of the older one's labels among the labels
	tell      func(M, float64)
	number    int // which of a registration's twins it is
	none      labels
}

type (
	twinCounter   = twin[prometheus.Counter]
	twinGauge     = twin[prometheus.Gauge]
	twinHistogram = twin[prometheus.Observer]
)

const older = " Deprecated name."

// vector are the metrics of one name.
type vector[M any] interface {
	prometheus.Collector
	WithLabelValues(values ...string) M
}

// both are a twin's metrics of some labels: one where there is no older name.
type both[M any] []M

func (t *twin[M]) find(values []string) both[M] {
	found := append(make(both[M], 0, 2), t.main.WithLabelValues(values...))
	if t.old != nil {
		few := make([]string, len(t.idx))
		for i, j := range t.idx {
			few[i] = values[j]
		}
		found = append(found, t.old.WithLabelValues(few...))
	}
	return found
}

func (t *twin[M]) all(metrics both[M], v float64) {
	for _, m := range metrics {
		t.tell(m, v)
	}
}

func (t *twin[M]) inc(values ...string) { t.add(1, values...) }

// add adds a number, or observes it.
func (t *twin[M]) add(v float64, values ...string) {
	if len(values) == 0 {
		t.addTo(&t.none, v)
		return
	}
	t.all(t.find(values), v)
}

// addTo is add for labels that are made once, which keep both metrics. To find a
// metric by its labels' texts costs more than to count, and a request is counted
// a dozen times.
func (t *twin[M]) addTo(l *labels, v float64) {
	found, ok := l.found[t.number].Load().(both[M])
	if !ok {
		found = t.find(l.list)
		l.found[t.number].Store(found)
	}
	t.all(found, v)
}

// maxTwins is how many twins one registration has at most.
const maxTwins = 48

// factory registers the twins whose labels may come from the same hands.
type factory struct {
	reg   prometheus.Registerer
	twins *int // how many there are
}

// twinOf registers the metric that named makes under both names; an empty old one is none.
func twinOf[M any](f factory, tell func(M, float64), name, help, old string, labels, oldLabels []string,
	named func(name, help string, labels []string) vector[M]) twin[M] {
	t := single(f, named(epps+name, "[ALPHA] "+help, labels), tell)
	f.reg.MustRegister(t.main)
	if old != "" {
		t.old = named(old, "[ALPHA] "+help+older, oldLabels)
		f.reg.MustRegister(t.old)
	}
	for _, o := range oldLabels {
		t.idx = append(t.idx, slices.Index(labels, o))
	}
	return t
}

// single is a metric that is registered already, under one name.
func single[M any](f factory, main vector[M], tell func(M, float64)) twin[M] {
	*f.twins++
	return twin[M]{number: *f.twins - 1, tell: tell, main: main}
}

func (f factory) counter(name, help, old string, labels, oldLabels []string) twinCounter {
	return twinOf(f, prometheus.Counter.Add, name, help, old, labels, oldLabels,
		func(name, help string, labels []string) vector[prometheus.Counter] {
			return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		})
}

// counterRenamed has the same labels under both names, spelled differently.
func (f factory) counterRenamed(name, help, old string, labels, oldLabels []string) twinCounter {
	t := f.counter(name, help, old, labels, oldLabels)
	for i := range labels {
		t.idx[i] = i
	}
	return t
}

func (f factory) gauge(name, help, old string, labels, oldLabels []string) twinGauge {
	return twinOf(f, prometheus.Gauge.Add, name, help, old, labels, oldLabels,
		func(name, help string, labels []string) vector[prometheus.Gauge] {
			return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		})
}

func (f factory) histogram(name, help, old string, buckets []float64, labels, oldLabels []string) twinHistogram {
	return twinOf(f, prometheus.Observer.Observe, name, help, old, labels, oldLabels,
		func(name, help string, labels []string) vector[prometheus.Observer] {
			return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets},
				labels)
		})
}
