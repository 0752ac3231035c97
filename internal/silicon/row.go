// Package silicon holds benchmark results of real GPUs: it reads the files in which benchmark tools write them, and
// compares predicted with measured times. Begin to read at Row, Read and Compare.
package silicon

import (
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/measured"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// Time is a measured time in milliseconds, as mean and as median over requests; 0 is not given.
type Time struct {
	Mean   float64 `json:"mean,omitempty"`
	Median float64 `json:"median,omitempty"`
}

// Value returns the mean, or the median where there is no mean.
func (t Time) Value() float64 {
	if t.Mean > 0 {
		return t.Mean
	}
	return t.Median
}

// Row is one measured configuration of one vLLM server.
type Row struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// Model and Accelerator are names of the catalogues. Precision of the weights is one of Precisions.
	Model       string `json:"model"`
	Accelerator string `json:"accelerator"`
	Precision   string `json:"precision"`
	// The parallel sizes have vLLM's meaning: the server has TensorParallel times DataParallel GPUs, and attention is
	// split over TensorParallel of them. ExpertParallel is the number of GPUs that whole experts are spread over; 1
	// splits the experts' matrices over all.
	TensorParallel int `json:"tensorParallel"`
	DataParallel   int `json:"dataParallel"`
	ExpertParallel int `json:"expertParallel"`
	// InputTokens and OutputTokens are the longest that a request has. Each request's lengths are uniform between Low
	// times these and these; Low is 1 for fixed lengths.
	InputTokens  int     `json:"inputTokens"`
	OutputTokens int     `json:"outputTokens"`
	Low          float64 `json:"low"`
	// One of Concurrency (requests in flight, closed loop) and RequestRate (requests/s, open loop) is above 0.
	Concurrency int     `json:"concurrency,omitempty"`
	RequestRate float64 `json:"requestRate,omitempty"`
	Requests    int     `json:"requests"` // 0: ten for each in flight
	Version     string  `json:"version,omitempty"`
	// Bench reports that vllm bench serve, or a client like it, sent the load from one Python process.
	Bench bool `json:"bench,omitempty"`
	// KVCacheDType and Batched are vLLM's --kv-cache-dtype and --max-num-batched-tokens; empty and 0 are the defaults.
	KVCacheDType string `json:"kvCacheDType,omitempty"`
	Batched      int    `json:"maxNumBatchedTokens,omitempty"`
	TTFT         Time   `json:"ttft"`
	TPOT         Time   `json:"tpot"` // of tokens after the first
}

// Precisions returns the precisions of weights: fp4 is NVFP4 or MXFP4, int4 has 16-bit activations.
func Precisions() []string { return []string{"bf16", "fp8", "fp4", "int4"} }

// GPUs returns the number of GPUs of the server.
func (r *Row) GPUs() int { return r.TensorParallel * r.DataParallel }

// Hardware returns the row's model on its GPUs.
func (r *Row) Hardware() (*hardware.Hardware, error) {
	n := hardware.Names{Model: r.Model, Accelerator: r.Accelerator, TP: r.TensorParallel, DP: r.DataParallel,
		EP: r.ExpertParallel > 1, Quantization: r.Precision, KVCacheDType: r.KVCacheDType, Version: r.release()}
	if model, err := modelshape.Named(r.Model); err == nil {
		n.EP = n.EP && model.Experts > 0
		if measured.PrecisionOf(model.Quantization) == r.Precision {
			n.Quantization = "" // MXFP4 of gpt-oss is fp4, too
		}
	}
	return n.Resolve()
}

// release returns the release among the row's versions; a build between releases is the default one.
func (r *Row) release() string {
	first, _, _ := strings.Cut(r.Version, "|")
	if a, err := hardware.AcceleratorNamed(r.Accelerator); err != nil {
		return ""
	} else if _, err := a.VLLM(first); err != nil {
		return ""
	}
	return first
}

// TokensPerGPU returns the output tokens per second and GPU at a TTFT and a TPOT in milliseconds: of a closed loop
// whose clients always wait for an answer, or of the request rate.
func (r *Row) TokensPerGPU(ttft, tpot float64) float64 {
	rate := r.RequestRate
	if r.Concurrency > 0 {
		rate = 1000 * float64(r.Concurrency) / (ttft + float64(r.OutputTokens-1)*tpot)
	}
	return rate * float64(r.OutputTokens) / float64(r.GPUs())
}

// Limits of a row. Times are in milliseconds.
const (
	maxTokens   = 16 << 20
	maxInFlight = 1 << 20
	maxTTFT     = 3600e3
	maxTPOT     = 10e3
	maxText     = 200 // bytes of a name
)

// bad returns an error about a field of a row.
func (r *Row) bad(field, found, expected string) error {
	return fmt.Errorf("%s:%d: %s: found %s; expected %s", r.File, r.Line, field, found, expected)
}

