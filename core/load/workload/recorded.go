package workload

import (
	"encoding/json"
	"math/bits"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Recorded is the known part of a recorded request: enough to send a similar one.
type Recorded struct {
	ID    string       // empty: the id of a generated request with its number
	At    machine.Time // after the first one
	Model string       // empty: the workload's
	// Class and SLO are the class of traffic and the objectives of a good request, as in Config.
	Class, SLO string
	Header     header.List
	Chat       bool // messages, not a prompt
	Stream     bool
	Prompt     []RecordedPrompt
	// Output is the number of tokens of the answer, 0 if unknown.
	Output int
}

// RateOf returns the mean rate of recorded requests per second; 0 if all come at one time.
func RateOf(list []Recorded) float64 {
	last := machine.Time(0)
	for i := range list {
		last = max(last, list[i].At)
	}
	if last == 0 {
		return 0
	}
	return float64(len(list)-1) / last.Seconds()
}

// Part returns the first requests of a list, so large a share of them, or with rest the others, whose first one then
// arrives at the beginning. It returns the list itself where a part would be empty.
func Part(list []Recorded, share float64, rest bool) []Recorded {
	n := int(share * float64(len(list)))
	switch {
	case n <= 0 || n >= len(list):
		return list
	case !rest:
		return list[:n]
	}
	list = slices.Clone(list[n:])
	first := list[0].At
	for i := range list {
		list[i].At -= first
	}
	return list
}

// RecordedPrompt is a prompt with a known length in bytes and, for the beginning up to the end of each unit, a value
// that identifies it: prompts with equal recorded beginnings get equal beginnings, with other words. Unit is in bytes.
type RecordedPrompt struct {
	Bytes, Unit int
	Heads       []uint64
}

// units returns the source of the prompt's letters.
func (p *RecordedPrompt) units() *described.Units {
	heads, unit := p.Heads, p.Unit
	if unit <= 0 || len(heads) == 0 {
		heads, unit = []uint64{uint64(p.Bytes)}, max(1, p.Bytes)
	}
	return &described.Units{Heads: heads[:min(len(heads), max(1, (p.Bytes+unit-1)/unit))], Size: unit, Letters: letters}
}

func letters(head uint64) machine.Draw { return machine.NewDraw(head, "client", "recorded", 0) }

// text generates the prompt.
func (p *RecordedPrompt) text() string {
	t := p.units().Text(p.Bytes)
	return t.String()
}

// recordedBody is the body of a recorded request.
type recordedBody struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages,omitempty"`
	Prompt    any       `json:"prompt,omitempty"`
	Stream    bool      `json:"stream,omitempty"`
	Max       int       `json:"max_tokens,omitempty"`
	Min       int       `json:"min_tokens,omitempty"`
	IgnoreEOS bool      `json:"ignore_eos,omitempty"`
}

// body returns a body with the properties of the recorded one and these texts.
func (r *Recorded) body(model string, texts []string) []byte {
	body := recordedBody{Model: model, Stream: r.Stream, Max: r.Output, Min: r.Output, IgnoreEOS: r.Output > 0}
	switch {
	case r.Chat:
		for _, t := range texts {
			body.Messages = append(body.Messages, message{"user", t})
		}
	case len(texts) == 1:
		body.Prompt = texts[0]
	default:
		body.Prompt = texts
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings, bools and ints always encode
	}
	return text
}

// request returns a request like the recorded one, described if it can be.
func (r *Recorded) request(model string, index int, in *recordings) Request {
	q := Request{ID: r.ID, Index: index, Path: "/v1/completions", Model: model, Class: r.Class, SLO: r.SLO,
		Header: r.Header}
	if r.Chat {
		q.Path = "/v1/chat/completions"
	}
	if in.describe(r, model, index, &q.Described) {
		return q
	}
	var texts []string
	for i := range r.Prompt {
		texts = append(texts, r.Prompt[i].text())
	}
	q.Body = r.body(model, texts)
	return q
}

// recordings holds the data that described recorded requests share.
type recordings struct {
	fields map[recordedKind]*described.Fields
	shared []int32 // by request: an upper limit of the units of its prompt that others share
}

// recordedKind are the properties, besides prompts, in which recorded requests differ.
type recordedKind struct {
	model        string
	chat, stream bool
	output       int
}

// leastUnit is the smallest unit of described prompts, in bytes.
const leastUnit = 64

// newRecordings returns nil if not all requests can be described: prompts are compared either all by their
// descriptions, or all by their bytes.
func newRecordings(list []Recorded) *recordings {
	heads := 0
	for i := range list {
		r := &list[i]
		if len(r.Prompt) != 1 || r.Prompt[0].Bytes == 0 || r.Prompt[0].Unit > 0 && r.Prompt[0].Unit < leastUnit {
			return nil
		}
		heads += len(r.Prompt[0].Heads)
	}
	often := oftenOf(list, heads)
	in := &recordings{fields: map[recordedKind]*described.Fields{}, shared: make([]int32, len(list))}
	for i := range list {
		p := &list[i].Prompt[0]
		heads, n := p.units().Heads, 0
		for n < len(heads) && (often.has(heads[n]) || p.Unit <= 0 || len(p.Heads) == 0) {
			n++
		}
		in.shared[i] = int32(n)
	}
	return in
}

// often is a set of the heads that several requests share. It may contain a few others: each head has one of many bits.
type often struct {
	bits  []uint64
	shift int
}

func oftenOf(list []Recorded, heads int) often {
	width := max(6, bits.Len(uint(heads))+4)
	once, again := make([]uint64, 1<<(width-6)), often{make([]uint64, 1<<(width-6)), 64 - width}
	for i := range list {
		for _, head := range list[i].Prompt[0].Heads {
			at, bit := again.place(head)
			again.bits[at] |= once[at] & bit
			once[at] |= bit
		}
	}
	return again
}

// place returns the bit of a head.
func (o *often) place(head uint64) (at int, bit uint64) {
	n := head * 0x9e3779b97f4a7c15 >> o.shift // the golden ratio spreads neighbours
	return int(n >> 6), 1 << (n & 63)
}

func (o *often) has(head uint64) bool {
	at, bit := o.place(head)
	return o.bits[at]&bit != 0
}

// describe describes the request with this number; false if it has to be written.
func (in *recordings) describe(r *Recorded, model string, index int, d *described.Body) bool {
	if in == nil {
		return false
	}
	kind := recordedKind{model, r.Chat, r.Stream, r.Output}
	f := in.fields[kind]
	if f == nil {
		if f = described.NewFields(r.Chat, r.body(model, []string{"@"})); f == nil || !described.Plain(model) {
			return false
		}
		if len(in.fields) < maxFields {
			in.fields[kind] = f
		}
	}
	p := &r.Prompt[0]
	u := p.units()
	u.Shared = int(in.shared[index])
	*d = described.NewBody(f, nil, described.NewMessage("user", nil, u.Text(p.Bytes)))
	d.Once = u.Shared < len(u.Heads)
	return true
}
