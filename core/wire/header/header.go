// Package header is the header lines of a request or response, as every part
// hands them to the next.
package header

import (
	"maps"
	"slices"
	"strings"
)

// Header is one header line. Names compare without regard to case (RFC 9110,
// section 5.1): parts that speak HTTP/2 or ext_proc write them in lower case
// and with pseudo-headers (":path"), those that speak HTTP/1 as net/http does.
type Header struct{ Name, Value string }

// List is header lines in the order in which they came. Of several with one
// name, the last counts.
type List []Header

// Of makes a list of names and values in turn.
func Of(namesAndValues ...string) List {
	l := make(List, 0, len(namesAndValues)/2)
	for pair := range slices.Chunk(namesAndValues, 2) {
		l = append(l, Header{pair[0], pair[1]})
	}
	return l
}

// FromMap returns a map's headers in the order of their names.
func FromMap(m map[string]string) List {
	l := make(List, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		l = append(l, Header{name, m[name]})
	}
	return l
}

// Lookup returns the last value under a name, and whether there is one.
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

// Normalize returns the list with names in lower case, and of several values under
// one name only the last, where the first stood. One that is so already is
// returned itself.
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

// normal reports whether a list is as Normalize makes it, where that is told fast.
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

// few is how many headers are looked through faster than looked up.
const few = 32

// place is where an exact name stands, or -1. at, of a long list, knows.
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

// Index finds the exact names of a list, at the same cost however long the list
// is. A short one's takes no memory.
type Index struct {
	list List
	at   map[string]int
}

// Index returns the list's names as they are now.
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

// Text returns a reason as a header's value: in one line, and not too long.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, s[:min(len(s), 300)])
}
