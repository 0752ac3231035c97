package modelshape

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

var (
	fp8   = &Quantization{Name: "fp8", Compute: FP8, MilliBits: 8_000}
	int4  = &Quantization{Name: "int4", Compute: BF16, MilliBits: 4_500, Unquantized: Attention | FeedForward}
	mxfp4 = &Quantization{Name: "mxfp4", Compute: BF16, MilliBits: 4_250, Unquantized: Attention | FeedForward}
)

// The catalogue. Every row holds the figures of the model's public config.json on the Hugging Face hub, under the given
// name.
var models = []Shape{
	// meta-llama: Llama 2 paper (arXiv 2307.09288), Llama 3 paper (2407.21783).
	{Name: "meta-llama/Llama-2-7b-hf", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 32, HeadDim: 128, FFN: 11008,
		Vocab: 32000, MaxModelLen: 4096},
	{Name: "meta-llama/Llama-2-13b-hf", Layers: 40, Hidden: 5120, Heads: 40, KVHeads: 40, HeadDim: 128, FFN: 13824,
		Vocab: 32000, MaxModelLen: 4096},
	{Name: "meta-llama/Llama-2-70b-hf", Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, HeadDim: 128, FFN: 28672,
		Vocab: 32000, MaxModelLen: 4096},
	{Name: "meta-llama/Llama-3.1-8B", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336,
		Vocab: 128256, MaxModelLen: 131072},
	{Name: "meta-llama/Llama-3.1-70B", Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, HeadDim: 128, FFN: 28672,
		Vocab: 128256, MaxModelLen: 131072},
	{Name: "meta-llama/Llama-3.1-405B", Layers: 126, Hidden: 16384, Heads: 128, KVHeads: 8, HeadDim: 128, FFN: 53248,
		Vocab: 128256, MaxModelLen: 131072},
	{Name: "meta-llama/Llama-3.2-1B", Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, FFN: 8192,
		Vocab: 128256, Tied: true, MaxModelLen: 131072},
	{Name: "meta-llama/Llama-3.2-3B", Layers: 28, Hidden: 3072, Heads: 24, KVHeads: 8, HeadDim: 128, FFN: 8192,
		Vocab: 128256, Tied: true, MaxModelLen: 131072},
	{Name: "meta-llama/Llama-4-Scout-17B-16E", Layers: 48, Hidden: 5120, Heads: 40, KVHeads: 8, HeadDim: 128,
		Vocab: 202048, MaxModelLen: 10485760, Experts: 16, ActiveExperts: 1, ExpertFFN: 8192, SharedFFN: 8192},
	{Name: "meta-llama/Llama-4-Maverick-17B-128E", Layers: 48, Hidden: 5120, Heads: 40, KVHeads: 8, HeadDim: 128,
		FFN: 16384, Vocab: 202048, MaxModelLen: 1048576, Experts: 128, ActiveExperts: 1, ExpertFFN: 8192,
		SharedFFN: 8192, DenseLayers: 24},
	{Name: "TinyLlama/TinyLlama-1.1B-Chat-v1.0", Layers: 22, Hidden: 2048, Heads: 32, KVHeads: 4, HeadDim: 64,
		FFN: 5632, Vocab: 32000, MaxModelLen: 2048},
	{Name: "meta-llama/Llama-3.3-70B-Instruct", Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, HeadDim: 128,
		FFN: 28672, Vocab: 128256, MaxModelLen: 131072},
	// Qwen: Qwen2.5 report (2412.15115), Qwen3 report (2505.09388).
	{Name: "Qwen/Qwen2.5-0.5B", Layers: 24, Hidden: 896, Heads: 14, KVHeads: 2, HeadDim: 64, FFN: 4864, Vocab: 151936,
		Tied: true, MaxModelLen: 32768},
	{Name: "Qwen/Qwen2.5-1.5B", Layers: 28, Hidden: 1536, Heads: 12, KVHeads: 2, HeadDim: 128, FFN: 8960, Vocab: 151936,
		Tied: true, MaxModelLen: 32768},
	{Name: "Qwen/Qwen2.5-7B", Layers: 28, Hidden: 3584, Heads: 28, KVHeads: 4, HeadDim: 128, FFN: 18944, Vocab: 152064,
		MaxModelLen: 32768},
	{Name: "Qwen/Qwen2.5-14B", Layers: 48, Hidden: 5120, Heads: 40, KVHeads: 8, HeadDim: 128, FFN: 13824, Vocab: 152064,
		MaxModelLen: 32768},
	{Name: "Qwen/Qwen2.5-32B", Layers: 64, Hidden: 5120, Heads: 40, KVHeads: 8, HeadDim: 128, FFN: 27648, Vocab: 152064,
		MaxModelLen: 32768},
	{Name: "Qwen/Qwen2.5-72B", Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, HeadDim: 128, FFN: 29568, Vocab: 152064,
		MaxModelLen: 32768},
	{Name: "Qwen/Qwen3-0.6B", Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 3072, Vocab: 151936,
		Tied: true, MaxModelLen: 40960},
	{Name: "Qwen/Qwen3-1.7B", Layers: 28, Hidden: 2048, Heads: 16, KVHeads: 8, HeadDim: 128, FFN: 6144, Vocab: 151936,
		Tied: true, MaxModelLen: 40960},
	{Name: "Qwen/Qwen3-4B", Layers: 36, Hidden: 2560, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 9728, Vocab: 151936,
		Tied: true, MaxModelLen: 40960},
	{Name: "Qwen/Qwen3-8B", Layers: 36, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 12288, Vocab: 151936,
		MaxModelLen: 40960},
	{Name: "Qwen/Qwen3-14B", Layers: 40, Hidden: 5120, Heads: 40, KVHeads: 8, HeadDim: 128, FFN: 17408, Vocab: 151936,
		MaxModelLen: 40960},
	{Name: "Qwen/Qwen3-32B", Layers: 64, Hidden: 5120, Heads: 64, KVHeads: 8, HeadDim: 128, FFN: 25600, Vocab: 151936,
		MaxModelLen: 40960},
	{Name: "Qwen/Qwen3-30B-A3B", Layers: 48, Hidden: 2048, Heads: 32, KVHeads: 4, HeadDim: 128, Vocab: 151936,
		MaxModelLen: 40960, Experts: 128, ActiveExperts: 8, ExpertFFN: 768},
	{Name: "Qwen/Qwen3-235B-A22B", Layers: 94, Hidden: 4096, Heads: 64, KVHeads: 4, HeadDim: 128, Vocab: 151936,
		MaxModelLen: 40960, Experts: 128, ActiveExperts: 8, ExpertFFN: 1536},
	// OpenAI: gpt-oss model card (2508.10925); every second layer attends to
	// 128 tokens, experts are stored in MXFP4.
	{Name: "openai/gpt-oss-20b", Layers: 24, Hidden: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088,
		MaxModelLen: 131072, Experts: 32, ActiveExperts: 4, ExpertFFN: 2880, WindowLayers: 12, Window: 128,
		Quantization: mxfp4, FourBitKeeps: Attention | FeedForward},
	{Name: "openai/gpt-oss-120b", Layers: 36, Hidden: 2880, Heads: 64, KVHeads: 8, HeadDim: 64, Vocab: 201088,
		MaxModelLen: 131072, Experts: 128, ActiveExperts: 4, ExpertFFN: 2880, WindowLayers: 18, Window: 128,
		Quantization: mxfp4, FourBitKeeps: Attention | FeedForward},
	// mistralai: Mistral 7B (2310.06825), Mixtral (2401.04088).
	{Name: "mistralai/Mistral-7B-v0.3", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336,
		Vocab: 32768, MaxModelLen: 32768},
	{Name: "mistralai/Mistral-Small-24B-Instruct-2501", Layers: 40, Hidden: 5120, Heads: 32, KVHeads: 8, HeadDim: 128,
		FFN: 32768, Vocab: 131072, MaxModelLen: 32768},
	{Name: "mistralai/Mixtral-8x7B-v0.1", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, Vocab: 32000,
		MaxModelLen: 32768, Experts: 8, ActiveExperts: 2, ExpertFFN: 14336},
	// deepseek-ai: DeepSeek-V3 report (2412.19437): latent of 512 and a rotary
	// key of 64 per token and layer; three dense layers, one shared expert. Kimi-K2.5 has the text model of Kimi-K2.
	{Name: "deepseek-ai/DeepSeek-V3", Layers: 61, Hidden: 7168, Heads: 128, KVHeads: 128, HeadDim: 128, FFN: 18432,
		Vocab: 129280, MaxModelLen: 163840, Experts: 256, ActiveExperts: 8, ExpertFFN: 2048, SharedFFN: 2048,
		DenseLayers: 3, MLA: deepseekMLA, Quantization: fp8, FourBitKeeps: Attention},
	{Name: "deepseek-ai/DeepSeek-R1", Layers: 61, Hidden: 7168, Heads: 128, KVHeads: 128, HeadDim: 128, FFN: 18432,
		Vocab: 129280, MaxModelLen: 163840, Experts: 256, ActiveExperts: 8, ExpertFFN: 2048, SharedFFN: 2048,
		DenseLayers: 3, MLA: deepseekMLA, Quantization: fp8, FourBitKeeps: Attention},
	{Name: "moonshotai/Kimi-K2-Instruct", Layers: 61, Hidden: 7168, Heads: 64, KVHeads: 64, HeadDim: 128, FFN: 18432,
		Vocab: 163840, MaxModelLen: 131072, Experts: 384, ActiveExperts: 8, ExpertFFN: 2048, SharedFFN: 2048,
		DenseLayers: 1, MLA: deepseekMLA, Quantization: fp8, FourBitKeeps: Attention},
	{Name: "moonshotai/Kimi-K2.5", Layers: 61, Hidden: 7168, Heads: 64, KVHeads: 64, HeadDim: 128, FFN: 18432,
		Vocab: 163840, MaxModelLen: 262144, Experts: 384, ActiveExperts: 8, ExpertFFN: 2048, SharedFFN: 2048,
		DenseLayers: 1, MLA: deepseekMLA, Quantization: int4, FourBitKeeps: Attention},
	// MiniMaxAI: model card of MiniMax-M2.
	{Name: "MiniMaxAI/MiniMax-M2.5", Layers: 62, Hidden: 3072, Heads: 48, KVHeads: 8, HeadDim: 128, Vocab: 200064,
		MaxModelLen: 196608, Experts: 256, ActiveExperts: 8, ExpertFFN: 1536, Quantization: fp8,
		FourBitKeeps: Attention | FeedForward},
	// Others: Gemma 3 (2503.19786; five of six layers attend to 1,024 tokens),
	// Phi-4 (2412.08905), IBM Granite 3.1.
	{Name: "google/gemma-3-27b-it", Layers: 62, Hidden: 5376, Heads: 32, KVHeads: 16, HeadDim: 128, FFN: 21504,
		Vocab: 262208, Tied: true, MaxModelLen: 131072, WindowLayers: 52, Window: 1024},
	{Name: "microsoft/phi-4", Layers: 40, Hidden: 5120, Heads: 40, KVHeads: 10, HeadDim: 128, FFN: 17920, Vocab: 100352,
		MaxModelLen: 16384},
	{Name: "ibm-granite/granite-3.1-8b-instruct", Layers: 40, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128,
		FFN: 12800, Vocab: 49155, Tied: true, MaxModelLen: 131072},
}

