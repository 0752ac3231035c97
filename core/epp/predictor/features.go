// Package predictor is llm-d's latency predictor. It keeps samples of requests with their measured times, decides when
// trees are fitted to them, and predicts with these trees. The XGBoost library fits them, outside this package (Fit and
// Fitted).
//
// Names, columns and settings are those of llm-d-latency-predictor 0.9.0. docs/predictor.md lists that release's
// obvious defects, which are not copied.
package predictor

import (
	"fmt"
	"math"
	"slices"
)

// Features describe a request at an endpoint: a PredictionRequest on the wire.
type Features struct {
	KV             float64 `json:"kv_cache_percentage"` // 0..1
	InputTokens    int64   `json:"input_token_length"`
	Waiting        int64   `json:"num_request_waiting"`
	Running        int64   `json:"num_request_running"`
	Generated      int64   `json:"num_tokens_generated"`
	Prefix         float64 `json:"prefix_cache_score"` // 0..1
	PodType        string  `json:"pod_type,omitempty"`
	PrefillTokens  int64   `json:"prefill_tokens_in_flight"`
	DecodeTokens   int64   `json:"decode_tokens_in_flight"`
	EncoderMatched int64   `json:"encoder_matched_size"`
	EncoderInput   int64   `json:"encoder_input_size"`
}

// Sample is one observation: a TrainingEntry on the wire. A time of 0 was not measured.
type Sample struct {
	Features
	TTFTMs float64 `json:"actual_ttft_ms"`
	TPOTMs float64 `json:"actual_tpot_ms"`
}

// Prediction is the time to the first token and per further one, in milliseconds.
type Prediction struct{ TTFTMs, TPOTMs float64 }

// maxPodType bounds the name of a pod type.
const maxPodType = 64

// Invalid is the error of features from outside: the field's name on the wire, the expected value, and the found one.
type Invalid struct {
	Field, Expected string
	Found           any
}

func (e *Invalid) Error() string {
	return fmt.Sprintf("%s: found %v; expected %s", e.Field, e.Found, e.Expected)
}

// Check returns what is wrong with features from outside; nil is nothing.
func (f *Features) Check() *Invalid {
	for _, x := range []struct {
		name string
		v    float64
	}{{"kv_cache_percentage", f.KV}, {"prefix_cache_score", f.Prefix}} {
		if !(x.v >= 0 && x.v <= 1) {
			return &Invalid{x.name, "a number from 0 to 1", x.v}
		}
	}
	for _, x := range []struct {
		name string
		v    int64
	}{{"input_token_length", f.InputTokens}, {"num_request_waiting", f.Waiting}, {"num_request_running", f.Running},
		{"num_tokens_generated", f.Generated},
		{"prefill_tokens_in_flight", f.PrefillTokens}, {"decode_tokens_in_flight", f.DecodeTokens},
		{"encoder_matched_size", f.EncoderMatched}, {"encoder_input_size", f.EncoderInput}} {
		if x.v < 0 {
			return &Invalid{x.name, "a whole number from 0 on", x.v}
		}
	}
	if len(f.PodType) > maxPodType {
		return &Invalid{"pod_type", fmt.Sprintf("at most %d characters", maxPodType), len(f.PodType)}
	}
	return nil
}

// Check returns what is wrong with a sample from outside; nil is nothing.
func (s *Sample) Check() *Invalid {
	for _, x := range []struct {
		name string
		v    float64
	}{{"actual_ttft_ms", s.TTFTMs}, {"actual_tpot_ms", s.TPOTMs}} {
		if !(x.v >= 0 && x.v <= math.MaxFloat32) {
			return &Invalid{x.name, "a finite number from 0 on", x.v}
		}
	}
	return s.Features.Check()
}

// Target is the quantity that a model predicts.
type Target uint8

// The targets.
const (
	TTFT Target = iota
	TPOT
)

func (t Target) String() string { return [...]string{"ttft", "tpot"}[t] }

func (s *Sample) observed(t Target) float64 {
	if t == TTFT {
		return s.TTFTMs
	}
	return s.TPOTMs
}

// Column is a column of a model's rows.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // of XGBoost: int, float or c (categories)
}

// Columns returns a target's, in the order in which rows have them. Those of a model
// for requests that need not wait lack two.
func (o *Options) Columns(t Target, unqueued bool) []Column {
	var out []Column
	add := func(name, typ string) { out = append(out, Column{name, typ}) }
	if !unqueued {
		add("is_queued", "int")
	}
	add("kv_cache_percentage", "float")
	add("input_token_length", "int")
	if !unqueued {
		add("num_request_waiting", "int")
	}
	add("num_request_running", "int")
	if o.TokensInFlight {
		add("prefill_tokens_in_flight", "int")
		add("decode_tokens_in_flight", "int")
	}
	if t == TPOT {
		add("num_tokens_generated", "int")
		add("pod_type_cat", "c")
		return out
	}
	if o.Encoder {
		add("encoder_matched_size", "int")
		add("encoder_input_size", "int")
	}
	add("prefix_cache_score", "float")
	add("effective_input_tokens", "float")
	add("prefill_score_bucket", "c")
	add("pod_type_cat", "c")
	return out
}

// row appends the columns of a request at an endpoint.
func (o *Options) row(out []float32, f *Features, t Target, unqueued bool, types []string) []float32 {
	if !unqueued {
		queued := float32(0)
		if f.Waiting > 0 {
			queued = 1
		}
		out = append(out, queued)
	}
	out = append(out, float32(f.KV), float32(f.InputTokens))
	if !unqueued {
		out = append(out, float32(f.Waiting))
	}
	out = append(out, float32(f.Running))
	if o.TokensInFlight {
		out = append(out, float32(f.PrefillTokens), float32(f.DecodeTokens))
	}
	pod := float32(math.NaN())
	if i := slices.Index(types, f.PodType); i >= 0 {
		pod = float32(i)
	}
	if t == TPOT {
		return append(out, float32(f.Generated), pod)
	}
	if o.Encoder {
		out = append(out, float32(f.EncoderMatched), float32(f.EncoderInput))
	}
	return append(out, float32(f.Prefix), float32(float64(1-f.Prefix)*float64(f.InputTokens)),
		float32(prefixBucket(f.Prefix)), pod)
}

func prefixBucket(score float64) int { return max(0, min(int(score*prefixBuckets), prefixBuckets-1)) }
