package workload

import (
	"encoding/json"
	"math/bits"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// Recorded is a request that was once sent, as far as is known of it: enough to
// send one that is like it.
type Recorded struct {
	ID    string       // empty: as of any request with its number
	At    machine.Time // after the first one
	Model string       // what it asked for; empty: what the workload asks for
	// Class is that of the traffic, and SLO what a good request keeps to, as in Config.
	Class, SLO string
	Header     header.List
	Chat       bool // messages, else a prompt
	Stream     bool
	Prompt     []RecordedPrompt
	// Output is how many tokens the answer had, 0 where nobody knows.
	Output int
}

// RateOf is how many recorded requests come per second on average; 0 where they all come at one time.
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

// RecordedPrompt is a prompt of which its length in bytes is known and, for its
// beginnings up to the end of each unit of so many bytes, what tells them apart:
// prompts that had a beginning in common have one again, of other words.
type RecordedPrompt struct {
	Bytes, Unit int
	Heads       []uint64
}

// units are what the prompt's letters are drawn from.
func (p *RecordedPrompt) units() *described.Units {
	heads, unit := p.Heads, p.Unit
	if unit <= 0 || len(heads) == 0 {
		heads, unit = []uint64{uint64(p.Bytes)}, max(1, p.Bytes)
	}
	return &described.Units{Heads: heads[:min(len(heads), max(1, (p.Bytes+unit-1)/unit))], Size: unit, Letters: letters}
}

func letters(head uint64) machine.Draw { return machine.NewDraw(head, "client", "recorded", 0) }

// text makes the prompt up.
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

// body is a body like the recorded one's, of these texts.
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

// request is like the recorded one, described where it can be.
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

// recordings are what recorded requests have in common, where they are described.
type recordings struct {
	fields map[recordedKind]*described.Fields
	shared []int32 // by request, how many units of its prompt others may have, at least those that they do
}

// recordedKind is what recorded requests differ in besides their prompts.
type recordedKind struct {
	model        string
	chat, stream bool
	output       int
}

// leastUnit is how long the units of prompts are at least that are described.
const leastUnit = 64

// newRecordings looks through requests. It is nil where not all can be described:
// prompts are compared by what they are described by, or all by their bytes.
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

// often are the heads that several requests have, and a few others: a bit for each, of
// many times as many as there are heads.
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

// place is the bit of a head.
func (o *often) place(head uint64) (at int, bit uint64) {
	n := head * 0x9e3779b97f4a7c15 >> o.shift // the golden ratio: neighbours come far apart
	return int(n >> 6), 1 << (n & 63)
}

func (o *often) has(head uint64) bool {
	at, bit := o.place(head)
	return o.bits[at]&bit != 0
}

// describe describes a request, which has this number; false for one that has to be written.
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
