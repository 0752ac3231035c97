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
	ttft, tpot                    twinHistogram
	predictedTTFT, predictingTTFT twinHistogram
	predictedTPOT, predictingTPOT twinHistogram
	violations, violationsToday   *prometheus.CounterVec
	last                          twinGauge // set, not added to
	lastToday                     *prometheus.GaugeVec
}

func newObjectiveMetrics(f factory) *objectiveMetrics {
	const prefix = "inference_objective_"
	const violated, gathered = "request_slo_violation_total", "inference_request_metric"
	const violatedHelp = "Requests that missed the objective that they stated, by type: ttft or tpot."
	const gatheredHelp = "The last request's times in seconds, by type: ttft, tpot, predicted_ttft, predicted_tpot, " +
		"ttft_prediction_duration, tpot_prediction_duration, ttft_slo_violation, tpot_slo_violation (0 or 1)."
	old := []string{"model_name", "target_model_name"}
	today := append([]string{"plugin_name", "plugin_type"}, old...)
	byType := func(labels []string) []string { return append([]string{"type"}, labels...) }
	observed := func(name, help string, buckets []float64) twinHistogram {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets},
			old)
		f.reg.MustRegister(h)
		return single(f, vector[prometheus.Observer](h), prometheus.Observer.Observe)
	}
	predicted := func(name, help string, buckets []float64) twinHistogram {
		return f.histogram(name, help, prefix+name, buckets, today, old)
	}
	m := &objectiveMetrics{
		ttft: observed("request_ttft_seconds", "From the request to the first piece of its response.",
			secondsToHour),
		tpot: observed("request_tpot_seconds", "Time per output token after the first, of streams.",
			tpotToMinutes),
		predictedTTFT: predicted("request_predicted_ttft_seconds",
			"Predicted time to first token at the chosen endpoint.", secondsToHour),
		predictingTTFT: predicted("request_ttft_prediction_duration_seconds", "Time that predicting took.",
			predictingBuckets),
		predictedTPOT: predicted("request_predicted_tpot_seconds",
			"Predicted time per output token at the chosen endpoint.", tpotToMinutes),
		predictingTPOT: predicted("request_tpot_prediction_duration_seconds", "Time that predicting took.",
			predictingBuckets),
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + violated, Help: violatedHelp},
			byType(old)),
		violationsToday: prometheus.NewCounterVec(prometheus.CounterOpts{Name: epps + violated, Help: violatedHelp},
			byType(today)),
		last: single(f,
			vector[prometheus.Gauge](
				prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + gathered, Help: gatheredHelp}, byType(old))),
			prometheus.Gauge.Set),
		lastToday: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: epps + gathered, Help: gatheredHelp},
			byType(today)),
	}
	f.reg.MustRegister(m.violations, m.violationsToday, m.last.main, m.lastToday)
	return m
}

// The real producer's buckets, where they are others than of the picker's times.
var (
	tpotToMinutes = []float64{0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4,
		0.5, 0.6, 0.8, 1, 1.5, 2, 3, 4.5, 6,
		12, 18, 24, 30, 36, 48, 60, 90, 120, 180, 270, 360}
	predictingBuckets = []float64{0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5}
)

// predictingPlugin is a plug-in that predicts latencies, and how long it took.
type predictingPlugin interface {
	picker.LatencyPredictor
	Predicting(d *picker.Decision) machine.Time
}

// decided notes what was foretold of the chosen endpoint; model has the model's names.
func (m *objectiveMetrics) decided(p *picker.Picker, d *picker.Decision, model []string) {
	r := d.PrimaryProfile()
	if !r.Ok() {
		return
	}
	for _, pl := range p.LatencyPredictors() {
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
func (m *objectiveMetrics) measured(p *picker.Picker, r *picker.Request, ttft, tpot time.Duration, l *labels) {
	var by []string // without such a plug-in, the older names alone
	if all := p.LatencyPredictors(); len(all) > 0 {
		by = append([]string{all[0].Name(), all[0].Type()}, l.models.list...)
	}
	histograms, objectives := [...]*twinHistogram{&m.ttft, &m.tpot}, [...]float64{r.TTFTMs, r.TPOTMs}
	for i, took := range [...]time.Duration{ttft, tpot} {
		if took <= 0 {
			continue
		}
		histograms[i].addTo(l.models, took.Seconds())
		m.last.addTo(l.timed[i], took.Seconds())
		m.setToday(timedOf[i], took.Seconds(), by)
		if objectives[i] <= 0 {
			continue
		}
		missed := took.Seconds()*1e3 > objectives[i]
		violation, v := timedOf[i]+"_slo_violation", map[bool]float64{true: 1}[missed]
		m.last.add(v, append([]string{violation}, l.models.list...)...)
		m.setToday(violation, v, by)
		if missed {
			m.violations.WithLabelValues(l.timed[i].list...).Inc()
		}
		if missed && by != nil {
			m.violationsToday.WithLabelValues(append([]string{timedOf[i]}, by...)...).Inc()
		}
	}
}

// set sets the gauge of one type under both names; by is a plug-in's name and type, and
// the model's names.
func (m *objectiveMetrics) set(what string, v float64, by []string) {
	m.last.add(v, append([]string{what}, by[2:]...)...)
	m.setToday(what, v, by)
}

func (m *objectiveMetrics) setToday(what string, v float64, by []string) {
	if by != nil {
		m.lastToday.WithLabelValues(append([]string{what}, by...)...).Set(v)
	}
}
