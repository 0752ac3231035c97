package inputlog

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// request is a request in the log's form.
type request struct {
	ID      string    `json:"id"`
	Headers headers   `json:"headers"`
	Hidden  headers   `json:"hidden"` // those that may carry credentials, with digests in their place
	Bytes   int       `json:"bytes"`
	Subset  *[]string `json:"subset"`
	Body    *body     `json:"body"`
}

type headers [][2]string

type body struct {
	parse.Body
	Kind    string        `json:"kind"`
	Max     *int64        `json:"max"`
	Assets  machine.Words `json:"assets"` // hash and tokens of each
	Prompts []prompt      `json:"prompts"`
	Raw     []byte        `json:"raw"`
}

type prompt struct {
	IDs    bool          `json:"ids"`
	Bytes  int           `json:"bytes"`
	Unit   int           `json:"unit"`
	Heads  machine.Words `json:"heads"`
	Keys   []keys        `json:"keys"`
	Tokens []byte        `json:"tokens"` // with Options.Bodies, of a renderer's
}

type keys struct {
	Block int           `json:"block"`
	Seed  string        `json:"seed"`
	Model string        `json:"model"`
	Keys  machine.Words `json:"keys"`
}

// comma begins the next element of a JSON array.
func comma(b []byte) []byte {
	if b[len(b)-1] != '[' {
		b = append(b, ',')
	}
	return b
}

// object begins a field that is an object.
func object(b []byte, name string) []byte { return append(field(b, name), '{') }

