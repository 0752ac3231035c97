package scenario

import (
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
)

// Predictor is llm-d's latency predictor beside the picker, whose
// predicted-latency-producer asks it. Its settings are the real trainer's.
type Predictor struct {
	// Whether it learns from what requests took while they are sent. Trees are fitted by the XGBoost library, in
	// Python; without that the picker's plug-ins fall back.
	Train bool `json:"train"`
	// A file of models that were trained before (windtunnel sim --save-model); with train, what it begins with. Its
	// path counts from the scenario's own directory.
	Model string `json:"model"`
	// What trees are fitted to: mean, or quantile.
	Objective PredictionObjective `json:"objective"`
	// Which quantile.
	Quantile float64 `json:"quantile" min:"0.01" max:"0.99"`
	// How long after one training the next is due.
	RetrainingInterval time.Duration `json:"retrainingInterval" min:"10ms" max:"24h"`
	// How many samples training needs.
	MinSamples int `json:"minSamples" min:"1" max:"100000"`
	// How many samples are kept of each bucket (of requests waiting, KV cache in use and prompt cached); older ones go.
	SamplesPerBucket int `json:"samplesPerBucket" min:"1" max:"10000"`
	// Whether requests that find nobody waiting get models of their own, once there are enough of both kinds.
	Ensemble bool `json:"ensemble"`

	models *predictor.Models
}

// PredictionObjective is what trees are fitted to.
type PredictionObjective string

// The objectives.
const (
	PredictMean     PredictionObjective = predictor.Mean
	PredictQuantile PredictionObjective = predictor.Quantile
)

func (PredictionObjective) Values() []string { return []string{predictor.Mean, predictor.Quantile} }

func (p *Predictor) defaults() {
	o := predictor.DefaultOptions()
	p.Objective, p.Quantile, p.RetrainingInterval, p.MinSamples = PredictMean, o.Alpha, o.Interval.Duration(),
		o.MinSamples
	p.SamplesPerBucket, p.Ensemble = o.BucketSize, o.Ensemble
}

// Given says whether there is one.
func (p *Predictor) Given() bool { return p.Train || p.Model != "" }

// plan is the predictor as drivers take it; nil where there is none.
func (p *Predictor) plan(seed uint64) *plan.Predictor {
	if !p.Given() {
		return nil
	}
	o := predictor.DefaultOptions()
	o.Objective, o.Alpha, o.Interval, o.MinSamples = string(p.Objective), p.Quantile,
		machine.FromDuration(p.RetrainingInterval), p.MinSamples
	o.BucketSize, o.Ensemble, o.Seed = p.SamplesPerBucket, p.Ensemble, seed
	return &plan.Predictor{Options: o, Train: p.Train, Models: p.models}
}

// readPredictor reads models that were trained before.
func (s *Scenario) readPredictor(p *Predictor, field, dir string) Problems {
	if p.Model == "" {
		return nil
	}
	const what = "a file of models that `windtunnel sim --save-model` wrote"
	_, text, out := s.readFile(field+".model", dir, p.Model, what, predictor.MaxFileBytes)
	if out != nil {
		return out
	}
	var err error
	if p.models, err = predictor.Load(text); err != nil {
		return Problems{s.problem(field+".model", fmt.Sprintf("%q: %v", p.Model, err), what)}
	}
	return nil
}