var deepseekMLA = MLA{QueryLatent: 1536, Latent: 512, Rope: 64, Nope: 128, Value: 128}

// aliases are other names of the same shapes.
var aliases = map[string]string{
	"llama-7b": "llama-2-7b-hf", "llama-13b": "llama-2-13b-hf", "llama-70b": "llama-2-70b-hf",
	"llama-405b":        "llama-3.1-405b",
	"meta-llama-3.1-8b": "llama-3.1-8b", "meta-llama-3.1-70b": "llama-3.1-70b", "meta-llama-3.1-405b": "llama-3.1-405b",
	"meta-llama-3-8b": "llama-3.1-8b", "meta-llama-3-70b": "llama-3.1-70b", "llama-3-8b": "llama-3.1-8b",
	"llama-3-70b":   "llama-3.1-70b",
	"llama-3.3-70b": "llama-3.3-70b-instruct", "deepseek-v3.1": "deepseek-v3", "deepseek-v3-0324": "deepseek-v3",
	"deepseek-r1-0528": "deepseek-r1", "minimax-m2": "minimax-m2.5",
	"llama-2-7b": "llama-2-7b-hf", "llama-2-13b": "llama-2-13b-hf", "llama-2-70b": "llama-2-70b-hf",
	"gemma-3-27b": "gemma-3-27b-it", "granite-3.1-8b": "granite-3.1-8b-instruct",
	"mistral-small-24b": "mistral-small-24b-instruct-2501",
	"kimi-k2":           "kimi-k2-instruct", "tinyllama": "tinyllama-1.1b-chat-v1.0",
	"llama-4-scout":    "llama-4-scout-17b-16e",
	"llama-4-maverick": "llama-4-maverick-17b-128e",
	"mistral-7b":       "mistral-7b-v0.3", "mixtral-8x7b": "mixtral-8x7b-v0.1",
}

