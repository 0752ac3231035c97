package modelshape

import (
	"cmp"
	_ "embed"
	"encoding/json"
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

// entry is a line of the catalogue.
type entry struct {
	Shape
	Aliases   []string // other names, without organization
	Published string   // the name of Quantization; empty is bfloat16
	Keeps     []string // FourBitKeeps
}

//go:embed models.jsonl
var catalogue string

var models = func() (all []entry) {
	formats := map[string]*Quantization{"fp8": fp8, "int4": int4, "mxfp4": mxfp4}
	parts := map[string]Parts{"attention": Attention, "feedForward": FeedForward}
	for line := range strings.Lines(catalogue) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			panic(err) // embedded in this binary and parsed by every test
		}
		e.Quantization = formats[e.Published]
		for _, part := range e.Keeps {
			e.FourBitKeeps |= parts[part]
		}
		all = append(all, e)
	}
	return all
}()

// Named returns the model with a hub name. It ignores the organization, upper case, and the suffixes of an
// instruction-tuned or quantized variant (a quantized one is returned with its Quantization).
func Named(name string) (Shape, error) {
	key, quantization := quantizedSuffix(modelKey(name))
	for _, try := range []string{key, trimSuffixes(key, "-instruct", "-chat-hf", "-chat", "-it", "-base", "-hf")} {
		for _, e := range models {
			if modelKey(e.Name) != try && !slices.Contains(e.Aliases, try) {
				continue
			}
			m := e.Shape
			if quantization == "" {
				return m, nil
			}
			q, err := m.Weights(quantization)
			m.Quantization = &q
			return m, err
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
