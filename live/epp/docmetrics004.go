package epp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// objectiveMetrics are the metrics of document 004 that the real EPP of today
// no longer has under these names; the others are twins in pickmetrics.go.
// Predictions are there when something predicts. inference_request_metric
// gathers the last request's times in one gauge, by type.
type objectiveMetrics struct {
	ttft                          twinHistogram
	predictedTTFT, predictingTTFT *prometheus.HistogramVec
	predictedTPOT, predictingTPOT *prometheus.HistogramVec
	violations                    *prometheus.CounterVec
	last                          twinGauge // set, not added to
}

func newObjectiveMetrics(f factory) *objectiveMetrics {
	const prefix = "inference_objective_"
	labels := []string{"model_name", "target_model_name"}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
		f.reg.MustRegister(h)
		return h
	}
	m := &objectiveMetrics{
		ttft:           single(f, vector[prometheus.Observer](histogram("request_ttft_seconds", "From the request to the first piece of its response.", ttftBuckets)), prometheus.Observer.Observe),
		predictedTTFT:  histogram("request_predicted_ttft_seconds", "Predicted time to first token at the chosen endpoint.", ttftBuckets),
		predictingTTFT: histogram("request_ttft_prediction_duration_seconds", "Time that predicting took.", microBuckets),
		predictedTPOT:  histogram("request_predicted_tpot_seconds", "Predicted time per output token at the chosen endpoint.", tpotBuckets),
		predictingTPOT: histogram("request_tpot_prediction_duration_seconds", "Time that predicting took.", microBuckets),
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "request_slo_violation_total",
			Help: "Requests that missed the objective that they stated, by type: ttft or tpot."}, append([]string{"type"}, labels...)),
		last: single(f, vector[prometheus.Gauge](prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "inference_request_metric",
			Help: "The last request's times in seconds, by type: ttft, tpot, predicted_ttft, predicted_tpot, ttft_prediction_duration, tpot_prediction_duration, ttft_slo_violation, tpot_slo_violation (0 or 1)."}, append([]string{"type"}, labels...))), prometheus.Gauge.Set),
	}
	f.reg.MustRegister(m.violations, m.last.main)
	return m
}

// predictingPlugin is a plug-in that predicts latencies, and how long it took.
type predictingPlugin interface {
	picker.Foreteller
	Predicting(d *picker.Decision) machine.Time
}

// decided notes what was foretold of the chosen endpoint.
func (m *objectiveMetrics) decided(p *picker.Picker, d *picker.Decision, labels []string) {
	r := d.PrimaryProfile()
	if !r.Ok() {
		return
	}
	for _, pl := range p.Foretellers() {
		f := pl.Forecast(d, r.Picked[0])
		if f == nil {
			continue
		}
		m.predictedTTFT.WithLabelValues(labels...).Observe(f.TTFTMs / 1e3)
		m.predictedTPOT.WithLabelValues(labels...).Observe(f.TPOTMs / 1e3)
		m.set("predicted_ttft", f.TTFTMs/1e3, labels)
		m.set("predicted_tpot", f.TPOTMs/1e3, labels)
		x, ok := pl.(predictingPlugin)
		if !ok {
			continue
		}
		if took := x.Predicting(d).Seconds(); took > 0 { // one question is about both
			m.predictingTTFT.WithLabelValues(labels...).Observe(took)
			m.predictingTPOT.WithLabelValues(labels...).Observe(took)
			m.set("ttft_prediction_duration", took, labels)
			m.set("tpot_prediction_duration", took, labels)
		}
	}
}

// measured is told what came of it; 0 is unknown.
func (m *objectiveMetrics) measured(r *picker.Request, ttft, tpot time.Duration, l *labels) {
	if ttft > 0 {
		m.ttft.addTo(l.models, ttft.Seconds())
	}
	objectives := [...]float64{r.TTFTMs, r.TPOTMs}
	for i, took := range [...]time.Duration{ttft, tpot} {
		if took <= 0 {
			continue
		}
		m.last.addTo(l.timed[i], took.Seconds())
		if objectives[i] <= 0 {
			continue
		}
		missed := took.Seconds()*1e3 > objectives[i]
		m.set(timedOf[i]+"_slo_violation", map[bool]float64{true: 1}[missed], l.models.list)
		if missed {
			m.violations.WithLabelValues(l.timed[i].list...).Inc()
		}
	}
}

func (m *objectiveMetrics) set(what string, v float64, labels []string) {
	m.last.add(v, append([]string{what}, labels...)...)
}
