package structured

import "fmt"

// Grammar is an immutable form, from which texts are generated.
type Grammar struct{ root *node }

// refused is the panic of all functions here that find a form which is refused. build and attempt recover from it.
type refused struct{ error }

func refusal(format string, args ...any) refused { return refused{fmt.Errorf(format, args...)} }

// attempt returns the error of a form that f refuses.
func attempt[T any](f func() T) (out T, err error) {
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(refused)
			if !ok {
				panic(r)
			}
			err = bad.error
		}
	}()
	return f(), nil
}

// build returns the form that root makes, unless root refuses it or uses up the allowed work. The server replaces the
// error of the latter with its own.
func build(spend func(int) bool, root func(b *builder) *node) (*Grammar, error) {
	b := builder{spend: func(n int) {
		if !spend(n) {
			panic(refusal("the form takes too much work"))
		}
	}}
	return attempt(func() *Grammar { return &Grammar{b.whole(root)} })
}

// MaxBytes limits the length of a schema, a regular expression and a grammar.
const MaxBytes = 1 << 20

// builder makes the nodes of a form.
type builder struct {
	all   []*node
	room  []node    // memory for the next nodes, allocated several at once
	spend func(int) // refuses the form when no work is left
}

// nodeWork is about the work of one node.
const nodeWork = 256

func (b *builder) node(n node) *node {
	b.spend(nodeWork + 16*len(n.kids) + len(n.text))
	if len(b.room) == 0 {
		b.room = make([]node, 16)
	}
	p := &b.room[0]
	b.room = b.room[1:]
	*p = n
	b.all = append(b.all, p)
	return p
}

func (b *builder) literal(text string) *node { return b.node(node{kind: literal, text: text}) }

func (b *builder) sequence(kids ...*node) *node {
	if len(kids) == 1 {
		return kids[0]
	}
	return b.node(node{kind: sequence, kids: kids})
}

func (b *builder) either(kids ...*node) *node {
	if len(kids) == 1 {
		return kids[0]
	}
	return b.node(node{kind: either, kids: kids})
}

func (b *builder) repeat(kid *node, least, most int) *node {
	return b.node(node{kind: repeat, kids: []*node{kid}, least: least, most: most})
}

// whole returns the root of a complete form.
func (b *builder) whole(root func(b *builder) *node) *node {
	n := root(b)
	lengths(b.all, b.spend)
	return n
}

// part returns the root of a form that is a part of another one.
func (b *builder) part(root func(b *builder) *node) *node {
	inner := builder{spend: b.spend}
	return inner.whole(root)
}

// Choice returns the form that allows each of several texts.
func Choice(texts []string, spend func(int) bool) (*Grammar, error) {
	return build(spend, func(b *builder) *node {
		kids := make([]*node, len(texts))
		for i, t := range texts {
			kids[i] = b.literal(t)
		}
		return b.either(kids...)
	})
}

func notTooLong(what string, n int) {
	if n > MaxBytes {
		panic(refusal("%s: expected at most %d bytes, got %d", what, MaxBytes, n))
	}
}
