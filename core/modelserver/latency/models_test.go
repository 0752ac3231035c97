package latency

import (
	"math"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

// The parameters that a shape adds up to are those that its publisher states,
// in billions (model cards and reports), so no field is far off.
func TestCatalogueAddsUp(t *testing.T) {
	stated := map[string]float64{
		"meta-llama/Llama-2-7b-hf": 6.74, "meta-llama/Llama-2-13b-hf": 13.02, "meta-llama/Llama-2-70b-hf": 68.98,
		"meta-llama/Llama-3.1-8B": 8.03, "meta-llama/Llama-3.1-70B": 70.55, "meta-llama/Llama-3.1-405B": 405.85,
		"meta-llama/Llama-3.2-1B": 1.24, "meta-llama/Llama-3.2-3B": 3.21,
		"meta-llama/Llama-3.3-70B-Instruct": 70.55, "meta-llama/Llama-4-Scout-17B-16E": 109,
		"meta-llama/Llama-4-Maverick-17B-128E": 400, "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1.1,
		"Qwen/Qwen2.5-0.5B": .49, "Qwen/Qwen2.5-1.5B": 1.54, "Qwen/Qwen2.5-7B": 7.61, "Qwen/Qwen2.5-14B": 14.7,
		"Qwen/Qwen2.5-32B": 32.5, "Qwen/Qwen2.5-72B": 72.7,
		"Qwen/Qwen3-0.6B": .6, "Qwen/Qwen3-1.7B": 1.7, "Qwen/Qwen3-4B": 4.0, "Qwen/Qwen3-8B": 8.2,
		"Qwen/Qwen3-14B": 14.8, "Qwen/Qwen3-32B": 32.8, "Qwen/Qwen3-30B-A3B": 30.5, "Qwen/Qwen3-235B-A22B": 235,
		"openai/gpt-oss-20b": 20.9, "openai/gpt-oss-120b": 116.8, "mistralai/Mistral-7B-v0.3": 7.25,
		"mistralai/Mistral-Small-24B-Instruct-2501": 23.6, "mistralai/Mixtral-8x7B-v0.1": 46.7,
		"deepseek-ai/DeepSeek-V3": 671, "deepseek-ai/DeepSeek-R1": 671, "moonshotai/Kimi-K2.5": 1026,
		"MiniMaxAI/MiniMax-M2.5": 228.7, "moonshotai/Kimi-K2-Instruct": 1026, "google/gemma-3-27b-it": 27.0,
		"microsoft/phi-4": 14.7, "ibm-granite/granite-3.1-8b-instruct": 8.17,
	}
	for _, name := range modelshape.Names() {
		m, err := modelshape.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		want := stated[m.Name]
		if got := float64(m.Params()) / 1e9; math.Abs(got-want) > .02*want {
			t.Errorf("%s: the shape has %.2f billion parameters, its publisher says %.2f", m.Name, got, want)
		}
		if err := m.Check(); err != nil || m.Architecture() == "" {
			t.Errorf("%s, of architecture %q: %v", m.Name, m.Architecture(), err)
		}
		again, err := modelshape.Named(strings.ToUpper(m.Name))
		if err != nil || again.Name != m.Name {
			t.Errorf("%s is found as %s, %v", m.Name, again.Name, err)
		}
		for _, a := range hardware.AcceleratorNames() {
			h, err := hardware.Names{Model: m.Name, Accelerator: a, TP: 8}.Resolve()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := New(Config{Hardware: h}); err != nil {
				t.Errorf("%s on %s: %v", m.Name, a, err)
			}
		}
	}
}

func TestModelNamesAsPublished(t *testing.T) {
	for name, want := range map[string]string{
		"meta-llama/Llama-3.1-8B-Instruct":                    "meta-llama/Llama-3.1-8B ",
		"RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic":    "meta-llama/Llama-3.1-70B fp8",
		"Qwen/Qwen3-32B-AWQ":                                  "Qwen/Qwen3-32B awq",
		"llama-70b":                                           "meta-llama/Llama-2-70b-hf ",
		"deepseek-ai/DeepSeek-R1":                             "deepseek-ai/DeepSeek-R1 fp8",
		"RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": "meta-llama/Llama-4-Scout-17B-16E fp8",
		"Qwen/Qwen2.5-1.5B-Instruct":                          "Qwen/Qwen2.5-1.5B ",
		"meta-llama/Llama-2-7b-chat-hf":                       "meta-llama/Llama-2-7b-hf ",
	} {
		h, err := hardware.Names{Model: name, Accelerator: "H100", TP: 8}.Resolve()
		if err != nil {
			t.Error(err)
		} else if got := h.Model.Name + " " + h.Weights.Name; got != want {
			t.Errorf("%s is %q, expected %q", name, got, want)
		}
	}
}

// The document's 70B in 16 bits: 320 KiB per token, 640 MiB for 2,048.
func TestKVBytes(t *testing.T) {
	for name, want := range map[string]int64{"Llama-2-70b": 320 << 10, "Llama-3.1-8B": 128 << 10,
		"Qwen3-32B": 256 << 10, "DeepSeek-V3": 61 * 576 * 2} {
		m, err := modelshape.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.KVBytesPerToken(modelshape.BF16); got != want {
			t.Errorf("%s: %d bytes per token, expected %d", name, got, want)
		}
		// Eight KV heads on sixteen ranks: each holds one, twice over.
		if m.KVHeads == 8 && m.KVBytesPerTokenRank(modelshape.BF16, 16) != want/8 {
			t.Errorf("%s: rank share %d", name, m.KVBytesPerTokenRank(modelshape.BF16, 16))
		}
	}
}
