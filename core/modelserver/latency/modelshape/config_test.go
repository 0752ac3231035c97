package modelshape

import (
	"strings"
	"testing"
)

// configs are the fields of published config.json files that decide a shape.
var configs = map[string]string{
	"meta-llama/Llama-3.1-70B": `{"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
		"num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
		"max_position_embeddings": 131072, "tie_word_embeddings": false, "rope_scaling": {"factor": 8.0,
		"rope_type": "llama3", "original_max_position_embeddings": 8192}}`,
	"Qwen/Qwen3-30B-A3B": `{"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "head_dim": 128,
		"num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768,
		"num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
		"vocab_size": 151936, "max_position_embeddings": 40960, "sliding_window": null, "use_sliding_window": false,
		"tie_word_embeddings": false}`,
	"openai/gpt-oss-120b": `{"model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "head_dim": 64,
		"num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 2880, "num_local_experts": 128,
		"num_experts_per_tok": 4, "experts_per_token": 4, "vocab_size": 201088, "max_position_embeddings": 131072,
		"rope_scaling": {"factor": 32.0, "rope_type": "yarn", "original_max_position_embeddings": 4096},
		"sliding_window": 128, "layer_types": [` + strings.Repeat(`"sliding_attention", "full_attention", `, 17) +
		`"sliding_attention", "full_attention"], "tie_word_embeddings": false, "quantization_config": {
		"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
		"model.embed_tokens", "lm_head"]}}`,
	"mistralai/Mixtral-8x7B-v0.1": `{"model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096,
		"num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8,
		"num_experts_per_tok": 2, "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": null}`,
	"deepseek-ai/DeepSeek-R1": `{"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
		"num_attention_heads": 128, "num_key_value_heads": 128, "head_dim": 128, "intermediate_size": 18432,
		"moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
		"first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536,
		"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
		"max_position_embeddings": 163840, "rope_scaling": {"factor": 40, "type": "yarn",
		"original_max_position_embeddings": 4096}, "tie_word_embeddings": false,
		"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`,
	"moonshotai/Kimi-K2.5": `{"model_type": "kimi_k25", "tie_word_embeddings": false, "vision_config": {}, "text_config": {
		"model_type": "kimi_k2", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 64,
		"num_key_value_heads": 64, "head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
		"n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
		"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
		"vocab_size": 163840, "max_position_embeddings": 262144, "rope_scaling": {"factor": 64.0, "type": "yarn",
		"original_max_position_embeddings": 4096}, "quantization_config": {"quant_method": "compressed-tensors",
		"format": "pack-quantized", "config_groups": {"group_0": {"input_activations": null, "targets": ["Linear"],
		"weights": {"group_size": 32, "num_bits": 4, "symmetric": true, "type": "int"}}}, "ignore": ["lm_head",
		"re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]}}}`,
	"MiniMaxAI/MiniMax-M2.5": `{"model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072, "head_dim": 128,
		"num_attention_heads": 48, "num_key_value_heads": 8, "intermediate_size": 1536, "num_local_experts": 256,
		"num_experts_per_tok": 8, "vocab_size": 200064, "max_position_embeddings": 196608, "tie_word_embeddings": false,
		"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}}`,
	"meta-llama/Llama-4-Maverick-17B-128E": `{"model_type": "llama4", "text_config": {"model_type": "llama4_text",
		"num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
		"head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 128,
		"num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192, "vocab_size": 202048,
		"max_position_embeddings": 1048576, "tie_word_embeddings": false}}`,
	"google/gemma-3-27b-it": `{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
		"num_hidden_layers": 62, "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16,
		"head_dim": 128, "intermediate_size": 21504, "vocab_size": 262208, "max_position_embeddings": 131072,
		"sliding_window": 1024, "sliding_window_pattern": 6, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}`,
}

