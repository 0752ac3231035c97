package parse

import (
	"encoding/json"
	"errors"
	"math"
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
