package machine

import (
	"encoding/json"
	"strconv"
)

// Float is a number in a saved state: one that is infinite or no number at all
// has a JSON form, too.
type Float float64

// MarshalJSON writes it.
func (f Float) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(f))
	if err != nil {
		return strconv.AppendQuote(nil, strconv.FormatFloat(float64(f), 'g', -1, 64)), nil
	}
	return text, nil
}

// UnmarshalJSON reads it.
func (f *Float) UnmarshalJSON(text []byte) error {
	if len(text) > 1 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	v, err := strconv.ParseFloat(string(text), 64)
	*f = Float(v)
	return err
}
