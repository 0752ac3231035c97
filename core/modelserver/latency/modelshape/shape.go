package modelshape

import "fmt"

// Shape holds the properties of a model that decide its memory and its arithmetic: the fields of its config.json under
// shorter names.
type Shape struct {
	Name    string // as on the Hugging Face hub
	Layers  int
	Hidden  int
	Heads   int
	KVHeads int
	HeadDim int
	FFN     int // intermediate size of a dense layer; three matrices (SwiGLU)
	Vocab   int
	Tied    bool // input embedding and output head share one matrix
	// MaxModelLen is the longest context in tokens.
	MaxModelLen int

	// Mixture of experts; Experts 0 is a dense model.
	Experts, ActiveExperts, ExpertFFN int
	SharedFFN                         int // intermediate size of experts that every token visits
	DenseLayers                       int // leading layers without experts

	// WindowLayers attend to the last Window tokens only; their KV cache does
	// not grow with the context.
	WindowLayers, Window int

	// MLA, if its Latent is set, replaces grouped-query attention.
	MLA MLA

	// Quantization is the storage format of the published weights; nil is bfloat16.
	Quantization *Quantization
	// FourBitKeeps are the parts that four-bit versions of the model leave in 16 bits.
	FourBitKeeps Parts
}

// MLA holds the dimensions of DeepSeek's multi-head latent attention (2405.04434). The KV cache has one latent and one
// rotary key per token and layer, for all heads. Every tensor parallel rank keeps all of it.
type MLA struct {
	QueryLatent int // rank of the query's projection; 0 is a projection without latent
	Latent      int // elements of the cached latent, kv_lora_rank
	Rope        int // elements of the rotary key and of its part of a query
	Nope, Value int // elements of one head's other key part and of its value, decompressed
}

// AttentionParams returns the number of parameters of attention's matrices, over all layers.
func (s *Shape) AttentionParams() int64 {
	hidden, heads, layers := int64(s.Hidden), int64(s.Heads), int64(s.Layers)
	if m := s.MLA; m.Latent > 0 {
		query := heads * int64(m.Nope+m.Rope)
		n := hidden*int64(m.Latent+m.Rope) + int64(m.Latent)*heads*int64(m.Nope+m.Value) + heads*int64(m.Value)*hidden
		if m.QueryLatent > 0 {
			return layers * (n + int64(m.QueryLatent)*(hidden+query))
		}
		return layers * (n + hidden*query)
	}
	return layers * hidden * 2 * (heads + int64(s.KVHeads)) * int64(s.HeadDim)
}

// FeedForwardParams returns the number of matrix parameters beside attention that every token visits, over all layers:
// dense layers, shared experts and routers.
func (s *Shape) FeedForwardParams() int64 {
	matrix := 3 * int64(s.Hidden)
	if s.Experts == 0 {
		return int64(s.Layers) * matrix * int64(s.FFN)
	}
	return int64(s.DenseLayers)*matrix*int64(s.FFN) +
		s.ExpertLayers()*(matrix*int64(s.SharedFFN)+int64(s.Hidden)*int64(s.Experts))
}

// ExpertParams returns the number of matrix parameters of one expert of one layer.
func (s *Shape) ExpertParams() int64 { return 3 * int64(s.Hidden) * int64(s.ExpertFFN) }

// DenseParams returns the number of matrix parameters that every token visits, over all layers, without embedding and
// output head.
func (s *Shape) DenseParams() int64 { return s.AttentionParams() + s.FeedForwardParams() }

// ExpertLayers returns the number of layers with experts.
func (s *Shape) ExpertLayers() int64 {
	if s.Experts == 0 {
		return 0
	}
	return int64(s.Layers - s.DenseLayers)
}

// HeadParams returns the number of parameters of the output head.
func (s *Shape) HeadParams() int64 { return int64(s.Hidden) * int64(s.Vocab) }

// Params returns the number of parameters, with embedding and output head. It leaves out norms and biases (below 0.1
// %).
func (s *Shape) Params() int64 {
	n := s.DenseParams() + s.ExpertLayers()*int64(s.Experts)*s.ExpertParams() + s.HeadParams()
	if !s.Tied {
		n += s.HeadParams()
	}
	return n
}

