package structured

import (
	"math"

	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// kind is the kind of text that a node writes.
type kind uint8

const (
	literal  kind = iota // its text
	class                // one character of a set
	sequence             // its kids in order
	either               // one of its kids
	repeat               // its kid, from least to most times
	str                  // a JSON string of least to most characters
	number               // a JSON number
	array                // a JSON array: its kids, and then more
	object               // a JSON object
	anyValue             // a JSON value
	free                 // words without a form
)

// endless is the length of a node whose texts never end.
const endless = math.MaxInt32

// node is a part of a form. Rules refer to each other by pointer, also in cycles.
type node struct {
	kind kind
	text string
	kids []*node
	// least and most limit the number of characters, repetitions, elements or members; most is below 0 without a limit.
	least, most int
	min         int // bytes of the shortest text, endless if there is none
	best        *node
	set         *set
	num         *numbers
	props       []property
	names       *node // names of further members; nil is any word
	more        *node // further elements or members; nil if the form allows none
	free        bool  // the form allows further members without describing them

	words    *freeText // of free
	excludes []string  // texts that a string must not contain, as far as possible
	bare     bool      // a string without quotes
}

// property is a member of an object.
type property struct {
	name     string
	key      string // as written, with its colon
	value    *node
	required bool
	after    int // number of required members after it
}

// lengths computes the shortest length of each node's text: the least fixed point, by passes over all nodes until
// nothing changes. Nodes refer mostly to nodes that were made later, so two passes nearly always suffice.
func lengths(all []*node, spend func(int)) {
	size := 0 // work of one pass over all nodes and their references
	for _, n := range all {
		n.min = endless
		size += 4 + len(n.kids) + len(n.props)
	}
	for changed := true; changed; {
		changed = false
		spend(2 * size)
		for i := len(all) - 1; i >= 0; i-- {
			if m := all[i].shortest(); m < all[i].min {
				all[i].min, changed = m, true
			}
		}
	}
	for _, n := range all {
		if n.kind == either {
			n.kids, n.best = ending(n.kids)
		}
	}
}

// ending returns a node's kids whose texts end, or all if none ends, and the shortest of them.
func ending(kids []*node) (some []*node, best *node) {
	for _, k := range kids {
		if k.min < endless {
			some = append(some, k)
		}
		if best == nil || k.min < best.min {
			best = k
		}
	}
	if len(some) == 0 {
		some = kids
	}
	return some, best
}

func sum(a, b int) int { return min(endless, a+b) }

func times(n, a int) int {
	if n == 0 || a == 0 {
		return 0
	}
	if a > endless/n {
		return endless
	}
	return n * a
}

func (n *node) shortest() int {
	switch n.kind {
	case literal:
		return len(n.text)
	case class, number:
		return 1
	case sequence:
		total := 0
		for _, k := range n.kids {
			total = sum(total, k.min)
		}
		return total
	case either:
		least := endless
		for _, k := range n.kids {
			least = min(least, k.min)
		}
		return least
	case repeat:
		return times(n.least, n.kids[0].min)
	case str:
		if n.bare {
			return n.least
		}
		return sum(2, n.least)
	case free:
		return n.words.least
	case array:
		total := 2
		for i := range min(n.least, len(n.kids)) {
			total = sum(total, n.kids[i].min+2)
		}
		if rest := n.least - len(n.kids); rest > 0 && n.more != nil {
			total = sum(total, times(rest, sum(n.more.min, 2)))
		}
		return total
	case object:
		total := 2
		for i := range n.props {
			if p := &n.props[i]; p.required {
				total = sum(total, sum(len(p.key)+2, p.value.min))
			}
		}
		return total
	}
	return len("null")
}

// quote returns a text as a JSON string.
func quote(s string) string { return string(openai.AppendString(nil, s)) }
