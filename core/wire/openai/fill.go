package openai

import (
	"strconv"
	"strings"
)

// Fill appends a JSON template in which it replaces each $ by one of the values, in order. It quotes strings and
// formats numbers and booleans as JSON. Bytes must be JSON already. Nil bytes, nil token ids and nil become null.
func Fill(b []byte, template string, values ...any) []byte {
	for _, v := range values {
		before, after, found := strings.Cut(template, "$")
		if !found {
			panic("openai.Fill: more values than places: " + template)
		}
		b, template = append(b, before...), after
		switch v := v.(type) {
		case nil:
			b = append(b, "null"...)
		case string:
			b = AppendString(b, v)
		case FinishReason:
			b = AppendString(b, string(v))
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case uint32:
			b = strconv.AppendUint(b, uint64(v), 10)
		case float64:
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		case bool:
			b = strconv.AppendBool(b, v)
		case []uint32:
			b = appendTokensOrNull(b, v)
		case []byte:
			b = AppendOrNull(b, v)
		default:
			panic("openai.Fill: a value of a type that it does not know: " + template)
		}
	}
	return append(b, template...)
}

// OrNull returns a text as a value for Fill, or nil where the text is empty.
func OrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// AppendStrings appends a list of texts.
func AppendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, s)
	}
	return append(b, ']')
}