// Check completes a row and returns an error about the first impossible field. It replaces the names of model and
// accelerator by those of the catalogues, and an empty precision by the one of the published weights.
func (r *Row) Check() error {
	model, err := modelshape.Named(r.Model)
	if err != nil {
		return r.bad("model", fmt.Sprintf("%.100q", r.Model), "a model of the catalogue (--model): "+err.Error())
	}
	accelerator, err := hardware.AcceleratorNamed(r.Accelerator)
	if err != nil {
		return r.bad("accelerator", fmt.Sprintf("%.100q", r.Accelerator), "one of "+
			strings.Join(hardware.AcceleratorNames(), ", ")+" (--accelerator)")
	}
	r.Model, r.Accelerator = model.Name, accelerator.Name
	r.Precision = cmp.Or(r.Precision, measured.PrecisionOf(model.Quantization))
	if !slices.Contains(Precisions(), r.Precision) {
		return r.bad("precision", fmt.Sprintf("%.100q", r.Precision), "one of "+strings.Join(Precisions(), ", ")+
			" (--precision)")
	}
	r.DataParallel, r.ExpertParallel = max(r.DataParallel, 1), max(r.ExpertParallel, 1)
	r.Low = cmp.Or(r.Low, 1)
	for _, f := range []struct {
		name             string
		value, low, high float64
	}{
		{"tensor parallel size (--tensor-parallel-size)", float64(r.TensorParallel), 1, 1024},
		{"data parallel size (--data-parallel-size)", float64(r.DataParallel), 1, 1024},
		{"expert parallel size", float64(r.ExpertParallel), 1, 1024},
		{"input tokens", float64(r.InputTokens), 1, maxTokens},
		{"output tokens", float64(r.OutputTokens), 2, maxTokens},
		{"shortest length as a share of the longest", r.Low, 0.01, 1},
		{"concurrency", float64(r.Concurrency), 0, maxInFlight}, {"request rate", r.RequestRate, 0, maxInFlight},
		{"requests", float64(r.Requests), 0, maxTokens}, {"max num batched tokens", float64(r.Batched), 0, maxTokens},
		{"TTFT in ms", r.TTFT.Value(), 0.001, maxTTFT}, {"TPOT in ms", r.TPOT.Value(), 0.001, maxTPOT},
		{"median TTFT in ms", r.TTFT.Median, 0, maxTTFT}, {"median TPOT in ms", r.TPOT.Median, 0, maxTPOT},
	} {
		if !(f.value >= f.low && f.value <= f.high) {
			return r.bad(f.name, fmt.Sprint(f.value), fmt.Sprintf("%v to %.0f", f.low, f.high))
		}
	}
	switch {
	case len(r.Version) > maxText:
		return r.bad("version", fmt.Sprintf("%d bytes", len(r.Version)), fmt.Sprintf("at most %d", maxText))
	case r.Concurrency == 0 && r.RequestRate == 0:
		return r.bad("concurrency", "neither it nor a request rate",
			"the load of the benchmark, without which its times mean nothing")
	case r.Concurrency > 0 && r.RequestRate > 0:
		return r.bad("concurrency", fmt.Sprintf("%d and a request rate of %v/s", r.Concurrency, r.RequestRate),
			"one of the two")
	}
	return r.checkUnits()
}

// checkUnits finds times in seconds or microseconds by their size: no step of a batch is much faster than the hardware,
// and a first token takes at least one step and rarely less than other tokens. Some measured times are a little faster
// than the hardware, because fewer requests were in flight than their source says.
func (r *Row) checkUnits() error {
	h, err := r.Hardware()
	if err != nil {
		return r.bad("model", r.Model+" on "+r.Accelerator, err.Error())
	}
	floor := h.Floor(hardware.DecodeStep(1, 1))
	least := float64(floor.Nanoseconds) / 4e6
	for _, f := range []struct {
		name string
		time Time
	}{{"TPOT", r.TPOT}, {"TTFT", r.TTFT}} {
		if v := f.time.Value(); v < least {
			return r.bad(f.name, fmt.Sprintf("%v ms", v), fmt.Sprintf("milliseconds, and without speculative decoding "+
				"at least %.3g ms, a quarter of the least time: %s", least, floor.Why))
		}
	}
	if ttft, tpot := r.TTFT.Value(), r.TPOT.Value(); tpot > 100*ttft {
		return r.bad("TPOT", fmt.Sprintf("%v ms after a TTFT of %v ms", tpot, ttft), "both in milliseconds")
	}
	return nil
}

// builtin is data/silicon.csv, compressed by `make silicon`: a sixth of its size in the binary.
//
//go:embed data/silicon.csv.gz
var builtin []byte

// Builtin returns the rows of data/silicon.csv, which data/NOTICE.md describes.
func Builtin() ([]Row, error) {
	r, err := gzip.NewReader(bytes.NewReader(builtin))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return Read("silicon.csv", text, Defaults{})
}

// rounded returns a mean length as whole tokens.
func rounded(v float64) int { return int(math.Round(v)) }
