// Package header holds the header lines of a request or response, in the form in which all components exchange them.
package header

import (
	"maps"
	"slices"
	"strings"
)

// Header is one header line. Comparisons of names ignore case (RFC 9110, section 5.1). Components that speak HTTP/2 or
// ext_proc write names in lower case and use pseudo-headers (":path"). Components that speak HTTP/1 write them as
// net/http does.
type Header struct{ Name, Value string }

// List holds header lines in the order of their arrival. Of several lines with one name, the last counts.
type List []Header

// Of returns a list of alternating names and values.
func Of(namesAndValues ...string) List {
	l := make(List, 0, len(namesAndValues)/2)
	for pair := range slices.Chunk(namesAndValues, 2) {
		l = append(l, Header{pair[0], pair[1]})
	}
	return l
}

// FromMap returns a map's headers, sorted by name.
func FromMap(m map[string]string) List {
	l := make(List, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		l = append(l, Header{name, m[name]})
	}
	return l
}

// Lookup returns the last value under a name, and false where there is none.
func (l List) Lookup(name string) (string, bool) {
	for i := len(l) - 1; i >= 0; i-- {
		if n := l[i].Name; len(n) == len(name) && (n == name || strings.EqualFold(n, name)) {
			return l[i].Value, true
		}
	}
	return "", false
}

// Get returns the last value under a name, or "".
func (l List) Get(name string) string {
	v, _ := l.Lookup(name)
	return v
}

// Normalize returns the list with names in lower case and one value for each name: the last value, in the place of the
// first. It returns a list that is already in this form itself.
func (l List) Normalize() List {
	if l.normal() {
		return l[:len(l):len(l)]
	}
	out := make(List, 0, len(l))
	var at map[string]int
	if len(l) > few {
		at = make(map[string]int, len(l))
	}
	for _, h := range l {
		h.Name = strings.ToLower(h.Name)
		if i := out.place(at, h.Name); i >= 0 {
			out[i].Value = h.Value
			continue
		}
		if at != nil {
			at[h.Name] = len(out)
		}
		out = append(out, h)
	}
	return out
}

// normal reports whether a list already has the form that Normalize makes, where a fast check can show that.
func (l List) normal() bool {
	if len(l) > few {
		return false
	}
	for i := range l {
		for k := range len(l[i].Name) {
			if c := l[i].Name[k]; 'A' <= c && c <= 'Z' || c > '~' {
				return false
			}
		}
		if l[:i].place(nil, l[i].Name) >= 0 {
			return false
		}
	}
	return true
}

// few is the number of headers up to which a linear search is faster than a map.
const few = 32

// place returns the position of an exact name, or -1. For a long list, at has the positions.
func (l List) place(at map[string]int, name string) int {
	if at != nil {
		if i, ok := at[name]; ok {
			return i
		}
		return -1
	}
	for i := range l {
		if l[i].Name == name {
			return i
		}
	}
	return -1
}

// Index finds the exact names of a list at a cost that does not depend on the list's length. For a short list it
// allocates no memory.
type Index struct {
	list List
	at   map[string]int
}

// Index returns an index of the list's current names.
func (l List) Index() Index {
	x := Index{list: l}
	if len(l) > few {
		x.at = make(map[string]int, len(l))
		for i := range l {
			x.at[l[i].Name] = i
		}
	}
	return x
}

// Has reports whether a name is in the list.
func (x *Index) Has(name string) bool { return x.list.place(x.at, name) >= 0 }

// Text returns a reason as a header's value: one line of limited length.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s[:min(len(s), 300)])
}
