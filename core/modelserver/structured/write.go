package structured

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Options limit generated values if the form sets no limits, with llm-d-inference-sim's meanings.
type Options struct {
	MinInteger, MaxInteger int     // 0 to 100 if both are 0
	MinNumber, MaxNumber   float64 // 0 to 100 if both are 0
	MinItems, MaxItems     int     // of an array, 1 if both are 0
	// OmitOptional is the percentage of texts that leave out an optional member of the outermost object. OmitField is
	// the same for nested objects. Nil is 50.
	OmitOptional, OmitField *int
}

var half = 50

func (o Options) withDefaults() Options {
	if o.MinInteger == 0 && o.MaxInteger == 0 {
		o.MaxInteger = 100
	}
	if o.MinNumber == 0 && o.MaxNumber == 0 {
		o.MaxNumber = 100
	}
	o.MinItems = max(o.MinItems, 1)
	o.MaxItems = max(o.MaxItems, o.MinItems)
	o.OmitOptional = cmp.Or(o.OmitOptional, &half)
	o.OmitField = cmp.Or(o.OmitField, &half)
	return o
}

// Text holds the parameters of one text.
type Text struct {
	Draw    machine.Draw // source of the text's draws
	Words   *tokens.Vocabulary
	Options Options
	// Free allows a few members in an object that the form does not describe.
	Free bool
	// Target is about the length in bytes of a text that may have any length.
	Target int
	// Most ends the text, complete or not, at about so many bytes. The client does not see more.
	Most int
	// Spend counts the work, in about bytes, and returns false when the limit is reached.
	Spend func(int) bool
}

// The work of writing, in the units of Text.Spend: of each step, and of a deeply nested frame.
const (
	stepWork  = 16
	frameWork = 64
	shallow   = 1 << 10 // frames that are not counted
)

// maxIdle is the number of steps that may pass without a byte. A form that writes nothing in so many steps never will.
const maxIdle = 1 << 16

// frame is the state of a node that is being written.
type frame struct {
	n     *node
	i     int // index of its next part
	count int // number of its elements, repetitions or members, written and planned
	owes  int // the least number of bytes that it will still write
	keys  map[string]bool
}

// writer writes one text. It has its own stack, so that forms may be nested to any depth.
type writer struct {
	*Text
	b     []byte
	o     Options
	root  *node
	stack []frame
	owed  int // sum over all frames
}

// Write appends a text to b. The text is incomplete if it became longer than t.Most, or took too much work.
func (g *Grammar) Write(b []byte, t *Text) []byte {
	w := writer{Text: t, b: b, o: t.Options.withDefaults(), root: g.root}
	w.Target += len(b)
	w.Most += len(b)
	w.push(g.root)
	w.run(0)
	return w.b
}

func (w *writer) push(n *node) {
	owes := n.min
	if owes == endless {
		owes = 0
	}
	w.owed += owes
	if len(w.stack) > shallow {
		w.Spend(frameWork)
	}
	w.stack = append(w.stack, frame{n: n, owes: owes})
}

// pop removes the innermost frame. Pointers to it become invalid.
func (w *writer) pop() {
	last := len(w.stack) - 1
	w.owed -= w.stack[last].owes
	w.stack = w.stack[:last]
}

// pay counts bytes that a frame has written, or passes on to a frame within it.
func (w *writer) pay(f *frame, n int) {
	n = min(n, f.owes)
	f.owes -= n
	w.owed -= n
}

// room reports whether the text stays within its target length with n more bytes.
func (w *writer) room(n int) bool { return len(w.b)+w.owed+n < w.Target }

// run writes until at most so many frames are open.
func (w *writer) run(open int) bool {
	said, idle := len(w.b), 0
	for len(w.stack) > open {
		if idle++; len(w.b) > said {
			said, idle = len(w.b), 0
		}
		if said >= w.Most || idle > maxIdle || !w.Spend(stepWork) {
			return false
		}
		w.step()
	}
	return true
}

