package parse

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// VLLMHTTP reads vLLM's own /inference/v1/generate, whose prompt is token ids.
type VLLMHTTP struct{}

// Type returns the parser's name in the configuration.
func (VLLMHTTP) Type() string { return TypeVLLMHTTP }

// Claims reports whether the path ends in /inference/v1/generate.
func (VLLMHTTP) Claims(path string) bool { return hasSuffix(path, "inference/v1/generate") }

type wirePlaceholder struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

// Parse reads a request body.
func (VLLMHTTP) Parse(path string, raw []byte) (*Body, error) {
	if path = CleanPath(path); !strings.HasSuffix(path, "/inference/v1/generate") {
		return nil, fmt.Errorf("unsupported path: %s", path)
	}
	m, err := readObject(raw)
	if err != nil {
		return nil, err
	}
	b := &Body{Kind: Generate, Parser: TypeVLLMHTTP, raw: raw, MaxOutputTokens: -1}
	var req struct { // without a name, as in the real one's errors
		TokenIDs  []float64 `json:"token_ids"`
		CacheSalt string    `json:"cache_salt"`
		Features  *struct {
			MMHashes       map[string][]string          `json:"mm_hashes"`
			MMPlaceholders map[string][]wirePlaceholder `json:"mm_placeholders"`
		} `json:"features"`
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return nil, errors.New("invalid generate request: " + goNames.Replace(err.Error()))
	}
	b.CacheSalt = req.CacheSalt
	ids, err := tokenIDs(req.TokenIDs, nil)
	if err != nil {
		for i, f := range req.TokenIDs {
			if _, bad := tokenIDs([]float64{f}, nil); bad != nil {
				return nil, fmt.Errorf("invalid generate request: token_ids[%d]: invalid value %v", i, f)
			}
		}
	}
	if len(ids) == 0 {
		return nil, errors.New("invalid generate request: must have non-empty token_ids field")
	}
	b.Prompts = []Prompt{TokenPrompt(ids)}
	if req.Features != nil {
		for _, modality := range slices.Sorted(maps.Keys(req.Features.MMHashes)) {
			at := req.Features.MMPlaceholders[modality]
			for i, hash := range req.Features.MMHashes[modality] {
				if i < len(at) { // what has no place in the prompt is not there
					b.Multimodal++
					b.Assets = append(b.Assets,
						Asset{Hash: xxhash.Sum64String(hash), Tokens: max(0, min(at[i].Length, maxAssetTokens))})
				}
			}
		}
	}
	var sampling object
	if json.Unmarshal(m["sampling_params"], &sampling) == nil {
		b.MaxOutputTokens = sampling.limit("max_tokens")
	}
	b.Model = m.text("model")
	b.Stream = m.isTrue("stream")
	return b, nil
}

// Passthrough takes every path and looks into nothing.
type Passthrough struct{}

// Type returns the parser's name in the configuration.
func (Passthrough) Type() string { return TypePassthrough }

// Claims takes every path.
func (Passthrough) Claims(string) bool { return true }

// Parse keeps the bytes.
func (Passthrough) Parse(_ string, raw []byte) (*Body, error) {
	return &Body{Kind: Opaque, Parser: TypePassthrough, raw: raw, MaxOutputTokens: -1}, nil
}

// Usage finds no usage: the parser does not read responses.
func (Passthrough) Usage([]byte, bool) (Usage, bool) { return Usage{}, false }