// Named returns the model with a hub name. It ignores the organization, upper case, and the suffixes of an
// instruction-tuned or quantized variant (a quantized one is returned with its Quantization).
func Named(name string) (Shape, error) {
	key, quantization := quantizedSuffix(modelKey(name))
	for _, try := range []string{key, trimSuffixes(key, "-instruct", "-chat-hf", "-chat", "-it", "-base", "-hf")} {
		if alias, ok := aliases[try]; ok {
			try = alias
		}
		for _, m := range models {
			if modelKey(m.Name) == try {
				if quantization != "" {
					q, err := m.Weights(quantization)
					m.Quantization = &q
					return m, err
				}
				return m, nil
			}
		}
	}
	return Shape{}, fmt.Errorf(
		"model %q is not in the catalogue; name one that is (nearest: %s), or give its config.json (modelConfig in a "+
			"scenario, --model-config of a model server)", name, strings.Join(nearest(key), ", "))
}

// nearest returns the three models whose names begin most like a key, where typing errors count as few letters.
func nearest(key string) []string {
	names := Names()
	slices.SortStableFunc(names, func(a, b string) int {
		a, b = modelKey(a), modelKey(b)
		begins := func(name string) int { return strictyaml.Distance(key, name[:min(len(name), len(key))]) }
		return cmp.Or(begins(a)-begins(b), strictyaml.Distance(key, a)-strictyaml.Distance(key, b))
	})
	return names[:3]
}