// TokenParams returns the number of matrix parameters in the layers that one token is multiplied with, without the
// output head.
func (s *Shape) TokenParams() int64 {
	return s.DenseParams() + s.ExpertLayers()*int64(s.ActiveExperts)*s.ExpertParams()
}

// PairFLOP returns the arithmetic of attention for one query token of a prompt and one key token, over all layers: a
// multiply and an add for the score, and the same for the value. It leaves out windowed layers, whose part does not
// grow. MLA computes prompts with decompressed keys and values.
func (s *Shape) PairFLOP() int64 {
	each := 2 * s.HeadDim
	if s.MLA.Latent > 0 {
		each = s.MLA.Nope + s.MLA.Rope + s.MLA.Value
	}
	return 2 * int64(s.Layers-s.WindowLayers) * int64(s.Heads*each)
}

// DecodePairFLOP is PairFLOP for the query of a decoded token. MLA multiplies every head's query with the latents,
// whose projections are absorbed into the query's and the output's.
func (s *Shape) DecodePairFLOP() int64 {
	if s.MLA.Latent > 0 {
		return 2 * int64(s.Layers-s.WindowLayers) * int64(s.Heads*(2*s.MLA.Latent+s.MLA.Rope))
	}
	return s.PairFLOP()
}

// KVBytesPerToken returns the size of one token in the KV cache over all ranks together, keys and values of all layers:
// 320 KiB for a 70B Llama in 16 bits, so 640 MiB for 2,048 tokens.
func (s *Shape) KVBytesPerToken(kv DType) int64 {
	layers := int64(s.Layers - s.WindowLayers)
	if s.MLA.Latent > 0 {
		return layers * int64(s.MLA.Latent+s.MLA.Rope) * int64(kv.Bits()) / 8
	}
	return layers * 2 * int64(s.KVHeads*s.HeadDim) * int64(kv.Bits()) / 8
}

// KVBytesPerTokenRank returns one rank's share of KVBytesPerToken. Ranks beyond the number of KV heads hold copies.
func (s *Shape) KVBytesPerTokenRank(kv DType, tp int) int64 {
	if s.MLA.Latent > 0 {
		return s.KVBytesPerToken(kv)
	}
	heads := max(1, (s.KVHeads+tp-1)/tp)
	return s.KVBytesPerToken(kv) / int64(s.KVHeads) * int64(heads)
}

// Check returns an error about an invalid shape in a user's file.
func (s *Shape) Check() error {
	fields := []struct {
		name      string
		value     int
		low, high int
	}{
		{"layers", s.Layers, 1, 1000}, {"hidden", s.Hidden, 1, 1 << 17}, {"heads", s.Heads, 1, 4096},
		{"kvHeads", s.KVHeads, 1, 4096},
		{"headDim", s.HeadDim, 1, 4096}, {"ffn", s.FFN, 0, 1 << 20}, {"vocab", s.Vocab, 1, 1 << 22},
		{"maxModelLen", s.MaxModelLen, 1, 1 << 30},
		{"experts", s.Experts, 0, 4096}, {"activeExperts", s.ActiveExperts, 0, s.Experts},
		{"expertFFN", s.ExpertFFN, 0, 1 << 20},
		{"sharedFFN", s.SharedFFN, 0, 1 << 20}, {"denseLayers", s.DenseLayers, 0, s.Layers},
		{"windowLayers", s.WindowLayers, 0, s.Layers - 1},
		{"window", s.Window, 0, 1 << 30}, {"mla.queryLatent", s.MLA.QueryLatent, 0, 1 << 17},
		{"mla.latent", s.MLA.Latent, 0, 1 << 17}, {"mla.rope", s.MLA.Rope, 0, 4096},
		{"mla.nope", s.MLA.Nope, 0, 4096}, {"mla.value", s.MLA.Value, 0, 4096},
	}
	for _, f := range fields {
		if f.value < f.low || f.value > f.high {
			return fmt.Errorf("model %q: %s is %d; expected %d to %d", s.Name, f.name, f.value, f.low, f.high)
		}
	}
	if s.Experts == 0 && s.FFN == 0 {
		return fmt.Errorf("model %q: ffn is 0 and there are no experts; give one of them", s.Name)
	}
	if s.Experts > 0 && (s.ActiveExperts == 0 || s.ExpertFFN == 0) {
		return fmt.Errorf("model %q: experts is %d, so activeExperts and expertFFN must be above 0", s.Name, s.Experts)
	}
	return nil
}
