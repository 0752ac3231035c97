package search

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/internal/silicon"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/scenario"
)

// A client and an engine alone give the times that calibrations are fitted to. They equal those of a whole simulation
// of the same server behind a picker, without hops.
func TestPlayedAsSimulated(t *testing.T) {
	for _, r := range []silicon.Row{
		{Model: "Llama-3.1-8B", Accelerator: "H100", TensorParallel: 1, OutputTokens: 120, Concurrency: 1},
		{Model: "Llama-3.1-70B", Accelerator: "H200", Precision: "fp8", TensorParallel: 2, OutputTokens: 80,
			Concurrency: 48},
		{Model: "gpt-oss-120b", Accelerator: "B200", TensorParallel: 2, OutputTokens: 200, Concurrency: 16},
	} {
		t.Run(fmt.Sprintf("%s, %d in flight", r.Model, r.Concurrency), func(t *testing.T) {
			r.InputTokens, r.Requests = 1000, 10*r.Concurrency
			r.TTFT, r.TPOT = silicon.Time{Mean: 1000}, silicon.Time{Mean: 100} // Check wants measurements
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
			quantization := ""
			if r.Precision == "fp8" {
				quantization = ", quantization: fp8"
			}
			s, err := scenario.Parse("test.yaml", fmt.Appendf(nil, `
apiVersion: windtunnel/v1alpha1
kind: Scenario
hops: {network: 0s, envoy: 0s, extProc: 0s, sidecar: 0s, scrape: 0s}
pools:
  - name: pool
    flow: plain
    model: %s
    modelServer: {batching: continuous, accelerator: %s, tensorParallelSize: %d, prefixCaching: false%s}
workload: {requests: %d, concurrency: %d, stream: true, prompt: {tokens: %d}, outputTokens: %d}
`, r.Model, r.Accelerator, r.TensorParallel, quantization, r.Requests, r.Concurrency, r.InputTokens, r.OutputTokens))
			if err != nil {
				t.Fatal(err)
			}
			var ttft, tpot float64 // means in milliseconds
			ended := 0
			if _, err := new(Player).Play(context.Background(), s, func(e *report.Ended) {
				each, ok := e.TPOT()
				if !e.Completed || !ok || int(e.Tokens) != r.OutputTokens {
					t.Fatalf("%+v", e)
				}
				ended++
				r.InputTokens = int(e.Prompt) // with the chat template
				ttft += 1000 * e.TTFT.Seconds() / float64(r.Requests)
				tpot += 1000 * each / float64(r.Requests)
			}); err != nil || ended != r.Requests {
				t.Fatal(ended, "requests", err)
			}
			server, err := silicon.NewServer(&r)
			if err != nil {
				t.Fatal(err)
			}
			c := latency.BuiltinCalibration()
			first, each, err := server.Play(&c)
			if err != nil || math.Abs(first/ttft-1) > 0.01 || math.Abs(each/tpot-1) > 0.01 {
				t.Errorf("TTFT %.3f ms and TPOT %.4f ms; the simulation has %.3f and %.4f ms; %v", first, each, ttft,
					tpot, err)
			}
		})
	}
}
