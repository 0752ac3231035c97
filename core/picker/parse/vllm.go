package parse

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// VLLMHTTP reads vLLM's own /inference/v1/generate, whose prompt is token ids.
type VLLMHTTP struct{}

// Type is the parser's name in the configuration.
func (VLLMHTTP) Type() string { return TypeVLLMHTTP }

// Claims says whether the path ends in /inference/v1/generate.
func (VLLMHTTP) Claims(path string) bool { return hasSuffix(path, "/inference/v1/generate") }

// Parse reads a request body.
func (VLLMHTTP) Parse(path string, raw []byte) (*Body, error) {
	m, err := readObject(raw)
	if err != nil {
		return nil, err
	}
	b := &Body{Kind: Generate, Parser: TypeVLLMHTTP, Raw: raw, MaxOutputTokens: -1}
	if b.CacheSalt, err = m.optionalText("cache_salt"); err != nil {
		return nil, fmt.Errorf("invalid generate request: %w", err)
	}
	var fs []float64
	if v := m["token_ids"]; len(v) > 0 {
		if err := json.Unmarshal(v, &fs); err != nil {
			return nil, fmt.Errorf("invalid generate request: %w", err)
		}
	}
	ids, err := tokenIDs(fs, nil)
	if err != nil {
		for i, f := range fs {
			if _, bad := tokenIDs([]float64{f}, nil); bad != nil {
				return nil, fmt.Errorf("invalid generate request: token_ids[%d]: invalid value %v", i, f)
			}
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("invalid generate request: must have non-empty token_ids field")
	}
	b.Prompts = []Prompt{{Tokens: ids}}
	var features struct {
		Hashes map[string][]string `json:"mm_hashes"`
	}
	if v := m["features"]; !isNull(v) {
		if err := json.Unmarshal(v, &features); err != nil {
			return nil, fmt.Errorf("invalid generate request: %w", err)
		}
		for _, h := range features.Hashes {
			b.Multimodal += len(h)
			for _, one := range h {
				b.Assets = append(b.Assets, Asset{Hash: xxhash.Sum64String(one), Tokens: imageTokens})
			}
		}
	}
	var sampling object
	if json.Unmarshal(m["sampling_params"], &sampling) == nil {
		b.MaxOutputTokens = sampling.limit("max_tokens")
	}
	b.Model, _ = m.text("model")
	b.Stream = m.isTrue("stream")
	return b, nil
}

// Passthrough takes every path and looks into nothing.
type Passthrough struct{}

// Type is the parser's name in the configuration.
func (Passthrough) Type() string { return TypePassthrough }

// Claims takes every path.
func (Passthrough) Claims(string) bool { return true }

// Parse keeps the bytes.
func (Passthrough) Parse(_ string, raw []byte) (*Body, error) {
	return &Body{Kind: Opaque, Parser: TypePassthrough, Raw: raw, MaxOutputTokens: -1, SkipResponse: true}, nil
}

// Usage is never told.
func (Passthrough) Usage([]byte, bool) (Usage, bool) { return Usage{}, false }
