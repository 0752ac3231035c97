package structured

import (
	"errors"
	"fmt"
)

// Grammar is an immutable form, from which texts are generated.
type Grammar struct{ root *node }

// errTooMuch reports that the allowed work is spent. The server replaces it with an error of its own.
var errTooMuch = errors.New("the form takes too much work")

// MaxBytes limits the length of a schema, a regular expression and a grammar.
const MaxBytes = 1 << 20

// builder makes the nodes of a form.
type builder struct {
	all   []*node
	room  []node         // memory for the next nodes, allocated several at once
	spend func(int) bool // once false, it stays false
}

// nodeWork is about the work of one node.
const nodeWork = 256

// over reports that the work is spent. Loops that make nodes must stop then.
func (b *builder) over() bool { return !b.spend(0) }

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

// grammar completes a form.
func (b *builder) grammar(root *node) (*Grammar, error) {
	if b.over() {
		return nil, errTooMuch
	}
	if err := lengths(b.all, b.spend); err != nil {
		return nil, err
	}
	return &Grammar{root}, nil
}

// Choice returns the form that allows each of several texts.
func Choice(texts []string, spend func(int) bool) (*Grammar, error) {
	b := builder{spend: spend}
	kids := make([]*node, len(texts))
	for i, t := range texts {
		if kids[i] = b.literal(t); b.over() {
			return nil, errTooMuch
		}
	}
	return b.grammar(b.either(kids...))
}

func tooLong(what string, n int) error {
	if n > MaxBytes {
		return fmt.Errorf("%s: expected at most %d bytes, got %d", what, MaxBytes, n)
	}
	return nil
}
