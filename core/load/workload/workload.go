// Package workload makes the requests of a simulated client: their arrivals and their content. Everything depends only
// on one seed and the request's number, so a live and a virtual run of a scenario send the same bytes. Begin to read at
// Config and Loop.
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

// Alphabet is the set of characters of random prompts.
type Alphabet uint8

// The alphabets.
const (
	ASCII        Alphabet = iota // letters, digits, spaces
	Unicode                      // any code point, one to four bytes each
	BoundaryLike                 // text that resembles a multipart delimiter
)

// API is the API of requests.
type API uint8

// The APIs.
const (
	Chat        API = iota
	Completions     // the continuation of a prompt
	Generate        // the same, by vLLM's gRPC
	Embed           // the embedding of a prompt, by vLLM's gRPC
	Messages        // the next turn of a chat, by Anthropic's API
	Responses       // the same, by OpenAI's Responses API
)

// GRPC reports whether requests are calls of a gRPC service.
func (a API) GRPC() bool { return a == Generate || a == Embed }

// Path returns the path of requests.
func (a API) Path() string {
	return [...]string{"/v1/chat/completions", "/v1/completions", vllmgrpc.GeneratePath, vllmgrpc.EmbedPath,
		"/v1/messages", "/v1/responses"}[a]
}

// Config determines the requests of a run. Seed and a request's number determine everything in it.
type Config struct {
	Seed      uint64
	Model     string
	Stream    bool
	MaxTokens int // 0 leaves it to the model server
	// Output draws the number of tokens of an answer; nil leaves it to MaxTokens.
	Output func(d *machine.Draw) int
	Prompts
	Schedule
	// Recorded, if not nil, are the requests, with their arrival times. Rate is then only above 0. If they are Untimed,
	// they arrive as generated ones.
	Recorded []Recorded
	Untimed  bool
	// Requests is the number of requests; 0 is unlimited.
	Requests int
	// Turns draws the number of requests of a conversation, ThinkTime the user's pause between an answer and the next
	// request in nanoseconds. Nil is one, and no pause.
	Turns, ThinkTime func(d *machine.Draw) int64
	// SessionHeader is the header with the conversation's name; empty is none.
	SessionHeader string
	// Headers are further headers, each for a share of the requests.
	Headers []Header
	// Adapters are LoRA adapters that conversations ask for in place of the model.
	Adapters []Adapter
	// Path is the path of requests, "" the API's own. Host is the host that they name, "" the gateway's.
	Path, Host string
	// API is the API of requests. Tokenizer tokenizes the prompts of Embed.
	API       API
	Tokenizer tokens.Tokenizer
	// Fields are further fields of every body: the inside of a JSON object.
	Fields []byte
	// Leaving are clients that do not wait for the answer.
	Leaving Leaving
	// Class is the class of traffic of these requests, if there are several.
	Class string
	// SLO are the objectives of a good request, for the record.
	SLO string
	// Classes, if there are any, make the conversations, each a share of them.
	Classes []Class

	descriptions
}

// Prompts determines the prompts of requests.
type Prompts struct {
	// Text is the prompt; with "", prompts are random, and Length draws their length in bytes of UTF-8 or in
	// Characters.
	Text       string
	Length     func(d *machine.Draw) int
	Characters bool
	Alphabet   Alphabet
	// Prefixes are shared beginnings: each prompt begins with one of them, drawn evenly. None is none.
	Prefixes []string
}

// Schedule determines when conversations arrive.
type Schedule struct {
	// Rate is the number of conversations per second; with 0, one begins when an earlier one ends.
	Rate float64
	// Process is the distribution of the times between arrivals. Burstiness is the shape of gamma and Weibull: below 1,
	// their gaps vary more than Poisson's, above 1 less.
	Process    Process
	Burstiness float64
	// Phases, if not nil, returns the consecutive rates, from number 0. Rate is then only above 0. No phase is empty.
	Phases func(number int) (p Phase, more bool)
	// Until, if above 0, is the time after which no conversation begins.
	Until machine.Time
	// Shares is how many clients divide the conversations of an open loop: this one begins those whose number modulo
	// Shares is Share. With 0, one client begins all of them.
	Share, Shares int
}

// descriptions are shared by described requests (Describe).
type descriptions struct {
	fields     map[asked]*described.Fields
	shared     []*described.Shared // of Prefixes
	recordings *recordings
}

