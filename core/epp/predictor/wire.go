package predictor

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Paths of the servers: one predicts, and the other receives samples.
const (
	PathPredict = "/predict/bulk/strict"
	PathSamples = "/add_training_data_bulk"
	PathStatus  = "/status"              // of who predicts
	PathInfo    = "/model/download/info" // of who trains
)

// PathTrees returns the training server's path to a target's trees.
func PathTrees(t Target) string { return "/model/" + t.String() + "/xgb/json" }

// MaxBulk is the largest number of rows in one call for predictions.
const MaxBulk = 10_000

// MaxEntries is the largest number of samples in one message.
const MaxEntries = 100_000

// Bulk is the body of a call for predictions, and Entries the body of a message of samples.
type (
	Bulk struct {
		Requests []Features `json:"requests"`
	}
	Entries struct {
		Entries []Sample `json:"entries"`
	}
)

// ReadPredictions reads the answer to a call with so many rows, and checks that each row has two finite numbers from 0
// on.
func ReadPredictions(text []byte, rows int) ([]Prediction, error) {
	if list, ok := quickPredictions(text, rows); ok {
		return list, nil
	}
	return readPredictions(text, rows)
}

func readPredictions(text []byte, rows int) ([]Prediction, error) {
	var x struct {
		Predictions []struct {
			TTFT *float64 `json:"ttft_ms"`
			TPOT *float64 `json:"tpot_ms"`
		} `json:"predictions"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return nil, fmt.Errorf("the latency predictor's answer: %w", err)
	}
	if len(x.Predictions) != rows {
		return nil, fmt.Errorf("the latency predictor answered %d predictions; expected %d", len(x.Predictions), rows)
	}
	out := make([]Prediction, rows)
	for i, p := range x.Predictions {
		if p.TTFT == nil || p.TPOT == nil {
			return nil, fmt.Errorf("the latency predictor's answer: predictions[%d] lacks ttft_ms or tpot_ms", i)
		}
		out[i] = Prediction{*p.TTFT, *p.TPOT}
		if err := out[i].Check(); err != nil {
			return nil, fmt.Errorf("the latency predictor's answer: predictions[%d]: %w", i, err)
		}
	}
	return out, nil
}

// Check returns what is wrong with a prediction from outside; nil is nothing.
func (p Prediction) Check() error {
	if !(p.TTFTMs >= 0 && p.TPOTMs >= 0) || math.IsInf(p.TTFTMs, 0) || math.IsInf(p.TPOTMs, 0) {
		return errors.New("expected finite numbers of milliseconds from 0 on")
	}
	return nil
}
