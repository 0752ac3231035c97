package structured

import (
	"encoding/json"
	"slices"
)

// Close completes a truncated JSON value: open strings, arrays and objects end where the text does, and a member, a
// number or a word that has only begun is removed. A text that is not the beginning of a value becomes an empty object.
func Close(text []byte) []byte {
	var open []byte // the missing brackets, outermost first
	whole := 0      // end of the text without elements that have only begun
	inString, key := false, false
	escape := -1 // start of the last escape
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			escape = i
			i++
		case inString && c == '"':
			if inString = false; !key {
				whole = i + 1
			}
		case inString:
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			open = append(open, c+2) // the bracket that closes it
			whole, key = i+1, c == '{'
		case c == '}' || c == ']':
			if len(open) == 0 {
				return []byte("{}")
			}
			open = open[:len(open)-1]
			whole, key = i+1, false
		case c == ',':
			whole = i
			key = len(open) > 0 && open[len(open)-1] == '}'
		case c == ':':
			key = false
		}
	}
	slices.Reverse(open)
	ends := [][]byte{text, text[:whole]}
	if inString && !key {
		ends = [][]byte{append(slices.Clip(text), '"'), text[:whole]}
		if escape >= 0 {
			ends = slices.Insert(ends, 1, append(slices.Clip(text[:escape]), '"'))
		}
	}
	for _, end := range ends {
		if out := slices.Concat(end, open); json.Valid(out) {
			return out
		}
	}
	return []byte("{}")
}
