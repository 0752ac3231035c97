package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
)

// Fitter fits trees, in no virtual time. Its result includes errors.
type Fitter func(predictor.Fit) predictor.Fitted

// predicting is the pool's latency predictor. It trains at the same times as in wall time.
type predicting struct {
	slot[predictor.Message, *predictor.Effects]

	m    *predictor.Machine
	eval predictor.Predictor
	fit  Fitter
	rows []predictor.Prediction
}

// newPredicting returns nil without a predictor, or without a Fitter for one that learns.
func newPredicting(w *world, p *plan.Predictor) *predicting {
	if p == nil || p.Train && w.fit == nil {
		return nil
	}
	x := &predicting{m: p.NewMachine(), fit: w.fit}
	x.class, x.while = machine.ClassTimer, w.busy
	x.open(w, x.m, new(predictor.Effects), func(i int) {
		x.input(x.fit(x.fx.List[i]))
		if st := x.m.Status(); w.rec != nil {
			w.rec.Record(st.Event(w.now))
		}
	})
	return x
}

// The addresses of the predictor in the picker's record.
const predictorAddress, trainerAddress = "latency-predictor:8001", "latency-predictor:8000"

// service returns the predictor's addresses for the picker.
func (x *predicting) service(p *plan.Predictor) *picker.PredictorService {
	if x == nil {
		return nil
	}
	return p.Service(predictorAddress, trainerAddress)
}

// answer answers a picker's call with predictions.
func (x *predicting) answer(n *picker.Need, a *picker.Answer) {
	rows, _ := n.Subject.([]predictor.Features)
	x.rows = x.eval.Predict(x.m.Models(), rows, x.rows[:0])
	a.Latencies = make([]picker.Latency, len(x.rows))
	for i, p := range x.rows {
		a.Latencies[i] = picker.Latency(p)
	}
}

// send takes samples from the picker.
func (x *predicting) send(n *picker.Need) {
	if list, ok := n.Subject.([]predictor.Sample); ok {
		x.input(predictor.Samples{List: list})
	}
}
