package picker

import "github.com/windtunnel/windtunnel/core/machine"

// PredictorService says where llm-d's latency predictor is asked and told, as
// http://host:port.
type PredictorService struct {
	Prediction []string // each question goes to one of them
	Training   string   // "" is told nothing
	// Together is how long a question may wait for others that are asked with it, in
	// wall time; 0 is not at all. Poll is how often the servers' states and trees are
	// fetched, as the real picker's client does, which looks at none of them; 0 is never.
	Together, Poll machine.Time
}

// LatencyPredictor is a plug-in that predicts latencies, and sees what comes of it.
type LatencyPredictor interface {
	Plugin
	// PredictionOutcome is what was predicted of a decision's endpoint, and what came of it
	// until now; false where that is nothing.
	PredictionOutcome(d *Decision) (PredictionOutcome, bool)
	// Forecast is what was predicted of an endpoint (an index of the decision's View),
	// nil where nothing was.
	Forecast(d *Decision, endpoint int32) *Forecast
}

// Forecast is what was predicted of a request at an endpoint, and how far that is
// below the request's objectives, in milliseconds. Nil is no objective.
type Forecast struct {
	TTFTMs         float64  `json:"ttft_ms"`
	TPOTMs         float64  `json:"tpot_ms"`
	TTFTHeadroomMs *float64 `json:"ttft_headroom_ms,omitempty"`
	TPOTHeadroomMs *float64 `json:"tpot_headroom_ms,omitempty"`
}

// LatencyPredictors returns the plug-ins that predict latencies.
func (p *Picker) LatencyPredictors() []LatencyPredictor { return p.predictors }

// PredictionOutcome is a prediction beside the truth. What was not observed is 0.
type PredictionOutcome struct {
	Predicted            bool
	Prediction, Observed Latency
}
