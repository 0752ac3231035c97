package modelserver

import (
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
)

// Forms keep the forms that requests asked for lately, since clients ask for the
// same ones again and again, as vLLM's backends keep theirs. A driver that reads
// requests from several goroutines guards them.
type Forms interface {
	Get(FormKey) (Form, bool)
	Put(FormKey, Form)
}

// FormKey names a form: what it is written in, and how.
type FormKey struct {
	kind formKind
	text string
}

// Form is one that was compiled, with the work that this took.
type Form struct {
	grammar *structured.Grammar
	work    int
}

type formKind uint8

const (
	schemaForm formKind = iota
	argumentsForm
	regexForm
	grammarForm
	tagForm
)

// FormStore is a Forms for one goroutine.
type FormStore struct {
	kept *bounded.Store[FormKey, Form]
}

// The most that a server keeps of forms: how many, and their bytes, about.
const (
	maxForms     = 1024
	maxFormBytes = 64 << 20
)

// NewForms keeps none yet.
func NewForms() *FormStore {
	return &FormStore{bounded.New[FormKey, Form](bounded.Limits{Entries: maxForms, Bytes: maxFormBytes}, nil)}
}

// Get implements Forms.
func (s *FormStore) Get(k FormKey) (Form, bool) { return s.kept.Get(k) }

// Put implements Forms.
func (s *FormStore) Put(k FormKey, f Form) { s.kept.Put(k, f, len(k.text)+f.work) }

// formIn is the form that a text asks for: one of before, or what compile makes of
// it. Either costs the request the same, so that what it may ask for does not depend
// on who asked before.
func (r *Reader) formIn(q *Request, kind formKind, text string,
	compile func(text string, spend func(int) bool) (*structured.Grammar, error)) (*structured.Grammar, error) {
	if r.Forms == nil {
		return compile(text, q.work.spend)
	}
	key := FormKey{kind, text}
	if f, known := r.Forms.Get(key); known {
		q.work.spend(f.work)
		return f.grammar, nil
	}
	before := q.work.spent
	g, err := compile(text, q.work.spend)
	if err == nil && q.work.tooMuch() == nil {
		r.Forms.Put(key, Form{g, q.work.spent - before})
	}
	return g, err
}

func compileSchema(text string, spend func(int) bool) (*structured.Grammar, error) {
	return structured.Schema([]byte(text), spend)
}

func compileArguments(text string, spend func(int) bool) (*structured.Grammar, error) {
	return structured.Arguments([]byte(text), spend), nil
}

// compileTag compiles structural tags, whose tokens are the tokenizer's.
func (r *Reader) compileTag(text string, spend func(int) bool) (*structured.Grammar, error) {
	return structured.Tag([]byte(text), func(id uint32) (string, bool) {
		b := r.Tokenizer.Decode(nil, id)
		return string(b), len(b) > 0
	}, spend)
}
