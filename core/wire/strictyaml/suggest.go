package strictyaml

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// DidYouMean returns a hint about an unknown word, or "" where no known word is similar.
func DidYouMean(word string, known []string) string {
	if guess := nearest(word, known, min(max(2, len(word)/3), len(word)-1)); guess != "" {
		return "did you mean " + strconv.Quote(guess) + "?"
	}
	return ""
}

// Slip returns the known word for a probable typing error, or "". It is stricter than DidYouMean, because other words
// than the known ones are right, too.
func Slip(word string, known []string) string {
	guess := nearest(word, known, min(2, len(word)/4))
	if guess != "" && guess[0] != word[0] { // people rarely get the first letter wrong
		return ""
	}
	return guess
}

// nearest returns the known word with the smallest distance, at most most, or "".
func nearest(word string, known []string, most int) string {
	best, bestDistance := "", most+1
	for _, k := range known {
		if d := Distance(word, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// fold removes differences in case, dashes and underscores.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
}

// Distance returns the number of letters to insert, drop, change or swap with their neighbour to turn one word into the
// other. It ignores case, dashes and underscores.
func Distance(a, b string) int {
	a, b = fold(a), fold(b)
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		older := before
		before, row = row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(before[j]+1, row[j-1]+1, before[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// homes returns the places in a struct where a field of this name belongs. It does not search a type inside itself
// again.
func homes(name string, root reflect.Type) []string {
	var out []string
	var walk func(t reflect.Type, path string)
	var within []reflect.Type
	walk = func(t reflect.Type, path string) {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch {
		case t.Kind() == reflect.Slice:
			walk(t.Elem(), path+"[]")
		case t.Kind() == reflect.Struct && !slices.Contains(within, t):
			within = append(within, t)
			for _, f := range Fields(t) {
				if f.Name == name {
					out = append(out, strings.TrimPrefix(path+"."+f.Name, "."))
				}
				walk(f.Type, path+"."+f.Name)
			}
			within = within[:len(within)-1]
		}
	}
	walk(root, "")
	slices.Sort(out)
	return out
}
