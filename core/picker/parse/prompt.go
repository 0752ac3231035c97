package parse

import (
	"encoding/json"
	"errors"
	"math"

	"github.com/cespare/xxhash/v2"
)

// stringOrArray reads what a completions prompt or an embeddings input may be:
// a string, an array of strings, or an array of token ids.
func stringOrArray(v json.RawMessage) (text string, texts []string, ids []uint32, err error) {
	if isNull(v) {
		if len(v) == 0 {
			return "", nil, nil, nil
		}
		return "", nil, nil, errors.New("must be a string or an array")
	}
	switch v[0] {
	case '"':
		err = json.Unmarshal(v, &text)
		return
	case '[':
		var raw []json.RawMessage
		if err = json.Unmarshal(v, &raw); err != nil || len(raw) == 0 {
			return
		}
		if raw[0][0] == '"' {
			texts = make([]string, len(raw))
			err = json.Unmarshal(v, &texts)
			for _, r := range raw {
				if r[0] != '"' {
					err = errors.New("mixed types in array")
				}
			}
			return
		}
		var fs []float64
		if err = json.Unmarshal(v, &fs); err != nil {
			return
		}
		ids, err = tokenIDs(fs, raw)
		return
	}
	err = errors.New("must be a string or an array")
	return
}

// tokenIDs checks that numbers are whole and fit 32 bits.
func tokenIDs(fs []float64, raw []json.RawMessage) ([]uint32, error) {
	ids := make([]uint32, len(fs))
	for i, f := range fs {
		if f < 0 || f > math.MaxUint32 || f != math.Trunc(f) || (raw != nil && isNull(raw[i])) {
			return nil, errors.New("not a token id")
		}
		ids[i] = uint32(f)
	}
	return ids, nil
}

// pad brings a text to a whole number of estimated tokens, so that what
// follows begins on a token's boundary.
func pad(b []byte) []byte {
	for len(b)%bytesPerToken != 0 {
		b = append(b, 0)
	}
	return b
}

// asset counts an image, sound or film, and lets it stand in the estimated
// prompt.
func (b *Body) asset(out []byte, content string, tokens int) []byte {
	b.Multimodal++
	b.Assets = append(b.Assets, Asset{xxhash.Sum64String(content), tokens})
	return appendAsset(out, content, tokens)
}

// appendAsset stands for an image, sound or film in the estimated prompt:
// its content's hash, repeated once per token that it is worth.
func appendAsset(b []byte, content string, tokens int) []byte {
	b = pad(b)
	h := fnv32(content)
	for range tokens {
		b = append(b, byte(h), byte(h>>8), byte(h>>16), byte(h>>24))
	}
	return b
}

// imageTokens is what an image of unknown size counts: 640 by 360 pixels at
// one token per 1,024 pixels.
const imageTokens = 640 * 360 / 1024

// videoTokens is what a film of unknown size counts: ten seconds at two frames
// a second, each like an image.
const videoTokens = imageTokens * 10 * 2

func assetTokens(bytes int) int { return max(1, (bytes+bytesPerToken-1)/bytesPerToken) }

func fnv32(s string) uint32 {
	h := uint32(2166136261)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}
