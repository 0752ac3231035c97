package modelshape

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
)

// MaxConfigBytes limits the size of a config.json.
const MaxConfigBytes = 1 << 20

// ParseConfig returns the shape of a model from the text of its config.json, as transformers writes it. Errors name the
// file and the field.
func ParseConfig(file string, text []byte) (Shape, error) {
	if len(text) > MaxConfigBytes {
		return Shape{}, fmt.Errorf("%s: %d bytes; expected a model's config.json of at most %d", file, len(text),
			MaxConfigBytes)
	}
	c := &config{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&c.fields); err != nil || c.fields == nil {
		return Shape{}, fmt.Errorf("%s: %w; expected the JSON object of a model's config.json", file,
			cmp.Or(err, errors.New("no object")))
	}
	// The language model of a multimodal one.
	c.outer = c.fields
	for _, name := range []string{"text_config", "llm_config", "language_config"} {
		if inner, ok := c.fields[name].(map[string]any); ok {
			c.fields, c.inside = inner, name+"."
			break
		}
	}
	s := c.shape()
	if err := errors.Join(c.problems...); err != nil {
		return Shape{}, fmt.Errorf("%s: %w", file, err)
	}
	if err := s.Check(); err != nil {
		return Shape{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// config is a config.json while it is read. Fields of the language model come before those of the whole.
type config struct {
	fields, outer map[string]any
	inside        string // the path of fields
	problems      []error
}

func (c *config) bad(field string, found any, expected string) {
	if len(c.problems) < 10 {
		c.problems = append(c.problems, fmt.Errorf("%s%s: found %.80s; expected %s", c.inside, field,
			fmt.Sprint(found), expected))
	}
}

// get returns the first of the fields that is there and not null.
func (c *config) get(names ...string) (any, string) {
	for _, fields := range []map[string]any{c.fields, c.outer} {
		for _, name := range names {
			if v := fields[name]; v != nil {
				return v, name
			}
		}
	}
	return nil, names[0]
}

const most = 1 << 30

// optional returns a whole number, 0 if no such field is there.
func (c *config) optional(names ...string) int {
	v, name := c.get(names...)
	if v == nil {
		return 0
	}
	n, ok := whole(v)
	if !ok {
		c.bad(name, v, fmt.Sprintf("a whole number from 0 to %d", most))
	}
	return n
}

func whole(v any) (int, bool) {
	number, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := number.Float64()
	if err != nil || !(f >= 0 && f <= most) || f != math.Trunc(f) {
		return 0, false
	}
	return int(f), true
}

func (c *config) required(names ...string) int {
	v, name := c.get(names...)
	if v == nil {
		c.bad(name, "nothing", "a number, as in the config.json of a transformer")
		return 1
	}
	return c.optional(names...)
}

func (c *config) text(name string) string {
	v, _ := c.get(name)
	text, _ := v.(string)
	return text
}

// list returns the texts of a list.
func (c *config) list(name string) (out []string) {
	v, _ := c.get(name)
	list, _ := v.([]any)
	for _, x := range list {
		text, _ := x.(string)
		out = append(out, text)
	}
	return out
}

// inner returns the fields of an object; nil if it is not there.
func (c *config) inner(name string) *config {
	v, _ := c.get(name)
	fields, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	return &config{fields: fields, inside: name + "."}
}

func (c *config) shape() Shape {
	s := Shape{Name: c.text("_name_or_path"), Layers: c.required("num_hidden_layers", "n_layer", "num_layers"),
		Hidden: c.required("hidden_size", "n_embd", "d_model"), Heads: c.required("num_attention_heads", "n_head"),
		Vocab: c.required("vocab_size"), FFN: c.optional("intermediate_size", "ffn_dim", "n_inner"),
		KVHeads: c.optional("num_key_value_heads", "n_head_kv"), HeadDim: c.optional("head_dim")}
	kind := c.text("model_type")
	s.KVHeads = cmp.Or(s.KVHeads, s.Heads)
	s.HeadDim = cmp.Or(s.HeadDim, s.Hidden/max(s.Heads, 1))
	if v, name := c.get("tie_word_embeddings"); v == nil { // transformers leaves out a model's own default
		s.Tied = strings.HasPrefix(kind, "gemma") || strings.HasPrefix(kind, "cohere") || kind == "gpt2"
	} else if tied, ok := v.(bool); ok {
		s.Tied = tied
	} else {
		c.bad(name, v, "true or false")
	}
	if latent := c.optional("kv_lora_rank"); latent > 0 {
		s.MLA = MLA{QueryLatent: c.optional("q_lora_rank"), Latent: latent, Rope: c.required("qk_rope_head_dim"),
			Nope: c.required("qk_nope_head_dim"), Value: c.required("v_head_dim")}
	}
	s.MaxModelLen = c.context(kind)
	c.experts(&s, kind)
	c.windows(&s)
	c.quantization(&s)
	return s
}

// context returns the longest context, as vLLM derives it.
func (c *config) context(kind string) int {
	n := c.required("max_position_embeddings", "n_positions", "seq_length", "model_max_length", "max_seq_len")
	rope := c.inner("rope_scaling")
	if rope == nil {
		if rope = c.inner("rope_parameters"); rope == nil {
			return n
		}
	}
	factor := 1.0
	if number, ok := rope.fields["factor"].(json.Number); ok {
		factor, _ = number.Float64()
	}
	method := rope.text("rope_type") + rope.text("type") // one of them, or both
	switch {
	case strings.HasPrefix(kind, "gemma3"): // the figure includes the factor
		return n
	case strings.Contains(method, "yarn"):
		if v := rope.optional("original_max_position_embeddings"); v > 0 {
			n = v
		}
	case !strings.Contains(method, "linear") && !strings.Contains(method, "dynamic"):
		return n
	}
	c.problems = append(c.problems, rope.problems...)
	if scaled := float64(n) * factor; scaled >= 1 && scaled <= most {
		return int(scaled)
	}
	c.bad("rope_scaling.factor", factor, "a factor that gives a context of 1 to 2^30 tokens")
	return n
}

// experts sets the mixture of experts.
func (c *config) experts(s *Shape, kind string) {
	s.Experts = c.optional("num_local_experts", "n_routed_experts", "num_experts")
	if s.Experts == 0 {
		return
	}
	s.ActiveExperts = c.required("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk")
	if s.ExpertFFN = c.optional("moe_intermediate_size"); s.ExpertFFN == 0 {
		// The families that have only experts give their size here.
		s.ExpertFFN = s.FFN
	}
	s.SharedFFN = c.optional("shared_expert_intermediate_size", "shared_intermediate_size")
	if n := c.optional("n_shared_experts", "num_shared_experts"); s.SharedFFN == 0 {
		s.SharedFFN = n * s.ExpertFFN
	}
	every := c.optional("decoder_sparse_step", "interleave_moe_layer_step")
	if strings.HasPrefix(kind, "llama4") {
		s.FFN, s.SharedFFN = c.optional("intermediate_size_mlp"), s.FFN
	}
	if v, _ := c.get("moe_layer_freq"); v != nil {
		if list, ok := v.([]any); ok { // one number for each layer
			for _, x := range list {
				if n, _ := whole(x); n == 0 {
					s.DenseLayers++
				}
			}
			return
		}
		every = c.optional("moe_layer_freq")
	}
	s.DenseLayers = c.optional("first_k_dense_replace")
	if v, _ := c.get("mlp_only_layers"); v != nil {
		list, _ := v.([]any)
		s.DenseLayers += len(list)
	}
	if every > 1 {
		s.DenseLayers = s.Layers - s.Layers/every
	}
	if s.DenseLayers == 0 {
		s.FFN = 0
	}
}

// windows sets the layers that attend to the last tokens only. If all layers do, the KV cache of a sequence is counted
// whole.
func (c *config) windows(s *Shape) {
	kinds := c.list("layer_types")
	if i := slices.IndexFunc(kinds, func(k string) bool {
		return k != "full_attention" && k != "sliding_attention" && k != "chunked_attention"
	}); i >= 0 {
		c.bad(fmt.Sprintf("layer_types[%d]", i), kinds[i], "full_attention, sliding_attention or chunked_attention: "+
			"layers without keys and values are not simulated")
	}
	if v, name := c.get("linear_attn_config", "full_attention_interval", "mamba_d_state", "mamba_num_heads",
		"ssm_state_size"); v != nil {
		c.bad(name, v, "a model without it: layers without keys and values are not simulated")
	}
	use, _ := c.get("use_sliding_window")
	if s.Window = c.optional("sliding_window"); s.Window == 0 || use == false {
		s.Window = 0
		return
	}
	pattern := c.optional("sliding_window_pattern")
	switch full := c.optional("max_window_layers"); {
	case len(kinds) > 0:
		for _, k := range kinds {
			if k == "sliding_attention" {
				s.WindowLayers++
			}
		}
	case pattern > 1:
		s.WindowLayers = s.Layers - s.Layers/pattern
	case full > 0 && full < s.Layers:
		s.WindowLayers = s.Layers - full
	}
	if s.WindowLayers == 0 {
		s.Window = 0
	}
}

// quantization sets the format of the weights.
func (c *config) quantization(s *Shape) {
	q := c.inner("quantization_config")
	if q == nil {
		if q = c.inner("compression_config"); q == nil {
			return
		}
	}
	method := strings.ToLower(q.text("quant_method"))
	method = cmp.Or(method, "modelopt")
	format, ignore := Quantization{Name: method}, "modules_to_not_convert"
	bits := func(q *config) {
		width := q.required("bits", "num_bits", "w_bit")
		format.Compute, format.MilliBits = BF16, int64(min(width, 16))*1000
		if size := q.optional("group_size", "q_group_size"); size > 0 {
			format.MilliBits += 16_000 / int64(size)
			if symmetric, named := q.fields["symmetric"].(bool); named && !symmetric || method == "awq" {
				format.MilliBits += int64(min(width, 16)) * 1000 / int64(size)
			}
		}
		if width < 2 || width > 8 {
			q.bad("bits", width, "2 to 8")
		}
	}
	switch method {
	case "fp8", "fbgemm_fp8":
		format = *fp8
		if q.list(ignore) == nil {
			ignore = "ignored_layers"
		}
	case "mxfp4":
		format = *mxfp4
		format.Unquantized = 0
	case "awq", "gptq":
		if v, ok := q.fields["group_size"].(json.Number); ok && strings.HasPrefix(v.String(), "-") {
			delete(q.fields, "group_size") // one group for each row
		}
		bits(q)
	case "compressed-tensors":
		ignore = "ignore"
		groups := q.inner("config_groups")
		if groups == nil {
			q.bad("config_groups", "nothing", "the formats of the weights")
			break
		}
		// The experts' group, if there are several, is the first.
		names := make([]string, 0, len(groups.fields))
		for name := range groups.fields {
			names = append(names, name)
		}
		slices.Sort(names)
		var group, weights *config
		if len(names) > 0 {
			if group = groups.inner(names[0]); group != nil {
				weights = group.inner("weights")
			}
		}
		if weights == nil {
			q.bad("config_groups", "no group with weights", "the format of the weights")
			break
		}
		bits(weights)
		activations := group.inner("input_activations")
		switch width, kind := weights.optional("num_bits"), weights.text("type"); {
		case kind == "float" && width == 4:
			format.Name, format.MilliBits = "nvfp4", 4_500
			if strings.HasPrefix(group.text("format")+q.text("format"), "mxfp4") {
				format.Name, format.MilliBits = "mxfp4", 4_250
			}
			if activations != nil && activations.optional("num_bits") == 4 {
				format.Compute = FP4
			}
		case kind == "float":
			format.Name = "fp8"
			if activations != nil {
				format.Compute = FP8
			}
		case width == 8 && activations != nil:
			format.Name, format.Compute = "int8", INT8
		default:
			format.Name = fmt.Sprintf("int%d", width)
		}
		q.problems = append(q.problems, weights.problems...)
	case "modelopt":
		if ignore = "ignore"; q.list(ignore) == nil {
			ignore = "exclude_modules"
		}
		switch algorithm := strings.ToUpper(q.text("quant_algo")); {
		case strings.Contains(algorithm, "NVFP4"):
			format, _ = ParseQuantization("nvfp4")
		case strings.HasPrefix(algorithm, "FP8"):
			format = *fp8
		default:
			q.bad("quant_algo", algorithm, "NVFP4 or FP8")
		}
	default:
		q.bad("quant_method", method, "fp8, fbgemm_fp8, mxfp4, awq, gptq, compressed-tensors or modelopt")
	}
	if ignored := q.list(ignore); len(ignored) > 10_000 {
		q.bad(ignore, len(ignored), "at most 10000 modules")
	} else {
		format.Unquantized = q.unquantized(s, ignored)
	}
	for _, err := range q.problems {
		c.problems = append(c.problems, fmt.Errorf("%s%w", c.inside, err))
	}
	s.Quantization = &format
}

// unquantized returns the parts of the model whose largest matrix is among the ignored modules: names, their
// beginnings, patterns with * or, after re:, regular expressions.
func (c *config) unquantized(s *Shape, ignored []string) (parts Parts) {
	middle := fmt.Sprintf("model.layers.%d.", s.Layers/2)
	shared := []string{"mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj",
		"feed_forward.shared_expert.down_proj"}
	dense := []string{middle + "mlp.down_proj", middle + "feed_forward.down_proj"}
	switch {
	case s.Experts > 0 && s.SharedFFN > 0:
		dense = nil
		for _, name := range shared {
			dense = append(dense, middle+name)
		}
	case s.Experts > 0 && s.DenseLayers > 0:
		dense = []string{"model.layers.0.mlp.down_proj"}
	case s.Experts > 0: // its routers
		dense = []string{middle + "mlp.gate", middle + "mlp.router", middle + "block_sparse_moe.gate"}
	}
	ignores := c.ignores(ignored)
	for part, names := range map[Parts][]string{Attention: {middle + "self_attn.o_proj"}, FeedForward: dense,
		Experts: {middle + "mlp.experts.0.down_proj", middle + "block_sparse_moe.experts.0.w2"}} {
		if (part != Experts || s.Experts > 0) && slices.ContainsFunc(names, ignores) {
			parts |= part
		}
	}
	return parts
}

// ignores returns a function that reports whether one of the patterns covers a module of the language model.
func (c *config) ignores(patterns []string) func(name string) bool {
	var expressions []*regexp.Regexp
	var globs []string
	for _, pattern := range patterns {
		expression, isExpression := strings.CutPrefix(pattern, "re:")
		if !isExpression {
			globs = append(globs,
				strings.TrimPrefix(strings.TrimPrefix(pattern, "language_model."), "model.language_model."))
			continue
		}
		re, err := regexp.Compile("^(?:" + expression[:min(len(expression), 201)] + ")")
		if err != nil || len(expression) > 200 || len(expressions) == 100 {
			c.bad("ignore", pattern, "at most 100 regular expressions after re:, each of 200 characters")
			break
		}
		expressions = append(expressions, re)
	}
	return func(name string) bool {
		return slices.ContainsFunc(expressions, func(re *regexp.Regexp) bool {
			return re.MatchString(name) || re.MatchString("language_model."+name)
		}) || slices.ContainsFunc(globs, func(glob string) bool {
			for at := range len(name) + 1 { // the module, or one that it is a part of
				if at == len(name) || name[at] == '.' {
					if ok, _ := path.Match(glob, name[:at]); ok {
						return true
					}
				}
			}
			// AWQ's lists have parts of names.
			return !strings.Contains(glob, ".") && strings.Contains("."+name+".", "."+glob+".")
		})
	}
}
