package modelserver

import (
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
)

// Forms caches compiled forms, because clients repeat them. vLLM's backends have such a cache too. A driver that reads
// requests from several goroutines must synchronize the calls.
type Forms interface {
	Get(FormKey) (Form, bool)
	Put(FormKey, Form)
}

// FormKey identifies a form: its kind and its text.
type FormKey struct {
	kind formKind
	text string
}

// Form is a compiled form, with the work that compiling it took.
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

// Limits of a server's cache of forms: their number, and about how many bytes they take.
const (
	maxForms     = 1024
	maxFormBytes = 64 << 20
)

// NewForms returns an empty cache.
func NewForms() *FormStore {
	return &FormStore{bounded.New[FormKey, Form](bounded.Limits{Entries: maxForms, Bytes: maxFormBytes}, nil)}
}

// Get implements Forms.
func (s *FormStore) Get(k FormKey) (Form, bool) { return s.kept.Get(k) }

// Put implements Forms.
func (s *FormStore) Put(k FormKey, f Form) { s.kept.Put(k, f, len(k.text)+f.work) }

// formIn returns the compiled form of a text, from the cache or from compile. Both charge the request the same work, so
// that earlier requests do not decide which forms a request may use.
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

// compileTag compiles structural tags, with the tokens of the server's tokenizer.
func (r *Reader) compileTag(text string, spend func(int) bool) (*structured.Grammar, error) {
	return structured.Tag([]byte(text), func(id uint32) (string, bool) {
		b := r.Tokenizer.Decode(nil, id)
		return string(b), len(b) > 0
	}, spend)
}