// step writes the next piece of the innermost frame.
func (w *writer) step() {
	f := &w.stack[len(w.stack)-1]
	n := f.n
	switch n.kind {
	case literal:
		w.b = append(w.b, n.text...)
		w.Spend(len(n.text))
		w.pop()
	case class:
		w.Spend(len(n.set.pairs))
		w.b = n.set.append(w.b, &w.Draw)
		w.pop()
	case sequence:
		if f.i == len(n.kids) {
			w.pop()
			return
		}
		kid := n.kids[f.i]
		f.i++
		w.pay(f, kid.min)
		if f.i == len(n.kids) {
			w.pop() // so that a rule that ends with itself needs no stack
		}
		w.push(kid)
	case either:
		if len(n.kids) == 0 { // a class without a character
			w.pop()
			return
		}
		kid := n.kids[w.Draw.Intn(len(n.kids))]
		w.pop()
		if kid.kind != literal && !w.room(kid.min) {
			kid = n.best
		}
		w.push(kid)
	case repeat:
		w.repeat(f)
	case str:
		w.str(n)
		w.pop()
	case number:
		w.b = n.num.append(w.b, &w.Draw, &w.o)
		w.pop()
	case array:
		w.array(f)
	case object:
		w.object(f)
	case anyValue:
		w.any()
		w.pop()
	case free:
		w.free(n.words)
		w.pop()
	}
}

// spread is the number of repetitions by which a text exceeds a form's least.
const spread = 8

// amount draws from least to most; most is below 0 without a limit.
func (w *writer) amount(least, most, spread int) int {
	more := spread
	if most >= 0 {
		more = min(more, most-least)
	}
	return least + w.Draw.Intn(max(0, more)+1)
}

func (w *writer) repeat(f *frame) {
	n, kid := f.n, f.n.kids[0]
	if f.i == 0 {
		f.count = n.least
		if kid.min < endless {
			f.count = w.amount(n.least, n.most, spread)
		}
	}
	if f.i >= f.count || f.i >= n.least && !w.room(kid.min) {
		w.pop()
		return
	}
	if f.i++; f.i <= n.least {
		w.pay(f, kid.min)
	}
	w.push(kid)
}

func (w *writer) word() string {
	_, word := w.Words.Word(w.Draw.Intn(w.Words.Len()))
	return strings.TrimPrefix(word, " ")
}

// str writes a string of words.
func (w *writer) str(n *node) {
	words := 1
	if w.Free {
		words += w.Draw.Intn(3)
	}
	if !n.bare {
		w.b = append(w.b, '"')
	}
	from := len(w.b)
	for i, size := 0, 0; (i < words || size < n.least) && (n.most < 0 || size < n.most) && len(w.b) < w.Most; i++ {
		if i > 0 {
			w.b = append(w.b, ' ')
			size++
		}
		word := w.word()
		word = cmp.Or(word, "x") // a vocabulary may have empty words
		w.Spend(stepWork * len(word))
		for _, r := range word {
			if size == n.most {
				break
			}
			if size++; n.bare {
				w.b = utf8.AppendRune(w.b, r)
			} else {
				w.b = appendEscaped(w.b, r)
			}
		}
	}
	if len(n.excludes) > 0 && w.Spend(len(n.excludes)*(len(w.b)-from+1)) &&
		slices.ContainsFunc(n.excludes, func(e string) bool { return strings.Contains(string(w.b[from:]), e) }) {
		w.b = append(w.b[:from], strings.Repeat("x", min(n.least, w.Most))...)
	}
	if !n.bare {
		w.b = append(w.b, '"')
	}
}

// free writes words without a form.
func (w *writer) free(f *freeText) {
	from, words := len(w.b), f.least
	if f.long {
		words = math.MaxInt
	} else if f.least == 0 {
		words = w.Draw.Intn(spread)
	}
	for i, failed := 0, 0; i < words && failed < spread && len(w.b) < w.Most && w.Spend(0); {
		word := w.word()
		if i > 0 {
			word = " " + word
		}
		w.Spend(stepWork*(len(word)+1) + f.work)
		if i >= f.least && !w.room(len(word)) || f.most >= 0 && len(w.b)-from+len(word) > f.most {
			return
		}
		if word == "" || !f.fits(w.b[from:], word) {
			failed++
			continue
		}
		w.b = append(w.b, word...)
		i++
	}
}

// fits reports whether no excluded text begins in the end of a text or in a word after it.
func (f *freeText) fits(text []byte, word string) bool {
	for _, e := range f.excludes {
		end := string(text[max(0, len(text)-len(e)):]) + word
		if i := strings.Index(end+f.next[:min(len(f.next), len(e))], e); i >= 0 && i < len(end) {
			return false
		}
	}
	return true
}

func (w *writer) any() {
	switch w.Draw.Intn(4) {
	case 0:
		w.b = plain.append(w.b, &w.Draw, &w.o)
	case 1:
		w.b = append(w.b, []string{"true", "false"}[w.Draw.Intn(2)]...)
	case 2:
		w.b = append(w.b, "null"...)
	default:
		w.str(anyString)
	}
}