// Adapter is a LoRA adapter and the part of all conversations that ask for it.
type Adapter struct {
	Name  string
	Share float64
}

// Leaving are clients that leave on purpose: those of the requests with Numbers (from 0) and of the part Share of all
// others, or all if both are empty. After draws when, in nanoseconds after the request; nil is never.
type Leaving struct {
	Share   float64
	Numbers map[int]bool
	After   func(d *machine.Draw) int64
}

// Request is one request of a workload.
type Request struct {
	// ID is the x-request-id, and names the request in every record.
	ID    string
	Index int
	// Path may have a query. Host is the host that it names, "" the gateway's.
	Path, Host string
	Model      string
	// GRPC: the request is a call of a gRPC service.
	GRPC bool
	// Class is the class of traffic, if there are several. SLO are the objectives of a good request.
	Class, SLO string
	// Header has the headers besides content-type and x-request-id.
	Header header.List
	// Body is the body, unless Described has Fields.
	Body      []byte
	Described described.Body
}

// IsDescribed reports whether the request has a description of its body in place of the body.
func (r *Request) IsDescribed() bool { return r.Described.Fields != nil }

// Len returns the length of the body in bytes.
func (r *Request) Len() int {
	if r.IsDescribed() {
		return r.Described.Len()
	}
	return len(r.Body)
}

// Bytes returns the body.
func (r *Request) Bytes() []byte {
	if r.Body == nil && r.IsDescribed() {
		r.Body = r.Described.Bytes()
	}
	return r.Body
}

// ContentType returns the content type of the body.
func (r *Request) ContentType() string {
	if r.GRPC {
		return vllmgrpc.ContentType
	}
	return "application/json"
}

// Sent returns the details of the request in the record, with the beginning of a long body.
func (r *Request) Sent() []record.Detail {
	first := r.Body
	if r.IsDescribed() {
		first = r.Described.AppendFirst(nil, maxShown)
	}
	body := string(first[:min(len(first), maxShown)])
	if r.GRPC { // it is binary
		body = strings.Trim(strconv.QuoteToASCII(body), `"`)
	} else if r.Len() > maxShown {
		body = strings.ToValidUTF8(body[:maxShown-len("…")], "") + "…"
	}
	return append([]record.Detail{record.D("path", header.Open(r.Path)), record.D("bytes", r.Len()),
		record.D("body", body)},
		r.Counted()...)
}

// Counted returns the details of Sent that summaries read.
func (r *Request) Counted() []record.Detail { return record.SentDetails(r.Class, r.SLO) }

// maxShown is the largest body that the record has whole, in bytes.
const maxShown = 120

// ID returns the id of the request with this number (from 0).
func (c *Config) ID(index int) string { return record.RequestID(c.Seed, index+1) }

// Prefix returns the beginning of the ids of all requests.
func (c *Config) Prefix() string { return record.RequestPrefix(c.Seed) }

// Request returns the request with this number (from 0) as the only one of a conversation.
func (c *Config) Request(index int) Request {
	v := &Conversation{Index: index, First: index, Turns: 1, c: c, model: c.adapter(index)}
	return v.Request()
}

// prompt returns the user's text in the request with this number.
func (c *Config) prompt(index int) string {
	if c.Text != "" {
		return c.Text
	}
	d, n := c.drawn(index)
	return text(&d, c.Alphabet, n, c.Characters)
}

// output returns the number of tokens of the answer to the request with this number, 0 if not given.
func (c *Config) output(index int) int {
	if c.Output == nil {
		return 0
	}
	d := machine.NewDraw(c.Seed, "client", "output", uint64(index))
	return max(1, c.Output(&d))
}

// drawn returns the draws of a random prompt, and its length.
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

// text returns n bytes, or n characters, of an alphabet. If a character of several bytes exceeds a length in bytes, 'x'
// fills the rest.
func text(d *machine.Draw, a Alphabet, n int, characters bool) string {
	if a == ASCII { // the fast path
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

// unicodePoint draws from all planes with characters, except the surrogates, which UTF-8 cannot encode.
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

// Header is a header for a share of the requests, 0 to 1.
type Header struct {
	header.Header
	Share float64
}

// headers draws the headers of a request.
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