func trimSuffixes(s string, suffixes ...string) string {
	for _, suffix := range suffixes {
		s = strings.TrimSuffix(s, suffix)
	}
	return s
}

// quantizedSuffix removes the quantization from a name as publishers write it.
func quantizedSuffix(key string) (rest, quantization string) {
	for _, s := range []struct{ suffix, quantization string }{
		{"-fp8-dynamic", "fp8"}, {"-fp8", "fp8"}, {"-quantized.w8a8", "int8"}, {"-quantized.w4a16", "gptq"},
		{"-awq-int4", "awq"}, {"-awq", "awq"}, {"-gptq-int4", "gptq"}, {"-gptq", "gptq"},
		{"-nvfp4", "nvfp4"}, {"-fp4", "nvfp4"},
	} {
		if before, ok := strings.CutSuffix(key, s.suffix); ok {
			return before, s.quantization
		}
	}
	return key, ""
}

func modelKey(name string) string {
	name = strings.ToLower(name)
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	return name
}

// Names returns the names of the catalogue in alphabetical order.
func Names() []string {
	names := make([]string, len(models))
	for i, m := range models {
		names[i] = m.Name
	}
	slices.Sort(names)
	return names
}

// architectures maps prefixes of models' names to their classes in transformers, longer prefixes first.
var architectures = [][2]string{{"meta-llama/Llama-4", "Llama4ForConditionalGeneration"},
	{"meta-llama/", "LlamaForCausalLM"}, {"TinyLlama/", "LlamaForCausalLM"}, {"Qwen/Qwen2.5", "Qwen2ForCausalLM"},
	{"Qwen/Qwen3-30B-A3B", "Qwen3MoeForCausalLM"}, {"Qwen/Qwen3-235B-A22B", "Qwen3MoeForCausalLM"},
	{"Qwen/Qwen3", "Qwen3ForCausalLM"}, {"openai/gpt-oss", "GptOssForCausalLM"},
	{"mistralai/Mixtral", "MixtralForCausalLM"}, {"mistralai/", "MistralForCausalLM"},
	{"deepseek-ai/DeepSeek", "DeepseekV3ForCausalLM"},
	{"moonshotai/Kimi-K2.5", "KimiK25ForConditionalGeneration"}, {"moonshotai/Kimi-K2", "DeepseekV3ForCausalLM"},
	{"MiniMaxAI/MiniMax-M2", "MiniMaxM2ForCausalLM"},
	{"google/gemma-3", "Gemma3ForConditionalGeneration"}, {"microsoft/phi-4", "Phi3ForCausalLM"},
	{"ibm-granite/granite-3", "GraniteForCausalLM"}}

// Architecture returns the model's class in its config.json; "" outside the catalogue.
func (s *Shape) Architecture() string {
	for _, a := range architectures {
		if strings.HasPrefix(s.Name, a[0]) {
			return a[1]
		}
	}
	return ""
}
