package structured

import (
	"slices"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/machine"
)

// set is a set of characters, as pairs of first and last.
type set struct {
	pairs  []rune
	size   int
	escape bool // written into a JSON string
}

// Characters that are drawn before all others, so that texts are readable if the form leaves a choice.
var (
	readable  = []rune{'0', '9', 'A', 'Z', 'a', 'z'}
	printable = []rune{' ', '~'}
	scalar    = []rune{0, 0xD7FF, 0xE000, utf8.MaxRune}
)

// newSet returns a set to draw from; nil if the pairs, which are in order, contain no character.
func newSet(pairs []rune, escape bool) *set {
	for _, of := range [][]rune{readable, printable, scalar} {
		if both := overlap(pairs, of); len(both) > 0 {
			s := &set{pairs: both, escape: escape}
			for i := 0; i < len(both); i += 2 {
				s.size += int(both[i+1]-both[i]) + 1
			}
			return s
		}
	}
	return nil
}

func overlap(a, b []rune) []rune {
	var out []rune
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if low, high := max(a[i], b[j]), min(a[i+1], b[j+1]); low <= high {
			out = append(out, low, high)
		}
		if a[i+1] < b[j+1] {
			i += 2
		} else {
			j += 2
		}
	}
	return out
}

// normal sorts pairs, and joins adjacent ones.
func normal(pairs []rune) []rune {
	type pair [2]rune
	list := make([]pair, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, pair{pairs[i], pairs[i+1]})
	}
	slices.SortFunc(list, func(a, b pair) int { return int(a[0] - b[0]) })
	out := pairs[:0]
	for _, p := range list {
		if n := len(out); n > 0 && p[0] <= out[n-1]+1 {
			out[n-1] = max(out[n-1], p[1])
			continue
		}
		out = append(out, p[0], p[1])
	}
	return out
}

// others returns all characters outside the pairs, which are in order.
func others(pairs []rune) []rune {
	var out []rune
	next := rune(0)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] > next {
			out = append(out, next, pairs[i]-1)
		}
		next = pairs[i+1] + 1
	}
	if next <= utf8.MaxRune {
		out = append(out, next, utf8.MaxRune)
	}
	return out
}

func (s *set) append(b []byte, d *machine.Draw) []byte {
	n := d.Intn(s.size)
	for i := 0; ; i += 2 {
		count := int(s.pairs[i+1]-s.pairs[i]) + 1
		if n < count {
			r := s.pairs[i] + rune(n)
			if s.escape {
				return appendEscaped(b, r)
			}
			return utf8.AppendRune(b, r)
		}
		n -= count
	}
}

// appendEscaped appends a character in the encoding of a JSON string.
func appendEscaped(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r < ' ':
		return append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	}
	return utf8.AppendRune(b, r)
}
