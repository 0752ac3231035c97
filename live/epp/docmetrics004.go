package epp

import (
	"time"

	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
)

// predictingPlugin is a plug-in that predicts latencies, and how long it took.
type predictingPlugin interface {
	picker.LatencyPredictor
	Predicting(d *picker.Decision) machine.Time
}

// predicted notes what was predicted for the chosen endpoint; model has the model's names.
func (m *PickMetrics) predicted(p *picker.Picker, d *picker.Decision, model []string) {
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
		m.add(metric.PredictedTTFT, f.TTFTMs/1e3, by...)
		m.add(metric.PredictedTPOT, f.TPOTMs/1e3, by...)
		m.set("predicted_ttft", f.TTFTMs/1e3, by)
		m.set("predicted_tpot", f.TPOTMs/1e3, by)
		x, ok := pl.(predictingPlugin)
		if !ok {
			continue
		}
		if took := x.Predicting(d).Seconds(); took > 0 { // one question is about both
			m.add(metric.PredictingTTFT, took, by...)
			m.add(metric.PredictingTPOT, took, by...)
			m.set("ttft_prediction_duration", took, by)
			m.set("tpot_prediction_duration", took, by)
		}
	}
}

// measured observes a request's times; 0 is unknown.
func (m *PickMetrics) measured(p *picker.Picker, r *picker.Request, ttft, tpot time.Duration, l *labels) {
	var by []string // without such a plug-in, the older names alone
	if all := p.LatencyPredictors(); len(all) > 0 {
		by = append([]string{all[0].Name(), all[0].Type()}, l.models.list...)
	}
	families, objectives := [...]*metric.Family{metric.ObjectiveTTFT, metric.ObjectiveTPOT}, [...]float64{r.TTFTMs,
		r.TPOTMs}
	for i, took := range [...]time.Duration{ttft, tpot} {
		if took <= 0 {
			continue
		}
		m.addTo(families[i], l.models, took.Seconds())
		m.addTo(metric.Gathered, l.timed[i], took.Seconds())
		m.setToday(timedOf[i], took.Seconds(), by)
		if objectives[i] <= 0 {
			continue
		}
		missed := took.Seconds()*1e3 > objectives[i]
		violation, v := timedOf[i]+"_slo_violation", map[bool]float64{true: 1}[missed]
		m.add(metric.Gathered, v, append([]string{violation}, l.models.list...)...)
		m.setToday(violation, v, by)
		if missed {
			m.addTo(metric.Violations, l.timed[i], 1)
		}
		if missed && by != nil {
			m.add(metric.ViolationsOf, 1, append([]string{timedOf[i]}, by...)...)
		}
	}
}

// set sets the gauge of one type under both names; by is a plug-in's name and type, and
// the model's names.
func (m *PickMetrics) set(what string, v float64, by []string) {
	m.add(metric.Gathered, v, append([]string{what}, by[2:]...)...)
	m.setToday(what, v, by)
}

func (m *PickMetrics) setToday(what string, v float64, by []string) {
	if by != nil {
		m.add(metric.GatheredOf, v, append([]string{what}, by...)...)
	}
}
