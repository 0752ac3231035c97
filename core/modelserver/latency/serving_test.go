package latency

import (
	"slices"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
	"github.com/windtunnel/windtunnel/internal/gate"
	"pgregory.net/rapid"
)

// drawServer draws a model on a group of accelerators, and its step times by the built-in calibration.
func drawServer(t *rapid.T) (*hardware.Hardware, *Serving) {
	n := hardware.Names{Model: rapid.SampledFrom(modelshape.Names()).Draw(t, "model"),
		Accelerator:  rapid.SampledFrom(hardware.AcceleratorNames()).Draw(t, "accelerator"),
		TP:           1 << rapid.IntRange(0, 3).Draw(t, "log2 of TP"),
		DP:           1 << rapid.IntRange(0, 3).Draw(t, "log2 of DP"),
		Quantization: rapid.SampledFrom([]string{"", "", "fp8", "int4"}).Draw(t, "quantization"),
		Version: rapid.SampledFrom([]string{"", "0.8.5", "0.11.0", "0.12.0", "0.14.0", "0.28.0"}).Draw(t,
			"version")}
	if n.TP*n.DP > 1 {
		n.Nodes = rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "nodes")
	}
	m, err := modelshape.Named(n.Model)
	n.EP = err == nil && m.Experts > 0 && rapid.Bool().Draw(t, "EP")
	h, err := n.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	c := BuiltinCalibration()
	s, err := NewServing(h, &c)
	if err != nil {
		t.Fatal(err)
	}
	return h, s
}

// A line of vLLM's step times agrees with single steps, to the last bit, for every model and server.
func TestServingLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, s := drawServer(t)
		batch := rapid.IntRange(1, 2048).Draw(t, "batch")
		context := int64(batch) * rapid.Int64Range(1, 100_000).Draw(t, "mean")
		line, ok := s.DecodeLine(batch, context)
		if !ok || line.Until != engine.NoKnot {
			t.Fatalf("line %+v", line)
		}
		for _, more := range []int64{0, 1, rapid.Int64Range(0, 1<<30).Draw(t, "more")} {
			want := s.StepTime(&engine.Step{DecodeSeqs: batch, DecodeContext: context + more})
			if got := line.Base + line.Slope*engine.Fixed(more); got != want {
				t.Fatalf("%d tokens later: line %d, step %d", more, got, want)
			}
		}
	})
}

// One more sequence, one more token of context, or one more token of a prompt never makes a step shorter.
func TestServingGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, s := drawServer(t)
		batch := rapid.Int64Range(1, 2047).Draw(t, "batch")
		context := rapid.Int64Range(1, 100_000).Draw(t, "context")
		n := rapid.Int64Range(1, 16383).Draw(t, "prompt")
		mixed := func(prompt int64) *engine.Step {
			step := hardware.PrefillStep(prompt)
			step.DecodeSeqs, step.DecodeContext = int(batch), batch*context
			return step
		}
		decode := hardware.DecodeStep(batch, context)
		longer := *decode
		longer.DecodeContext++
		wider := *decode
		wider.DecodeSeqs++
		for _, x := range []struct {
			what       string
			less, more *engine.Step
		}{
			{"a token of context", decode, &longer}, {"a sequence", decode, &wider},
			{"a token of a prompt", hardware.PrefillStep(n), hardware.PrefillStep(n + 1)},
			{"a token of a prompt beside decoding", mixed(n), mixed(n + 1)},
			{"a prompt", decode, mixed(1)}, {"decoding", hardware.PrefillStep(n), mixed(n)},
		} {
			if less, more := s.StepTime(x.less), s.StepTime(x.more); more < less || less < oneNanosecond {
				t.Fatalf("%s more makes %d of %d (in 2^-%d ns)", x.what, more, less, engine.FixedShift)
			}
		}
	})
}

// Batches that one CUDA graph runs differ by the host's work alone.
func TestGraphsArePadded(t *testing.T) {
	h := mustResolve(t, hardware.Names{Model: "Llama-3.1-8B", Accelerator: "H100"})
	c := BuiltinCalibration()
	s, err := NewServing(h, &c)
	if err != nil {
		t.Fatal(err)
	}
	at := func(batch int) engine.Fixed {
		return s.StepTime(&engine.Step{DecodeSeqs: batch, DecodeContext: 2048})
	}
	sample := func(n int) engine.Fixed { return overlapFixed(s.sample*engine.Fixed(n), s.head) }
	if got, want := at(40)-at(33), 7*s.sequence+sample(40)-sample(33); got != want {
		t.Errorf("40 sequences take %v longer than 33; want %v", got.Time(), want.Time())
	}
	if got := at(41) - at(40); got <= s.sequence+sample(41)-sample(40) {
		t.Errorf("41 sequences take %v longer than 40, which a smaller graph runs", got.Time())
	}
	if got := at(513) - at(512); got <= s.prefill {
		t.Errorf("513 sequences take %v longer than 512, but no graph runs them; want more than %v", got.Time(),
			s.prefill.Time())
	}
}