var (
	plain     = &numbers{integer: true}
	anyString = &node{kind: str, most: -1}
)

func (w *writer) array(f *frame) {
	n := f.n
	if f.i == 0 {
		w.b = append(w.b, '[')
		w.pay(f, 1)
		f.count = w.amount(w.o.MinItems, -1, w.o.MaxItems-w.o.MinItems)
		if n.more == nil || n.most >= 0 {
			high := len(n.kids)
			if n.more != nil {
				high = n.most
			} else if n.most >= 0 {
				high = min(high, n.most)
			}
			f.count = min(f.count, high)
		}
		if len(n.kids) > f.count && (n.most < 0 || n.most >= len(n.kids)) {
			f.count = len(n.kids) // all that the form describes
		}
		f.count = max(f.count, n.least)
	}
	kid := n.more
	if f.i < len(n.kids) {
		kid = n.kids[f.i]
	}
	if f.i >= f.count || kid == nil || f.i >= n.least && (kid.min == endless || !w.room(kid.min+2)) {
		w.b = append(w.b, ']')
		w.pop()
		return
	}
	if f.i > 0 {
		w.b = append(w.b, ", "...)
	}
	if f.i++; f.i <= n.least {
		w.pay(f, kid.min+2)
	}
	w.push(kid)
}

func (w *writer) object(f *frame) {
	n := f.n
	if f.i == 0 {
		w.b = append(w.b, '{')
		w.pay(f, 1)
	}
	for f.i < len(n.props) {
		p := &n.props[f.i]
		if f.i++; !w.Spend(stepWork) {
			return
		}
		if !p.required && !w.wanted(f, p) {
			continue
		}
		w.comma(f)
		w.b = append(w.b, p.key...)
		if p.required {
			w.pay(f, len(p.key)+2+p.value.min)
		}
		w.push(p.value)
		return
	}
	if w.further(f) {
		return
	}
	w.b = append(w.b, '}')
	w.pop()
}

func (w *writer) comma(f *frame) {
	if f.count > 0 {
		w.b = append(w.b, ", "...)
	}
	f.count++
}

// wanted decides whether to write an optional member.
func (w *writer) wanted(f *frame, p *property) bool {
	n, omit := f.n, *w.o.OmitField
	if n == w.root {
		omit = *w.o.OmitOptional
	}
	out := w.Draw.Intn(100) < omit || !w.room(len(p.key)+2+p.value.min)
	switch {
	case p.value.min == endless, n.most >= 0 && f.count+p.after >= n.most:
		return false
	case f.count+len(n.props)-f.i < n.least && n.more == nil:
		return true // too few would be left
	}
	return !out
}

// further writes a member whose name the form does not specify.
func (w *writer) further(f *frame) bool {
	n := f.n
	if n.more == nil || n.more.min == endless {
		return false
	}
	if f.i == len(n.props) { // decided once
		f.i++
		want := 0
		if !n.free || w.Free && len(n.props) == 0 {
			want = 1 + w.Draw.Intn(3)
		}
		if n.most >= 0 {
			want = min(want, n.most-f.count)
		}
		f.i += max(want, n.least-f.count)
		f.keys = map[string]bool{}
		w.Spend(nodeWork * len(n.props))
		for i := range n.props {
			f.keys[n.props[i].key] = true
		}
	}
	if f.i == len(n.props)+1 || f.count >= n.least && !w.room(n.more.min) {
		return false
	}
	f.i--
	key, ok := w.key(f)
	if !ok {
		return false
	}
	f = &w.stack[len(w.stack)-1]
	w.comma(f)
	w.b = append(w.b, key...)
	w.push(n.more)
	return true
}

// key returns a name for a further member, different from the existing names; false if none could be found.
func (w *writer) key(f *frame) (string, bool) {
	names, keys := f.n.names, f.keys
	const tries = 64
	for i := range tries {
		key := ""
		if names == nil {
			if key = w.word(); i > tries/2 || key == "" {
				key += w.Draw.Letters(8)
			}
			key = quote(key)
		} else {
			from, open := len(w.b), len(w.stack)
			if w.push(names); !w.run(open) {
				return "", false // the text ends within it
			}
			key = string(w.b[from:])
			w.b = w.b[:from]
		}
		if key += ": "; !keys[key] {
			keys[key] = true
			return key, true
		}
	}
	return "", false
}