func TestConfigsGiveTheCatalogue(t *testing.T) {
	for name, text := range configs {
		got, err := ParseConfig("config.json", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if (got.Quantization == nil) != (want.Quantization == nil) ||
			got.Quantization != nil && *got.Quantization != *want.Quantization {
			t.Errorf("%s: weights in %+v, expected %+v", name, got.Quantization, want.Quantization)
		}
		got.Name, got.Quantization, got.FourBitKeeps = want.Name, want.Quantization, want.FourBitKeeps
		if got != want {
			t.Errorf("%s:\n%+v, expected\n%+v", name, got, want)
		}
	}
}

// The formats of weights, and the parts that stay in 16 bits, by the names that each tool gives them.
func TestConfigQuantization(t *testing.T) {
	base := strings.TrimSuffix(configs["Qwen/Qwen3-30B-A3B"], "}")
	awq := Quantization{Name: "awq", Compute: BF16, MilliBits: 4_156, Unquantized: FeedForward}
	nvfp4 := Quantization{Name: "nvfp4", Compute: FP4, MilliBits: 4_500, Unquantized: Attention | FeedForward}
	for text, want := range map[string]Quantization{
		`{"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"]}`: awq,
		`{"quant_method": "gptq", "bits": 8, "group_size": -1}`: {Name: "gptq", Compute: BF16,
			MilliBits: 8_000},
		`{"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.24.self_attn*",
			"model.layers.24.mlp.gate"]}`: nvfp4,
		`{"quant_algo": "FP8", "exclude_modules": ["lm_head"]}`: *fp8,
		`{"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {
			"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "input_activations": {"num_bits": 4}}},
			"ignore": ["re:.*self_attn", "re:.*mlp.gate$"]}`: nvfp4,
		`{"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8,
			"type": "int"}, "input_activations": {"num_bits": 8}}}}`: {Name: "int8", Compute: INT8, MilliBits: 8_000},
		`{"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8,
			"type": "float"}, "input_activations": {"num_bits": 8}}}, "ignore": []}`: *fp8,
	} {
		s, err := ParseConfig("config.json", []byte(base+`, "quantization_config": `+text+"}"))
		switch {
		case err != nil:
			t.Errorf("%s: %v", text, err)
		case *s.Quantization != want:
			t.Errorf("%s: %+v, expected %+v", text, *s.Quantization, want)
		}
	}
}

func TestConfigMistakes(t *testing.T) {
	base := strings.TrimSuffix(configs["meta-llama/Llama-3.1-70B"], "}")
	for text, want := range map[string]string{
		"[1]":                                "c.json: ",
		"null":                               "c.json: no object; expected the JSON object",
		"{}":                                 "c.json: num_hidden_layers: found nothing; expected a number",
		base + `, "a":`:                      "c.json: unexpected EOF",
		`{"n_layer": "x"}`:                   `n_layer: found x; expected a whole number`,
		base + `, "num_hidden_layers": 1e9}`: "layers is 1000000000; expected 1 to 1000",
		base + `, "head_dim": -1}`:           "head_dim: found -1",
		base + `, "tie_word_embeddings": 3}`: "tie_word_embeddings: found 3; expected true",
		base + `, "layer_types": ["linear_attention"]}`:                        "layer_types[0]: found linear_attention",
		base + `, "rope_scaling": {"type": "linear", "factor": 1e300}}`:        "rope_scaling.factor: found 1e+300",
		base + `, "quantization_config": {"quant_method": "magic"}}`:           "quantization_config.quant_method: found magic",
		base + `, "quantization_config": {"quant_method": "awq"}}`:             "quantization_config.bits: found nothing",
		base + `, "quantization_config": {"quant_method": "awq", "bits": 40}}`: "quantization_config.bits: found 40",
		base + `, "num_local_experts": 8}`:                                     "num_experts_per_tok: found nothing",
		strings.Repeat(" ", MaxConfigBytes+1):                                  "a model's config.json of at most",
		base + `, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights":
			{"num_bits": 4, "type": "int"}}}, "ignore": ["re:("]}}`: `quantization_config.ignore: found re:(`,
	} {
		if _, err := ParseConfig("c.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v, expected %s", text, err, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, text := range configs {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseConfig("config.json", text)
		if err != nil {
			return
		}
		if s.Check() != nil || s.Params() <= 0 || s.KVBytesPerTokenRank(BF16, 8) <= 0 || s.PairFLOP() <= 0 {
			t.Fatalf("%+v: %v", s, s.Check())
		}
		if q := s.Quantization; q != nil && q.Bytes(1<<20) <= 0 {
			t.Fatalf("weights in %+v", q)
		}
	})
}
