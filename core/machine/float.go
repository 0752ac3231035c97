package machine

import (
	"encoding/json"
	"strconv"
)

// Float is a number in a saved state. Its JSON form exists for infinities and NaN, too: a string.
type Float float64

// MarshalJSON writes infinities and NaN as strings, all other numbers as numbers.
func (f Float) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(f))
	if err != nil {
		return strconv.AppendQuote(nil, strconv.FormatFloat(float64(f), 'g', -1, 64)), nil
	}
	return text, nil
}

// UnmarshalJSON reads a number, or a string with one.
func (f *Float) UnmarshalJSON(text []byte) error {
	if len(text) > 1 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	v, err := strconv.ParseFloat(string(text), 64)
	*f = Float(v)
	return err
}
