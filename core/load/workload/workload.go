// Package workload makes the requests that a simulated client sends: when they
// arrive and what is in them. Everything comes from one seed and the request's
// number, so a live and a virtual run of one scenario send the same bytes.
package workload

import (
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// Alphabet is what random prompts are made of.
type Alphabet uint8

// The alphabets.
const (
	ASCII        Alphabet = iota // letters, digits, spaces
	Unicode                      // any code point, one to four bytes each
	BoundaryLike                 // text that resembles a multipart delimiter
)

// API is what requests are asked by.
type API uint8

// The APIs.
const (
	Chat        API = iota
	Completions     // text to go on from a prompt
	Generate        // the same, by vLLM's gRPC
	Embed           // the embedding of a prompt, by vLLM's gRPC
	Messages        // the next turn of a chat, by Anthropic's API
	Responses       // the same, by OpenAI's Responses API
)

// GRPC says whether requests are calls of a gRPC service.
func (a API) GRPC() bool { return a == Generate || a == Embed }

// Path is where requests go.
func (a API) Path() string {
	return [...]string{"/v1/chat/completions", "/v1/completions", vllmgrpc.GeneratePath, vllmgrpc.EmbedPath,
		"/v1/messages", "/v1/responses"}[a]
}

// Config is what the requests of one run have in common.
type Config struct {
	Seed      uint64
	Model     string
	Stream    bool
	MaxTokens int // 0 leaves it to the model server
	// Output is how many tokens each answer has; nil leaves it to MaxTokens.
	Output func(d *machine.Draw) int
	// Text is the prompt; empty draws one whose length comes from Length, in
	// bytes of UTF-8 or in characters.
	Text       string
	Length     func(d *machine.Draw) int
	Characters bool
	Alphabet   Alphabet
	// Prefixes are beginnings that prompts share: each prompt begins with one
	// of them, drawn evenly. None is none.
	Prefixes []string
	// Rate is arrivals of conversations per second; 0 means that one begins when an
	// earlier one ends.
	Rate float64
	// Process is how the times between arrivals are distributed, and Burstiness the
	// shape of gamma and Weibull: their gaps vary more than Poisson's below 1, and
	// less above.
	Process    Process
	Burstiness float64
	// Phases, if not nil, are how the rate goes, one after the other (from 0); Rate
	// is then no number of anything, and above 0. None has an empty time.
	Phases func(number int) (p Phase, more bool)
	// Until, if above 0, is when no conversation begins any more.
	Until machine.Time

	// Recorded, if not nil, are the requests, with the times at which they arrive.
	// Rate, which is then no number of anything, is above 0. Where they are Untimed
	// they arrive as others would.
	Recorded []Recorded
	Untimed  bool

	// Requests is how many there are in all; 0 is no end.
	Requests int
	// Turns is how many requests a conversation has, and ThinkTime how long its
	// user thinks between an answer and the next request, in nanoseconds. Nil is
	// one, and none.
	Turns, ThinkTime func(d *machine.Draw) int64
	// SessionHeader carries the conversation's name; empty is none.
	SessionHeader string
	// Headers are further ones, each of a share of the requests.
	Headers []Header
	// Adapters are LoRA adapters that conversations ask for in the place of the
	// model.
	Adapters []Adapter
	// Path is where requests go, "" the API's own; Host is the host that they name, ""
	// where they are sent.
	Path, Host string
	// API is what is asked for. Tokenizer makes tokens of the prompts of Embed.
	API       API
	Tokenizer tokens.Tokenizer
	// Fields are more fields of every body: the inside of a JSON object.
	Fields []byte
	// Leaving is who does not wait for the answer.
	Leaving Leaving
	// Class names the class of traffic that this makes, if it is one of several.
	Class string
	// SLO is what a good request keeps to, for the record.
	SLO string
	// Classes, if there are any, make the conversations, each a share of them.
	Classes []Class

	// Of requests that are described (Describe), and for Prefixes.
	fields     map[asked]*described.Fields
	shared     []*described.Shared
	recordings *recordings
}

// Adapter is a LoRA adapter and the part of all conversations that ask for it.
type Adapter struct {
	Name  string
	Share float64
}

// Leaving is clients that go away on purpose: those with Numbers (from 0) and
// the part Share of all others, or every one where it has neither. After is
// when, in nanoseconds after the request was sent; nil is never.
type Leaving struct {
	Share   float64
	Numbers map[int]bool
	After   func(d *machine.Draw) int64
}

// Request is one request of a workload.
type Request struct {
	// ID goes into x-request-id and names the request in every record.
	ID    string
	Index int
	// Path is where it goes, with a query or without; Host the host that it names, "" the
	// one where it is sent.
	Path, Host string
	// Model is what it asks for.
	Model string
	// GRPC says that the request is a call of a gRPC service.
	GRPC bool
	// Class is that of the traffic, if there are several, and SLO what a good request
	// keeps to.
	Class, SLO string
	// Header is what is sent besides the content's type and the id.
	Header header.List
	// Body is what is sent, unless it is Described, which has Fields then.
	Body      []byte
	Described described.Body
}

// IsDescribed says whether there is a description of the body and not the body.
func (r *Request) IsDescribed() bool { return r.Described.Fields != nil }

// Len is the length of the body.
func (r *Request) Len() int {
	if r.IsDescribed() {
		return r.Described.Len()
	}
	return len(r.Body)
}

// Bytes are the body.
func (r *Request) Bytes() []byte {
	if r.Body == nil && r.IsDescribed() {
		r.Body = r.Described.Bytes()
	}
	return r.Body
}

// ContentType is that of the body.
func (r *Request) ContentType() string {
	if r.GRPC {
		return vllmgrpc.ContentType
	}
	return "application/json"
}

// Sent is what the record says of the request when it is sent: of a long body
// the beginning.
func (r *Request) Sent() []record.Detail {
	first := r.Body
	if r.IsDescribed() {
		first = r.Described.AppendFirst(nil, maxShown)
	}
	body := string(first[:min(len(first), maxShown)])
	if r.GRPC { // it is no text
		body = strings.Trim(strconv.QuoteToASCII(body), `"`)
	} else if r.Len() > maxShown {
		body = strings.ToValidUTF8(body[:maxShown-len("…")], "") + "…"
	}
	return append([]record.Detail{record.D("path", header.Open(r.Path)), record.D("bytes", r.Len()),
		record.D("body", body)},
		r.Told()...)
}

// Told is the part of Sent that summaries read.
func (r *Request) Told() []record.Detail { return record.SentDetails(r.Class, r.SLO) }

// maxShown is how long a body is that is shown whole.
const maxShown = 120

// ID is the id of the request with this number (from 0).
func (c *Config) ID(index int) string { return record.RequestID(c.Seed, index+1) }

// Prefix is what the ids of the workload's requests begin with.
func (c *Config) Prefix() string { return record.RequestPrefix(c.Seed) }

// Request makes the request with this number (from 0) as the first one of a
// conversation.
func (c *Config) Request(index int) Request {
	v := &Conversation{Index: index, First: index, Turns: 1, c: c, model: c.adapter(index)}
	return v.Request()
}

// prompt is what the user says in the request with this number.
func (c *Config) prompt(index int) string {
	if c.Text != "" {
		return c.Text
	}
	d, n := c.drawn(index)
	return text(&d, c.Alphabet, n, c.Characters)
}

// output is how long the answer to the request with this number is, 0 where it is
// not said.
func (c *Config) output(index int) int {
	if c.Output == nil {
		return 0
	}
	d := machine.NewDraw(c.Seed, "client", "output", uint64(index))
	return max(1, c.Output(&d))
}

// drawn is what a random prompt is drawn from, and how long it is.
func (c *Config) drawn(index int) (machine.Draw, int) {
	d := machine.NewDraw(c.Seed, "client", "prompt", uint64(index))
	n := 64
	if c.Length != nil {
		n = c.Length(&d)
	}
	return d, n
}

var boundaryPieces = []string{"\r\n--windtunnel-", "--", "\r\n", "\r\n--", "windtunnel-", "--\r\n",
	"Content-Disposition: form-data; name=\"metadata\"\r\n\r\n", "x"}

// text is n bytes, or n characters, of an alphabet. A length in bytes is met
// exactly except where the alphabet's characters have several bytes: then the
// rest is filled with 'x'.
func text(d *machine.Draw, a Alphabet, n int, characters bool) string {
	if a == ASCII { // nearly always, and long
		t := described.Letters(*d, n)
		return t.String()
	}
	var b strings.Builder
	count := 0
	size := func() int {
		if characters {
			return count
		}
		return b.Len()
	}
	for size() < n {
		var piece string
		switch a {
		case Unicode:
			piece = string(rune(unicodePoint(d)))
		case BoundaryLike:
			piece = boundaryPieces[d.Intn(len(boundaryPieces))]
		}
		if !characters && b.Len()+len(piece) > n || characters && a == BoundaryLike && count+len(piece) > n {
			piece = "x"
		}
		b.WriteString(piece)
		count++
		if a == BoundaryLike {
			count += len(piece) - 1
		}
	}
	return b.String()
}

// unicodePoint draws from all planes that have characters, leaving out the
// surrogates, which UTF-8 cannot carry.
func unicodePoint(d *machine.Draw) int {
	for {
		ranges := [4][2]int{{0x20, 0x7e}, {0xa0, 0x7ff}, {0x800, 0xffff}, {0x10000, 0x10ffff}}
		r := ranges[d.Intn(4)]
		p := r[0] + d.Intn(r[1]-r[0]+1)
		if p < 0xd800 || p > 0xdfff {
			return p
		}
	}
}

// Header is one that a share of the requests has, 0 to 1.
type Header struct {
	header.Header
	Share float64
}

// headers are a request's.
func (c *Config) headers(index int) header.List {
	var out header.List
	for i, h := range c.Headers {
		d := machine.NewDraw(c.Seed, "client", "header "+h.Name+" "+h.Value, uint64(index)<<8|uint64(i))
		if h.Share >= 1 || d.Float64() < h.Share {
			out = append(out, h.Header)
		}
	}
	return out
}
