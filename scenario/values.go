package scenario

import (
	"errors"
	"strconv"
)

// ModelLen is the length of a sequence in tokens, or AutoModelLen.
type ModelLen int

// AutoModelLen is the model's own longest sequence, or as much of it as the KV cache holds.
const AutoModelLen ModelLen = -1

// UnmarshalText reads auto or a whole number.
func (n *ModelLen) UnmarshalText(text []byte) error {
	if string(text) == "auto" || string(text) == "-1" {
		*n = AutoModelLen
		return nil
	}
	i, err := strconv.Atoi(string(text))
	if err != nil {
		return errors.New("not " + n.Expected())
	}
	*n = ModelLen(i)
	return nil
}

// Expected describes the field's values, for errors.
func (ModelLen) Expected() string { return "auto, or a whole number of tokens" }

// Range returns the length as both limits, and 1 for auto.
func (n ModelLen) Range() (low, high float64) {
	if n == AutoModelLen {
		n = 1
	}
	return float64(n), float64(n)
}
