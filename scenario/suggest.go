package scenario

import (
	"reflect"
	"slices"
	"strings"
)

// nearest is the known word that a person most likely meant, or "".
func nearest(word string, known []string) string {
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(fold(word), fold(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// fold takes away what people vary: case, dashes and underscores.
func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
}

// distance is the number of letters to insert, drop, change or swap with
// their neighbour to get from one word to the other.
func distance(a, b string) int {
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

// homes lists where in a scenario a field of this name belongs.
func homes(name string) []string {
	var out []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		switch {
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			walk(t.Elem(), path+"[]")
		case isSection(t):
			for _, f := range fieldsOf(t) {
				if f.name == name {
					out = append(out, strings.TrimPrefix(path+"."+f.name, "."))
				}
				walk(t.Field(f.index).Type, path+"."+f.name)
			}
		}
	}
	walk(reflect.TypeFor[Scenario](), "")
	slices.Sort(out)
	return out
}
