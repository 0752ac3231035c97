package epp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// objectiveMetrics are document 004's, under its names and under those that
// predicted-latency-producer of today's EPP has (llm_d_epp_*, with the plug-in's name
// and type). Times and objectives are told for each request; what was predicted, and
// everything under the newer names, where such a plug-in is. inference_request_metric
// gathers the last request's times in one gauge, by type.
type objectiveMetrics struct {
	ttft, tpot                    *prometheus.HistogramVec
	predictedTTFT, predictingTTFT twinHistogram
	predictedTPOT, predictingTPOT twinHistogram
	violations                    twinCounter
	last                          twinGauge
}

func newObjectiveMetrics(reg prometheus.Registerer) *objectiveMetrics {
	const prefix = "inference_objective_"
	f := factory{reg}
	old := []string{"model_name", "target_model_name"}
	labels := append([]string{"plugin_name", "plugin_type"}, old...)
	of := func(labels []string) []string { return append([]string{"type"}, labels...) }
	histogram := func(name, help string, buckets []float64) twinHistogram {
		return f.histogram(name, help, prefix+name, buckets, labels, old)
	}
	single := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, old)
		reg.MustRegister(h)
		return h
	}
	m := &objectiveMetrics{
		ttft:           single("request_ttft_seconds", "From the request to the first piece of its response.", secondsToHour),
		tpot:           single("request_tpot_seconds", "Time per output token after the first, of streams.", tpotToMinutes),
		predictedTTFT:  histogram("request_predicted_ttft_seconds", "Predicted time to first token at the chosen endpoint.", secondsToHour),
		predictingTTFT: histogram("request_ttft_prediction_duration_seconds", "Time that predicting took.", predictingBuckets),
		predictedTPOT:  histogram("request_predicted_tpot_seconds", "Predicted time per output token at the chosen endpoint.", tpotToMinutes),
		predictingTPOT: histogram("request_tpot_prediction_duration_seconds", "Time that predicting took.", predictingBuckets),
		violations: f.counter("request_slo_violation_total", "Requests that missed the objective that they stated, by type: ttft or tpot.",
			prefix+"request_slo_violation_total", of(labels), of(old)),
		last: f.gauge("inference_request_metric", "The last request's times in seconds, by type: ttft, tpot, predicted_ttft, predicted_tpot, ttft_prediction_duration, "+
			"tpot_prediction_duration, ttft_slo_violation, tpot_slo_violation (0 or 1).", prefix+"inference_request_metric", of(labels), of(old)),
	}
	m.last.tell = prometheus.Gauge.Set
	return m
}

// The real producer's buckets, where they are others than of the picker's times.
var (
	tpotToMinutes = []float64{0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2, 3, 4.5, 6,
		12, 18, 24, 30, 36, 48, 60, 90, 120, 180, 270, 360}
	predictingBuckets = []float64{0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5}
)

// predictingPlugin is a plug-in that predicts latencies, and how long it took.
type predictingPlugin interface {
	picker.Foreteller
	Predicting(d *picker.Decision) machine.Time
}

// decided notes what was foretold of the chosen endpoint; model has the model's names.
func (m *objectiveMetrics) decided(p *picker.Picker, d *picker.Decision, model []string) {
	r := d.PrimaryProfile()
	if !r.Ok() {
		return
	}
	for _, pl := range p.Foretellers() {
		f := pl.Forecast(d, r.Picked[0])
		if f == nil {
			continue
		}
		by := []string{pl.Name(), pl.Type(), model[0], model[1]}
		m.predictedTTFT.add(f.TTFTMs/1e3, by...)
		m.predictedTPOT.add(f.TPOTMs/1e3, by...)
		m.set("predicted_ttft", f.TTFTMs/1e3, by)
		m.set("predicted_tpot", f.TPOTMs/1e3, by)
		x, ok := pl.(predictingPlugin)
		if !ok {
			continue
		}
		if took := x.Predicting(d).Seconds(); took > 0 { // one question is about both
			m.predictingTTFT.add(took, by...)
			m.predictingTPOT.add(took, by...)
			m.set("ttft_prediction_duration", took, by)
			m.set("tpot_prediction_duration", took, by)
		}
	}
}

// measured is told what came of it; 0 is unknown.
func (m *objectiveMetrics) measured(p *picker.Picker, r *picker.Request, ttft, tpot time.Duration, model []string) {
	by := []string{"", "", model[0], model[1]} // without the plug-in, the older names alone
	if all := p.Foretellers(); len(all) > 0 {
		by[0], by[1] = all[0].Name(), all[0].Type()
	}
	for _, x := range []struct {
		what        string
		to          *prometheus.HistogramVec
		took        time.Duration
		objectiveMs float64
	}{{"ttft", m.ttft, ttft, r.TTFTMs}, {"tpot", m.tpot, tpot, r.TPOTMs}} {
		if x.took <= 0 {
			continue
		}
		x.to.WithLabelValues(model...).Observe(x.took.Seconds())
		m.set(x.what, x.took.Seconds(), by)
		if x.objectiveMs <= 0 {
			continue
		}
		missed := x.took.Seconds()*1e3 > x.objectiveMs
		m.set(x.what+"_slo_violation", map[bool]float64{true: 1}[missed], by)
		if missed {
			m.violations.all(ofType(&m.violations, by, x.what), 1)
		}
	}
}

func (m *objectiveMetrics) set(what string, v float64, by []string) {
	m.last.all(ofType(&m.last, by, what), v)
}

// ofType are a twin's metrics of one type; without a plug-in, the older one alone.
func ofType[M any](t *twin[M], by []string, what string) both[M] {
	if by[0] == "" {
		return both[M]{t.old.WithLabelValues(what, by[2], by[3])}
	}
	return t.find(append([]string{what}, by...))
}
