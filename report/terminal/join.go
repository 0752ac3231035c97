package terminal

import "strings"

// Texts returns a text for each of n things, such as the name of each entry of a list.
func Texts(n int, of func(i int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = of(i)
	}
	return out
}

// Join returns the texts of n things, separated by commas.
func Join(n int, of func(i int) string) string { return strings.Join(Texts(n, of), ", ") }
