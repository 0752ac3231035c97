package silicon

import (
	"context"
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

// played returns the predicted times of a row, as a benchmark would report them.
func played(t *testing.T, r Row, c *latency.Calibration) (ttft, tpot float64) {
	t.Helper()
	s, err := NewServer(&r)
	if err != nil {
		t.Fatal(err)
	}
	if ttft, tpot, err = s.Play(c); err != nil {
		t.Fatal(err)
	}
	return ttft, tpot
}

// Requests that arrive at a low rate are alone, as those of one client that waits are; at a high one they share steps.
func TestPlayAtARate(t *testing.T) {
	r := Row{Model: "meta-llama/Llama-3.1-8B", Accelerator: "H100", Precision: "bf16", TensorParallel: 1,
		DataParallel: 1, ExpertParallel: 1, InputTokens: 500, OutputTokens: 50, Low: 1, Requests: 60,
		TTFT: Time{Mean: 1}, TPOT: Time{Mean: 1}}
	at := func(concurrency int, rate float64) (ttft, tpot float64) {
		x := r
		x.Concurrency, x.RequestRate = concurrency, rate
		c := latency.BuiltinCalibration()
		return played(t, x, &c)
	}
	ttft, tpot := at(1, 0)
	if first, each := at(0, 0.001); math.Abs(first/ttft-1) > 0.001 || math.Abs(each/tpot-1) > 0.001 {
		t.Errorf("at a low rate TTFT is %v ms and TPOT %v ms; alone they are %v and %v ms", first, each, ttft, tpot)
	}
	if first, each := at(0, 60); first < 1.1*ttft || each < 1.1*tpot {
		t.Errorf("at a high rate TTFT is %v ms and TPOT %v ms; alone they are %v and %v ms", first, each, ttft, tpot)
	}
}

// A client that works on one request after the other delays all but the first.
func TestBenchWork(t *testing.T) {
	r := Row{Model: "meta-llama/Llama-3.1-8B", Accelerator: "H100", Precision: "bf16", TensorParallel: 1,
		DataParallel: 1, ExpertParallel: 1, InputTokens: 100, OutputTokens: 50, Low: 1, Requests: 16, Concurrency: 16,
		TTFT: Time{Mean: 1}, TPOT: Time{Mean: 1}}
	c := latency.BuiltinCalibration()
	c[latency.BenchRequest] = 20
	quick, _ := played(t, r, &c)
	r.Bench = true
	if ttft, _ := played(t, r, &c); ttft < quick+100 { // the mean of 20 to 320 ms is 170 ms
		t.Errorf("TTFT is %v ms with a client that works 20 ms for each of 16 requests, and %v ms without", ttft, quick)
	}
}

// A fit to results that a server with other parameters gave finds these, as far as the results determine them.
func TestFitRecovers(t *testing.T) {
	truth := latency.BuiltinCalibration()
	truth[latency.Layer] *= 1.4
	truth[latency.PrefillLayer] *= 0.7
	truth[latency.ReadWeights] *= 0.85
	truth.Clamp()
	var rows []Row
	for _, model := range []string{"meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"} {
		for _, load := range []struct{ concurrency, input, output int }{{1, 200, 30}, {1, 4000, 10}, {4, 1000, 40},
			{16, 200, 60}, {16, 2000, 10}, {32, 500, 20}} {
			r := Row{Model: model, Accelerator: "H200", Precision: "bf16", TensorParallel: 2, DataParallel: 1,
				ExpertParallel: 1, InputTokens: load.input, OutputTokens: load.output, Low: 1,
				Concurrency: load.concurrency, Requests: 2 * load.concurrency, Line: len(rows) + 1,
				TTFT: Time{Mean: 1}, TPOT: Time{Mean: 1}}
			r.TTFT.Mean, r.TPOT.Mean = played(t, r, &truth)
			rows = append(rows, r)
		}
	}
	servers, err := Servers(rows)
	if err != nil {
		t.Fatal(err)
	}
	prior := latency.BuiltinCalibration()
	fit, err := NewFitter(servers, &prior).Fit(context.Background(), &prior, 6, func(int, float64) {})
	if err != nil {
		t.Fatal(err)
	}
	for p := range parameters {
		off := math.Abs(math.Log(fit.Calibration[p] / truth[p]))
		if off > max(fit.Spread[p], 0.02) {
			t.Errorf("%s is %v±%.0f %%; the server has %v", latency.Parameters[p].Name, fit.Calibration[p],
				100*fit.Spread[p], truth[p])
		}
	}
	if s := &fit.Spread; s[latency.Matrix16] > 0.15 || s[latency.ReadWeights] > 0.15 || s[latency.Layer] > 0.4 ||
		s[latency.ExpertMatrix] < determined*priorSpread {
		t.Errorf("spreads of matrices %v, reading %v, layers %v, and experts, which no model has, %v",
			s[latency.Matrix16],
			s[latency.ReadWeights], s[latency.Layer], s[latency.ExpertMatrix])
	}
	all, err := Predict(context.Background(), servers, &fit.Calibration)
	if err != nil {
		t.Fatal(err)
	}
	if g := Compare(all).All; g.TPOT.P90 > 0.01 || g.TTFT.P90 > 0.02 {
		t.Errorf("the fit is off by %+v", g)
	}
}
