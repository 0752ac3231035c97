package epp

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A twin is one metric under two names: the real EPP's of today and the older
// one that dashboards still read. The older one has some of the labels.

type factory struct{ reg prometheus.Registerer }

const older = " Deprecated name."

// pickers of label values for the older name.
func project(labels, old []string) []int {
	var out []int
	for _, o := range old {
		out = append(out, slices.Index(labels, o))
	}
	return out
}

// known are a twin's metrics by labels that are made once. To find a metric by its labels' texts costs
// more than to count, and a request is counted a dozen times.
type known[M any] struct{ by sync.Map }

// pair are both metrics; old is nil where there is none.
type pair[M any] struct{ main, old M }

func (k *known[M]) of(l *labels, find func(values []string) pair[M]) pair[M] {
	if p, ok := k.by.Load(l); ok {
		return p.(pair[M])
	}
	p := find(l.list)
	k.by.Store(l, p)
	return p
}

func take(values []string, idx []int) []string {
	out := make([]string, len(idx))
	for i, j := range idx {
		out[i] = values[j]
	}
	return out
}

type twinCounter struct {
	main, old *prometheus.CounterVec
	idx       []int
	known     *known[prometheus.Counter]
}

func (t *twinCounter) find(values []string) (p pair[prometheus.Counter]) {
	p.main = t.main.WithLabelValues(values...)
	if t.old != nil {
		p.old = t.old.WithLabelValues(take(values, t.idx)...)
	}
	return p
}

func (f factory) counter(name, help, old string, labels, oldLabels []string) twinCounter {
	t := twinCounter{known: &known[prometheus.Counter]{}, main: prometheus.NewCounterVec(prometheus.CounterOpts{Name: epps + name, Help: "[ALPHA] " + help}, labels), idx: project(labels, oldLabels)}
	f.reg.MustRegister(t.main)
	if old != "" {
		t.old = prometheus.NewCounterVec(prometheus.CounterOpts{Name: old, Help: "[ALPHA] " + help + older}, oldLabels)
		f.reg.MustRegister(t.old)
	}
	return t
}

// counterRenamed has the same labels under both names, spelled differently.
func (f factory) counterRenamed(name, help, old string, labels, oldLabels []string) twinCounter {
	t := f.counter(name, help, "", labels, nil)
	t.old = prometheus.NewCounterVec(prometheus.CounterOpts{Name: old, Help: "[ALPHA] " + help + older}, oldLabels)
	f.reg.MustRegister(t.old)
	for i := range labels {
		t.idx = append(t.idx, i)
	}
	return t
}

func (t *twinCounter) inc(values ...string) { t.add(1, values...) }

func (t *twinCounter) add(v float64, values ...string) { t.both(t.find(values), v) }

// addTo is add for labels that are made once.
func (t *twinCounter) addTo(l *labels, v float64) { t.both(t.known.of(l, t.find), v) }

func (t *twinCounter) both(p pair[prometheus.Counter], v float64) {
	p.main.Add(v)
	if p.old != nil {
		p.old.Add(v)
	}
}

type twinGauge struct {
	main, old *prometheus.GaugeVec
	idx       []int
	known     *known[prometheus.Gauge]
}

func (t *twinGauge) find(values []string) (p pair[prometheus.Gauge]) {
	p.main = t.main.WithLabelValues(values...)
	if t.old != nil {
		p.old = t.old.WithLabelValues(take(values, t.idx)...)
	}
	return p
}

func (f factory) gauge(name, help, old string, labels, oldLabels []string) twinGauge {
	t := twinGauge{known: &known[prometheus.Gauge]{}, main: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: epps + name, Help: "[ALPHA] " + help}, labels), idx: project(labels, oldLabels)}
	f.reg.MustRegister(t.main)
	if old != "" {
		t.old = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: old, Help: "[ALPHA] " + help + older}, oldLabels)
		f.reg.MustRegister(t.old)
	}
	return t
}

func (t *twinGauge) add(v float64, values ...string) { t.both(t.find(values), v) }

// addTo is add for labels that are made once.
func (t *twinGauge) addTo(l *labels, v float64) { t.both(t.known.of(l, t.find), v) }

func (t *twinGauge) both(p pair[prometheus.Gauge], v float64) {
	p.main.Add(v)
	if p.old != nil {
		p.old.Add(v)
	}
}

type twinHistogram struct {
	main, old *prometheus.HistogramVec
	idx       []int
	known     *known[prometheus.Observer]
}

func (t *twinHistogram) find(values []string) (p pair[prometheus.Observer]) {
	p.main = t.main.WithLabelValues(values...)
	if t.old != nil {
		p.old = t.old.WithLabelValues(take(values, t.idx)...)
	}
	return p
}

// histogram registers both names; a nil oldLabels means that there is no older
// one.
func (f factory) histogram(name, help, old string, buckets []float64, labels, oldLabels []string) twinHistogram {
	t := twinHistogram{known: &known[prometheus.Observer]{}, main: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: epps + name, Help: "[ALPHA] " + help, Buckets: buckets}, labels), idx: project(labels, oldLabels)}
	f.reg.MustRegister(t.main)
	if old != "" {
		t.old = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: old, Help: "[ALPHA] " + help + older, Buckets: buckets}, oldLabels)
		f.reg.MustRegister(t.old)
	}
	return t
}

func (t *twinHistogram) observe(v float64, values ...string) { t.both(t.find(values), v) }

// observeTo is observe for labels that are made once.
func (t *twinHistogram) observeTo(l *labels, v float64) { t.both(t.known.of(l, t.find), v) }

func (t *twinHistogram) both(p pair[prometheus.Observer], v float64) {
	p.main.Observe(v)
	if p.old != nil {
		p.old.Observe(v)
	}
}
