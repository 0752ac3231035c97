package contract

import (
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"pgregory.net/rapid"
)

// tree returns a model with one leaf and so many columns.
func tree(columns int) []byte {
	return fmt.Appendf(nil, `{"learner":{"gradient_booster":{"name":"gbtree","model":{"trees":[{"left_children":[-1],`+
		`"right_children":[-1],"split_indices":[0],`+
		`"split_conditions":[3],"default_left":[0],"split_type":[0]}]}},"learner_model_param":{"base_score":"[5E-1]",`+
		`"num_feature":"%d"},"objective":{"name":"reg:squarederror"}}}`, columns)
}

func predictors(t *rapid.T) Kind[predictor.Message, *predictor.Effects] {
	o := predictor.DefaultOptions()
	o.Interval = rapid.SampledFrom([]machine.Time{machine.Second, 30 * machine.Second}).Draw(t, "interval")
	o.MinSamples, o.MinSplit = rapid.IntRange(1, 5).Draw(t, "least"), rapid.IntRange(1, 3).Draw(t, "split")
	o.BucketSize, o.TestRatio = rapid.IntRange(1, 3).Draw(t, "bucket"),
		rapid.SampledFrom([]float64{0, .3}).Draw(t, "test")

	return Kind[predictor.Message, *predictor.Effects]{
		Make: func() Instance[predictor.Message, *predictor.Effects] {
			m := predictor.New(o, nil)
			return Instance[predictor.Message, *predictor.Effects]{Machine: m, Effects: new(predictor.Effects),
				Say: Plainly[predictor.Fit], State: func() string {
					s := m.Status()
					return fmt.Sprintf("%v %v %v %v %v %d %v %q %v", s.Train, s.Test, s.Queued, s.Buckets, s.Scores,
						s.Trainings, s.Training, s.Failed, s.TrainedAt)
				}}
		},
		Message: func(t *rapid.T, _ machine.Time) predictor.Message {
			switch rapid.IntRange(0, 5).Draw(t, "message") {
			case 0:
				return predictor.Flush{Train: rapid.Bool().Draw(t, "train"), Test: rapid.Bool().Draw(t, "test"),
					Scores: rapid.Bool().Draw(t, "scores")}
			case 1, 2:
				x := predictor.Fitted{Number: rapid.IntRange(1, 4).Draw(t, "number"), Library: "a library",
					Models: map[predictor.Name][]byte{
						predictor.ModelTTFT: tree(len(o.Columns(predictor.TTFT, false))),
						predictor.ModelTPOT: tree(len(o.Columns(predictor.TPOT, false)))}}
				switch rapid.IntRange(0, 3).Draw(t, "what came") {
				case 0:
					x.Err = errors.New("no trees")
				case 1:
					x.Models[predictor.ModelTTFT] = []byte("no model")
				}
				return x
			}
			var list []predictor.Sample
			for range rapid.IntRange(1, 4).Draw(t, "samples") {
				list = append(list, predictor.Sample{
					Features: predictor.Features{KV: rapid.Float64Range(0, 1).Draw(t, "kv"),
						Waiting:     rapid.Int64Range(0, 12).Draw(t, "waiting"),
						InputTokens: rapid.Int64Range(0, 100).Draw(t, "tokens"),
						PodType:     rapid.SampledFrom([]string{"", "decode", "other"}).Draw(t, "pod type")},
					TTFTMs: rapid.SampledFrom([]float64{0, 20}).Draw(t, "ttft"),
					TPOTMs: rapid.SampledFrom([]float64{0, 5}).Draw(t, "tpot")})
			}
			return predictor.Samples{List: list}
		},
		Spans: []machine.Time{machine.Second, 10 * machine.Second, 30 * machine.Second},
		Rest:  60 * machine.Second,
	}
}
