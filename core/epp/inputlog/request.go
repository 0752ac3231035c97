package inputlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// request is a request as the log has it.
type request struct {
	ID string `json:"id,omitempty"`
	headers
	Bytes  int      `json:"bytes,omitempty"`
	Subset []string `json:"subset,omitzero"`
	Body   *body    `json:"body,omitempty"`
}

// arrival is a request, which may have been written already.
type arrival struct {
	request
	note []byte
}

// MarshalJSON implements json.Marshaler.
func (x *arrival) MarshalJSON() ([]byte, error) {
	if x.note != nil {
		return x.note, nil
	}
	return encoded(&x.request), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (x *arrival) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &x.request) }

type body struct {
	Kind       string        `json:"kind"`
	Parser     string        `json:"parser,omitempty"`
	Model      string        `json:"model,omitempty"`
	Stream     bool          `json:"stream,omitempty"`
	Max        *int64        `json:"max,omitempty"`
	Salt       string        `json:"salt,omitempty"`
	Multimodal int           `json:"multimodal,omitempty"`
	Assets     machine.Words `json:"assets,omitzero"` // hash and tokens of each
	Wrapped    bool          `json:"wrapped,omitempty"`
	Skip       bool          `json:"skip,omitempty"`
	Prompts    []prompt      `json:"prompts,omitempty"`
	Raw        []byte        `json:"raw,omitzero"` // with Options.Bodies
}

type prompt struct {
	IDs    bool          `json:"ids,omitempty"`
	Bytes  int           `json:"bytes,omitempty"`
	Unit   int           `json:"unit,omitempty"`
	Heads  machine.Words `json:"heads,omitzero"`
	Keys   []keys        `json:"keys,omitempty"`
	Tokens []byte        `json:"tokens,omitzero"` // with Options.Bodies, of a renderer's
}

// keys are the keys of a prompt's KV blocks under one rule.
type keys struct {
	Block int           `json:"block,omitempty"`
	Seed  string        `json:"seed,omitempty"`
	Model string        `json:"model,omitempty"`
	Keys  machine.Words `json:"keys"`
}

// Note returns a request as the log has it, in JSON. It needs nothing that
// changes: the request's own goroutine may call it beforehand.
func (o *Options) Note(r *picker.Request) []byte { return encoded(o.requestOf(r, true)) }

// requestOf returns a request as the log has it, with whole including its prompts.
func (o *Options) requestOf(r *picker.Request, whole bool) *request {
	x := &request{ID: r.ID, headers: headersOf(r.Headers, o.standIn), Bytes: r.SizeBytes}
	if r.HasSubset {
		x.Subset = append([]string{}, r.Subset...)
	}
	b := r.Body
	if b == nil {
		return x
	}
	x.Body = &body{Kind: b.Kind.String(), Parser: b.Parser, Model: b.Model, Stream: b.Stream, Salt: b.CacheSalt,
		Multimodal: b.Multimodal, Wrapped: b.Wrapped, Skip: b.SkipResponse}
	if b.MaxOutputTokens >= 0 {
		x.Body.Max = &b.MaxOutputTokens
	}
	for i := range b.Assets {
		x.Body.Assets = append(x.Body.Assets, b.Assets[i].Hash, uint64(b.Assets[i].Tokens))
	}
	if whole {
		if x.Body.Prompts = o.promptsOf(b.Prompts, false); o.Bodies && !b.Described {
			x.Body.Raw = b.Raw()
		}
	}
	return x
}

func (o *Options) promptsOf(list []parse.Prompt, rendered bool) []prompt {
	out := make([]prompt, len(list))
	for i := range list {
		p, x := &list[i], &out[i]
		x.IDs, x.Bytes = p.IsTokens(), p.Length()
		if unit, heads := p.Heads(); unit > 0 {
			x.Unit, x.Heads = unit, append(machine.Words{}, heads...)
		}
		p.EachKeys(func(h kv.Hasher, model string, list []kv.Key) {
			x.Keys = append(x.Keys, keys{h.BlockTokens, h.Seed, model, machine.WordsOf(list)})
		})
		if o.Bodies && rendered {
			x.Tokens = p.Bytes()
		}
	}
	return out
}