// field begins a field of a JSON object, after a comma unless it is the first.
func field(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendText(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return openai.AppendString(field(b, name), value)
}

func appendInt[I ~int | ~int32 | ~int64](b []byte, name string, value I) []byte {
	if value == 0 {
		return b
	}
	return strconv.AppendInt(field(b, name), int64(value), 10)
}

func appendTrue(b []byte, name string, value bool) []byte {
	if !value {
		return b
	}
	return append(field(b, name), "true"...)
}

func appendBytes(b []byte, name string, value []byte) []byte {
	b = append(field(b, name), '"')
	b = base64.StdEncoding.AppendEncode(b, value)
	return append(b, '"')
}

func appendList[W ~uint64](b []byte, name string, list []W) []byte {
	b = append(field(b, name), '"')
	b = machine.AppendWords(b, list)
	return append(b, '"')
}

func appendTexts(b []byte, name string, list []string) []byte {
	b = append(field(b, name), '[')
	for _, s := range list {
		b = openai.AppendString(comma(b), s)
	}
	return append(b, ']')
}

// appendHeaders writes headers. In place of a header that may carry credentials it writes the result of standIn, if
// that is not nil: digests, which plug-ins can compare. It leaves out credentials in the query of a path or an address.
func appendHeaders(b []byte, list header.List, standIn func(h header.Header) string) []byte {
	b = append(field(b, "headers"), '[')
	var hidden header.List
	for _, h := range list {
		switch {
		case !header.Secret(h.Name):
			b = appendPair(b, header.Header{Name: h.Name, Value: header.Open(h.Value)})
		case standIn == nil:
			hidden = append(hidden, header.Header{Name: h.Name})
		default:
			hidden = append(hidden, header.Header{Name: h.Name, Value: standIn(h)})
		}
	}
	return appendPairs(append(b, ']'), "hidden", hidden)
}

// list returns the headers, the hidden ones behind the others.
func (h headers) list(hidden headers) header.List {
	out := make(header.List, 0, len(h)+len(hidden))
	for _, x := range slices.Concat(h, hidden) {
		out = append(out, header.Header{Name: x[0], Value: x[1]})
	}
	return out
}

// standIn returns the text in place of a credential: "" unless plug-ins compare it.
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

// AppendRequest appends a request in the log's form. It reads nothing that changes, so that the request's own goroutine
// may call it beforehand.
func (o *Options) AppendRequest(b []byte, r *picker.Request) []byte {
	return append(o.appendRequest(append(b, '{'), r, true), '}')
}

// appendRequest appends the fields of a request; with whole, also those of its prompts.
func (o *Options) appendRequest(b []byte, r *picker.Request, whole bool) []byte {
	b = appendText(b, "id", r.ID)
	b = appendHeaders(b, r.Headers, o.standIn)
	b = appendInt(b, "bytes", r.SizeBytes)
	if r.HasSubset {
		b = appendTexts(b, "subset", r.Subset)
	}
	if r.Body != nil {
		b = o.appendBody(field(b, "body"), r.Body, whole)
	}
	return b
}

func (o *Options) appendBody(b []byte, x *parse.Body, whole bool) []byte {
	b = append(b, '{')
	b = appendText(b, "kind", x.Kind.String())
	b = appendText(b, "parser", x.Parser)
	b = appendText(b, "model", x.Model)
	b = appendTrue(b, "stream", x.Stream)
	if x.MaxOutputTokens >= 0 {
		b = strconv.AppendInt(field(b, "max"), x.MaxOutputTokens, 10)
	}
	b = appendText(b, "salt", x.CacheSalt)
	b = appendInt(b, "multimodal", x.Multimodal)
	if len(x.Assets) > 0 {
		list := make([]uint64, 0, 2*len(x.Assets))
		for i := range x.Assets {
			list = append(list, x.Assets[i].Hash, uint64(x.Assets[i].Tokens))
		}
		b = appendList(b, "assets", list)
	}
	b = appendTrue(b, "wrapped", x.Wrapped)
	b = appendTrue(b, "skip", x.SkipResponse)
	if !whole {
		return append(b, '}')
	}
	if len(x.Prompts) > 0 {
		b = o.appendPrompts(b, x.Prompts, false)
	}
	if o.Bodies && !x.Described {
		b = appendBytes(b, "raw", x.Raw())
	}
	return append(b, '}')
}

func (o *Options) appendPrompts(b []byte, list []parse.Prompt, rendered bool) []byte {
	b = append(field(b, "prompts"), '[')
	for i := range list {
		p := &list[i]
		b = append(comma(b), '{')
		b = appendTrue(b, "ids", p.IsTokens())
		b = appendInt(b, "bytes", p.Length())
		if unit, heads := p.Heads(); unit > 0 {
			b = appendInt(b, "unit", unit)
			b = appendList(b, "heads", heads)
		}
		first := true
		p.EachKeys(func(h kv.Hasher, model string, list []kv.Key) {
			if first {
				b = append(field(b, "keys"), '[')
			} else {
				b = append(b, ',')
			}
			first = false
			b = append(b, '{')
			b = appendInt(b, "block", h.BlockTokens)
			b = appendText(b, "seed", h.Seed)
			b = appendText(b, "model", model)
			b = appendList(b, "keys", list)
			b = append(b, '}')
		})
		if !first {
			b = append(b, ']')
		}
		if o.Bodies && rendered {
			b = appendBytes(b, "tokens", p.Bytes())
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// request returns the request. It parses a recorded body again, unless p is nil.
func (x *request) request(p *picker.Picker) (*picker.Request, error) {
	r := &picker.Request{ID: x.ID, Headers: x.Headers.list(x.Hidden), SizeBytes: x.Bytes}
	if x.Subset != nil {
		r.Subset, r.HasSubset = *x.Subset, true
	}
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
		return nil, fmt.Errorf("the body's kind is %q, which this version does not know", x.Kind)
	}
	if len(x.Assets)%2 != 0 {
		return nil, fmt.Errorf("assets are pairs of numbers, found %d", len(x.Assets))
	}
	b := &x.Body
	b.Kind, b.MaxOutputTokens, b.Described, b.Prompts = kind, -1, true, prompts(x.Prompts)
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
			list := make([]kv.Key, len(k.Keys))
			for i, w := range k.Keys {
				list[i] = kv.Key(w)
			}
			p.SetKeys(kv.Hasher{BlockTokens: k.Block, Seed: k.Seed}, k.Model, list)
		}
		out = append(out, p)
	}
	return out
}