// No parameters within their bounds make a server faster than its hardware: neither the built-in ones nor the fastest.
func TestServingRespectsTheFloor(t *testing.T) {
	fastest := BuiltinCalibration()
	for p, x := range Parameters {
		switch fastest[p] = x.Low; {
		case Parameter(p) == Coincidence || Parameter(p) == HostAsync:
		case x.Unit == "share" || x.Unit == "TB/s":
			fastest[p] = x.High
		}
	}
	builtin := BuiltinCalibration()
	servers := 0
	for _, model := range modelshape.Names() {
		for _, accelerator := range hardware.AcceleratorNames() {
			for _, quantization := range []string{"", "none", "fp8", "int4", "nvfp4"} {
				for _, n := range []hardware.Names{{TP: 1}, {TP: 2}, {TP: 8}, {TP: 2, DP: 4},
					{TP: 1, DP: 8, EP: true}} {
					n.Model, n.Accelerator, n.Quantization = model, accelerator, quantization
					h, err := n.Resolve()
					if err != nil {
						continue // weights of that kind do not exist
					}
					if _, err := hardware.PlanMemory(hardware.MemoryConfig{Hardware: h,
						MaxNumSeqs: h.VLLM.MaxNumSeqs, MaxNumBatchedTokens: h.VLLM.MaxNumBatchedTokens,
						MaxModelLen: 2048}); err != nil {
						continue
					}
					servers++
					for name, c := range map[string]*Calibration{"built-in": &builtin, "fastest": &fastest} {
						s, err := NewServing(h, c)
						if err != nil {
							t.Fatal(err)
						}
						holdFloor(t, h, s, name)
					}
				}
			}
		}
	}
	if servers < 500 {
		t.Errorf("%d servers fit their memory; the catalogues have more", servers)
	}
}

func holdFloor(t *testing.T, h *hardware.Hardware, s *Serving, parameters string) {
	t.Helper()
	steps := []*engine.Step{hardware.PrefillStep(1), hardware.PrefillStep(512), hardware.PrefillStep(16384),
		hardware.PrefillStep(1 << 17)}
	for _, batch := range []int64{1, 8, 64, 512, 4096} {
		mixed := hardware.PrefillStep(2048)
		mixed.DecodeSeqs, mixed.DecodeContext = int(batch), batch*1024
		steps = append(steps, mixed, hardware.DecodeStep(batch, 1), hardware.DecodeStep(batch, 1<<17))
	}
	for _, step := range steps {
		if err := h.RefuseFaster("a step", step, int64(s.StepTime(step).Time())); err != nil {
			t.Errorf("%s, TP %d, DP %d, %s, %s parameters: %v", h.Model.Name, h.Group.TP, h.Group.DP, h.Weights.Name,
				parameters, err)
			return
		}
	}
}

// An engine's steps take about as long with vLLM's step times as with the roofline's. The requests, and so the steps,
// are the same with both.
func BenchmarkEngineWithServing(b *testing.B) {
	for name, n := range map[string]hardware.Names{"dense": {Model: "Llama-3.1-70B", Accelerator: "H100", TP: 4},
		"experts": {Model: "openai/gpt-oss-120b", Accelerator: "H100", TP: 2}} {
		b.Run(name, func(b *testing.B) {
			h := mustResolve(b, n)
			var took [2][]float64
			plays := [2]func(){playing(b, KindRoofline, h), playing(b, KindVLLM, h)}
			for b.Loop() {
				for i, play := range plays {
					began := time.Now()
					play()
					took[i] = append(took[i], time.Since(began).Seconds())
				}
			}
			median := func(i int) float64 { slices.Sort(took[i]); return took[i][len(took[i])/2] }
			gate.AtMost(b, median(1)/median(0), "x-roofline", 1.1)
		})
	}
}

// playing returns a function that makes an engine answer 64 requests, whose prompts join running batches.
func playing(b *testing.B, kind Kind, h *hardware.Hardware) func() {
	timer, err := New(Config{Kind: kind, Hardware: h})
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(engine.Config{Timer: timer, MaxNumSeqs: 16, MaxNumBatchedTokens: 2048, NumGPUBlocks: 1 << 14,
		MaxModelLen: 4096, DisablePrefixCaching: true})
	if err != nil {
		b.Fatal(err)
	}
	var fx engine.Effects
	var now machine.Time
	return func() {
		for i := range 64 {
			e.Input(now, &engine.Submit{ID: engine.RequestID(i + 1), PromptTokens: 1000, MaxTokens: 20 + i*37%100}, &fx)
		}
		for at, ok := e.Next(); ok; at, ok = e.Next() {
			now = at
			e.Advance(at, &fx)
			fx.Reset()
		}
	}
}
