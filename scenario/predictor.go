package scenario

import (
	"time"

	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
)

// Predictor is llm-d's latency predictor beside the picker, whose
// predicted-latency-producer asks it. Its settings are the real trainer's.
type Predictor struct {
	// Whether it learns from measured latencies during the run. The XGBoost library fits the trees, in Python. Without
	// Python, the picker's plug-ins use their fallback.
	Train bool `json:"train"`
	// A file of trained models (windtunnel sim --save-model). With train, training begins from them. The path is
	// relative to the scenario's own directory.
	Model string `json:"model"`
	// The objective of the trees: mean, or quantile.
	Objective string `json:"objective" oneof:"mean,quantile" default:"mean"`
	// Which quantile.
	Quantile float64 `json:"quantile" min:"0.01" max:"0.99"`
	// The time from one training to the next.
	RetrainingInterval time.Duration `json:"retrainingInterval" min:"10ms" max:"24h"`
	// How many samples training needs.
	MinSamples int `json:"minSamples" min:"1" max:"100000"`
	// How many samples each bucket keeps (by requests waiting, KV cache in use and prompt cached). New samples replace
	// the oldest.
	SamplesPerBucket int `json:"samplesPerBucket" min:"1" max:"10000"`
	// Whether requests that find an empty queue get models of their own, once there are enough of both kinds.
	Ensemble bool `json:"ensemble"`

	models *predictor.Models
}

func (p *Predictor) defaults() {
	o := predictor.DefaultOptions()
	p.Quantile, p.RetrainingInterval, p.MinSamples = o.Alpha, o.Interval.Duration(), o.MinSamples
	p.SamplesPerBucket, p.Ensemble = o.BucketSize, o.Ensemble
}

// Given reports whether the pool has one.
func (p *Predictor) Given() bool { return p.Train || p.Model != "" }

// plan compiles the predictor; nil without one.
func (p *Predictor) plan(seed uint64) *plan.Predictor {
	if !p.Given() {
		return nil
	}
	o := predictor.DefaultOptions()
	o.Objective, o.Alpha, o.Interval, o.MinSamples = p.Objective, p.Quantile,
		machine.FromDuration(p.RetrainingInterval), p.MinSamples
	o.BucketSize, o.Ensemble, o.Seed = p.SamplesPerBucket, p.Ensemble, seed
	return &plan.Predictor{Options: o, Train: p.Train, Models: p.models}
}

// readPredictor reads trained models.
func (s *checker) readPredictor(p *Predictor, field, dir string) {
	s.readFile(field+".model", dir, p.Model, "a file of models that `windtunnel sim --save-model` wrote",
		predictor.MaxFileBytes, func(_ string, text []byte) (err error) {
			p.models, err = predictor.Load(text)
			return err
		})
}
