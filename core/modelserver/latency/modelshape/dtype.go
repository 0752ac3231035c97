package modelshape

import (
	"fmt"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// DType is the number type of arithmetic or of the KV cache.
type DType uint8

// The number types that accelerators have rates for.
const (
	BF16 DType = iota // float16 has the same size and rate
	FP8
	INT8
	FP4
	FP32
)

// Bits returns the width of one number.
func (t DType) Bits() int { return [...]int{16, 8, 8, 4, 32}[t] }

// String returns the name in vLLM's spelling.
func (t DType) String() string { return [...]string{"bfloat16", "fp8", "int8", "fp4", "float32"}[t] }

// ParseDType parses the values of vLLM's --dtype and --kv-cache-dtype. auto and the empty text are bfloat16.
func ParseDType(text string) (DType, error) {
	switch strings.ToLower(text) {
	case "", "auto", "bfloat16", "bf16", "float16", "fp16", "half":
		return BF16, nil
	case "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc":
		return FP8, nil
	case "int8":
		return INT8, nil
	case "float32", "float", "fp32":
		return FP32, nil
	}
	return 0, fmt.Errorf("dtype %q is unknown; expected auto, bfloat16, float16, float32, fp8 or int8", text)
}

// Quantization is the storage format of weights, and the type in which they are multiplied.
type Quantization struct {
	Name    string
	Compute DType
	// MilliBits is thousandths of a bit per weight, scales included.
	MilliBits int64
	// Unquantized are the parts of the model that stay in 16 bits.
	Unquantized Parts
}

// Parts is a set of the parts of a model whose matrices have one format.
type Parts uint8

// The parts. FeedForward has the matrices that every token visits beside attention: dense layers, shared experts and
// routers. Embedding and output head are in no part; they have 16 bits.
const (
	Attention Parts = 1 << iota
	FeedForward
	Experts
)

// Of returns the format of one part.
func (q Quantization) Of(part Parts) Quantization {
	if q.Unquantized&part != 0 {
		return quantizations[0]
	}
	return q
}

// The quantizations that document 003's guide and vLLM's flags name. Four-bit formats have a 16-bit scale and, if
// asymmetric, a 4-bit zero for each group of 128 weights (AWQ, GPTQ), a 16-bit scale for each 32 (INT4, as
// compressed-tensors packs it), or an 8-bit scale for each 32 (MXFP4) or 16 (NVFP4).
var quantizations = []Quantization{
	{Compute: BF16, MilliBits: 16_000},
	{Name: "fp8", Compute: FP8, MilliBits: 8_000},
	{Name: "int8", Compute: INT8, MilliBits: 8_000},
	{Name: "awq", Compute: BF16, MilliBits: 4_156},
	{Name: "gptq", Compute: BF16, MilliBits: 4_156},
	{Name: "int4", Compute: BF16, MilliBits: 4_500},
	{Name: "mxfp4", Compute: BF16, MilliBits: 4_250},
	{Name: "nvfp4", Compute: FP4, MilliBits: 4_500},
}

var quantizationAliases = map[string]string{
	"none": "", "auto": "", "bf16": "", "awq_marlin": "awq", "gptq_marlin": "gptq", "compressed-tensors": "int8",
	"fbgemm_fp8": "fp8", "modelopt": "fp8", "modelopt_fp4": "nvfp4", "fp4": "nvfp4",
}

// ParseQuantization parses the values of vLLM's --quantization.
func ParseQuantization(name string) (Quantization, error) {
	name = strings.ToLower(name)
	if alias, ok := quantizationAliases[name]; ok {
		name = alias
	}
	for _, q := range quantizations {
		if q.Name == name {
			return q, nil
		}
	}
	return Quantization{}, fmt.Errorf("quantization %q is unknown; expected none, fp8, int8, awq, gptq, int4, mxfp4 "+
		"or nvfp4", name)
}

// Weights returns the format of the model's weights with a value of vLLM's --quantization. The empty text and
// compressed-tensors, which holds any format, are the published one. Another format leaves out the same parts as the
// model's published versions in that format.
func (s *Shape) Weights(quantization string) (Quantization, error) {
	name := strings.ToLower(quantization)
	if s.Quantization != nil && (name == "" || name == "compressed-tensors") {
		return *s.Quantization, nil
	}
	q, err := ParseQuantization(name)
	switch {
	case s.Quantization != nil && s.Quantization.Name == q.Name:
		return *s.Quantization, err
	case q.MilliBits < 8_000:
		q.Unquantized = s.FourBitKeeps
	}
	return q, err
}

// Bytes returns the size of n weights.
func (q Quantization) Bytes(n int64) int64 { return machine.MulDivUp(n, q.MilliBits, 8000) }
