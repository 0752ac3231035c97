package epp

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// A twin is one figure under two names: the real EPP's of today and the older
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
}

func (f factory) counter(name, help, old string, labels, oldLabels []string) twinCounter {
	t := twinCounter{main: prometheus.NewCounterVec(prometheus.CounterOpts{Name: epps + name, Help: "[ALPHA] " + help}, labels), idx: project(labels, oldLabels)}
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

func (t *twinCounter) add(v float64, values ...string) {
	t.main.WithLabelValues(values...).Add(v)
	if t.old != nil {
		t.old.WithLabelValues(take(values, t.idx)...).Add(v)
	}
}

type twinGauge struct {
	main, old *prometheus.GaugeVec
	idx       []int
}

func (f factory) gauge(name, help, old string, labels, oldLabels []string) twinGauge {
	t := twinGauge{main: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: epps + name, Help: "[ALPHA] " + help}, labels), idx: project(labels, oldLabels)}
	f.reg.MustRegister(t.main)
	if old != "" {
		t.old = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: old, Help: "[ALPHA] " + help + older}, oldLabels)
		f.reg.MustRegister(t.old)
	}
	return t
}

func (t *twinGauge) add(v float64, values ...string) {
	t.main.WithLabelValues(values...).Add(v)
	if t.old != nil {
		t.old.WithLabelValues(take(values, t.idx)...).Add(v)
	}
}

type twinHistogram struct {
	main, old *prometheus.HistogramVec
	idx       []int
}

// histogram registers both names; a nil oldLabels means that there is no older
// one.
func (f factory) histogram(name, help, old string, buckets []float64, labels, oldLabels []string) twinHistogram {
	t := twinHistogram{main: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: epps + name, Help: "[ALPHA] " + help, Buckets: buckets}, labels), idx: project(labels, oldLabels)}
	f.reg.MustRegister(t.main)
	if old != "" {
		t.old = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: old, Help: "[ALPHA] " + help + older, Buckets: buckets}, oldLabels)
		f.reg.MustRegister(t.old)
	}
	return t
}

func (t *twinHistogram) observe(v float64, values ...string) {
	t.main.WithLabelValues(values...).Observe(v)
	if t.old != nil {
		t.old.WithLabelValues(take(values, t.idx)...).Observe(v)
	}
}