// encoder writes values as JSON, each in a line of its own.
type encoder struct {
	bytes.Buffer
	lines *json.Encoder
}

// encode returns a value's line, which is good until the next one.
func (e *encoder) encode(v any) []byte {
	if e.lines == nil || e.Cap() > 1<<20 {
		*e = encoder{}
		e.lines = json.NewEncoder(e)
		e.lines.SetEscapeHTML(false)
	}
	e.Reset()
	if err := e.lines.Encode(v); err != nil {
		panic(err) // plain values always have a JSON form
	}
	return e.Bytes()
}

// encoded returns a value as JSON, in a line of its own.
func encoded(v any) []byte { return new(encoder).encode(v) }

// standIn is what stands for a credential: nothing, unless plug-ins compare it.
func (o *Options) standIn(h header.Header) string {
	if slices.Contains(o.Secrets, strings.ToLower(h.Name)) {
		return picker.Digest(h.Value)
	}
	var out []string
	if strings.EqualFold(h.Name, "cookie") {
		for _, name := range o.Cookies {
			if value, ok := picker.Cookie(header.List{h}, name); ok {
				out = append(out, name+"="+picker.Digest(value))
			}
		}
	}
	return strings.Join(out, "; ")
}

// again makes the request again. With its body it is read anew, as far as
// that gives the same; p is nil where it is not to be.
func (x *request) again(p *picker.Picker) (*picker.Request, error) {
	r := &picker.Request{ID: x.ID, Headers: x.list(), SizeBytes: x.Bytes, Subset: x.Subset, HasSubset: x.Subset != nil}
	if x.Body == nil {
		return r, nil
	}
	if x.Body.Raw != nil && p != nil {
		again, err := p.NewRequest(r.Headers, x.Body.Raw, true, 0)
		if err != nil {
			return nil, fmt.Errorf("request %s: its body was read when it was recorded, and now: %w", x.ID, err)
		}
		again.ID, again.Subset, again.HasSubset = r.ID, r.Subset, r.HasSubset
		return again, nil
	}
	var err error
	r.Body, err = x.Body.body()
	return r, err
}

func (x *body) body() (*parse.Body, error) {
	kind, ok := parse.KindNamed(x.Kind)
	if !ok {
		return nil, fmt.Errorf("the body's kind %q is none", x.Kind)
	}
	if len(x.Assets)%2 != 0 {
		return nil, fmt.Errorf("assets are pairs of numbers, found %d", len(x.Assets))
	}
	b := &parse.Body{Kind: kind, Parser: x.Parser, Model: x.Model, Stream: x.Stream, MaxOutputTokens: -1,
		CacheSalt: x.Salt, Multimodal: x.Multimodal, Wrapped: x.Wrapped, SkipResponse: x.Skip, Described: true,
		Prompts: prompts(x.Prompts)}
	if x.Max != nil {
		b.MaxOutputTokens = *x.Max
	}
	for i := 0; i < len(x.Assets); i += 2 {
		b.Assets = append(b.Assets, parse.Asset{Hash: x.Assets[i], Tokens: int(x.Assets[i+1])})
	}
	return b, nil
}

// tokenIDs reads token ids, of four bytes each.
func tokenIDs(b []byte) []uint32 {
	ids := make([]uint32, 0, len(b)/4)
	for ; len(b) >= 4; b = b[4:] {
		ids = append(ids, binary.LittleEndian.Uint32(b))
	}
	return ids
}

// wordsAs returns words as numbers of another type.
func wordsAs[W ~uint64](list machine.Words) []W {
	out := make([]W, len(list))
	for i, w := range list {
		out[i] = W(w)
	}
	return out
}

func prompts(list []prompt) []parse.Prompt {
	var out []parse.Prompt
	for i := range list {
		x := &list[i]
		if x.Tokens != nil { // all else is made of them again
			out = append(out, parse.TokenPrompt(tokenIDs(x.Tokens)))
			continue
		}
		p := parse.DescribedPrompt(x.IDs, x.Bytes, x.Unit, x.Heads)
		for _, k := range x.Keys {
			p.SetKeys(kv.Hasher{BlockTokens: k.Block, Seed: k.Seed}, k.Model, wordsAs[kv.Key](k.Keys))
		}
		out = append(out, p)
	}
	return out
}
