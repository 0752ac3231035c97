package picker

import "github.com/windtunnel/windtunnel/core/machine"

// PredictorService has the addresses of llm-d's latency predictor, as http://host:port.
type PredictorService struct {
	Prediction []string // each prediction call goes to one of them
	Training   string   // "" is no training
	// Together is how long a call may wait for others to be sent with it, in wall time; 0 is no wait. Poll is how often
	// the servers' states and trees are fetched, as the real picker's client does, which uses none of them; 0 is never.
	Together, Poll machine.Time
	// Timeout limits how long a decision waits for its predictions; 0 is 400 ms, as in the real picker.
	Timeout machine.Time
}

// LatencyPredictor is a plug-in that predicts latencies and sees the measured ones.
type LatencyPredictor interface {
	Plugin
	// PredictionOutcome returns the prediction for a decision's endpoint and the latencies measured so far; false if
	// there are none.
	PredictionOutcome(d *Decision) (PredictionOutcome, bool)
	// Forecast returns the prediction for an endpoint (an index of the decision's View), nil without one.
	Forecast(d *Decision, endpoint int32) *Forecast
}

// Forecast is a request's predicted latency at an endpoint, and how far it is below the request's objectives, in
// milliseconds. A nil headroom means no objective.
type Forecast struct {
	TTFTMs         float64  `json:"ttft_ms"`
	TPOTMs         float64  `json:"tpot_ms"`
	TTFTHeadroomMs *float64 `json:"ttft_headroom_ms,omitempty"`
	TPOTHeadroomMs *float64 `json:"tpot_headroom_ms,omitempty"`
}

// LatencyPredictors returns the plug-ins that predict latencies.
func (p *Picker) LatencyPredictors() []LatencyPredictor { return p.predictors }

// PredictionOutcome is a prediction and the measured latency. What was not measured is 0.
type PredictionOutcome struct {
	Predicted            bool
	Prediction, Observed Latency
}
