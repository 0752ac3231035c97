package picker

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// newer returns the newer header's value if it exists, even if empty, else the older one's.
func newer(h header.List, names [2]string) string {
	if v, ok := h.Lookup(names[0]); ok {
		return v
	}
	return h.Get(names[1])
}

// Objective is a request's InferenceObjective.
type Objective struct {
	Name     string `json:"objective,omitempty"`
	Priority int    `json:"priority,omitempty"`
}

// Served is the data plane's report on the endpoint that answered a request: metadata
// x-gateway-destination-endpoint-served of envoy.lb.
type Served struct {
	Given    bool // there was metadata of envoy.lb
	Known    bool // the metadata named an endpoint
	Endpoint string
}

// Request is one inference request in the picker. The driver sets ID, Headers, Body and Subset; Prepare sets the rest.
type Request struct {
	ID      string
	Headers header.List
	// Body is the parsed body; nil for a request without one, which goes to any endpoint, unscheduled.
	Body *parse.Body
	// Subset lists the data plane's "ip:port" hints (metadata envoy.lb.subset_hint). Only the address is matched.
	// HasSubset distinguishes an empty list from none.
	Subset    []string
	HasSubset bool
	// SizeBytes is the length of the body as received.
	SizeBytes int

	Prepared

	// MaxWait limits the time in flow control, in addition to the configured limit; 0 is no limit.
	MaxWait machine.Time

	// Rendered are the prompts as token ids from a renderer; nil without one.
	Rendered []parse.Prompt
	// Spans are the HeaderProcessors' durations (with Options.Stopwatch).
	Spans []Span
	// Members are the fields that plug-ins add to the body for the endpoint.
	Members []Member
}

// Prepared holds the findings of Prepare about a request. The tags are its names in recordings.
type Prepared struct {
	Model       string `json:"model,omitempty"`       // as the client named it
	TargetModel string `json:"targetModel,omitempty"` // after rewriting
	Rewrite     string `json:"rewrite,omitempty"`     // name of the InferenceModelRewrite that chose TargetModel

	Objective
	FairnessID string `json:"fairness,omitempty"`

	// TTFTMs and TPOTMs are the service level objectives in milliseconds; 0 is none.
	TTFTMs float64 `json:"ttftMs,omitempty"`
	TPOTMs float64 `json:"tpotMs,omitempty"`

	// Tokens is the prompt's length: exact if a tokeniser answered, else estimated at four bytes a token.
	Tokens int `json:"tokens,omitempty"`

	// Attributes are producers' findings about the request, by data key; nil if there are none.
	Attributes map[string]string `json:"attributes,omitempty"`
}

// Member is a member of a JSON body: the names of the enclosing objects and its own, and a function that returns its
// value when the body is written.
type Member struct {
	Path  []string
	Value func() ([]byte, error)
}

// HeaderOnly reports whether there is no body. Such a request goes to any endpoint, unscheduled.
func (r *Request) HeaderOnly() bool { return r.Body == nil }

// Prompts returns the prompts that plug-ins compare: a renderer's token ids, else the client's prompts.
func (r *Request) Prompts() []parse.Prompt {
	if r.Rendered != nil || r.Body == nil {
		return r.Rendered
	}
	return r.Body.Prompts
}

// Path returns the :path header.
func (r *Request) Path() string { return r.Headers.Get(":path") }

// SetAttribute publishes a producer's finding about the request.
func (r *Request) SetAttribute(key, value string) {
	if r.Attributes == nil {
		r.Attributes = map[string]string{}
	}
	r.Attributes[key] = value
}

// Cookie returns the first cookie of a name.
func Cookie(h header.List, name string) (value string, ok bool) {
	for part := range strings.SplitSeq(h.Get("cookie"), ";") {
		if k, v, found := strings.Cut(strings.TrimSpace(part), "="); found && k == name {
			return v, true
		}
	}
	return "", false
}

// Remembered returns a request's header in a form that plug-ins may keep and forward: the Digest of a header that may
// carry a credential. A plug-in that asks for one is a SecretReader.
func (r *Request) Remembered(name string) string {
	v := r.Headers.Get(name)
	if header.Secret(name) {
		return Digest(v)
	}
	return v
}

// Secrets returns those of some headers that may carry credentials, for a SecretReader.
func Secrets(headers ...string) (names []string) {
	for _, name := range headers {
		if header.Secret(name) {
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// Digest returns a replacement for a credential, such as a cookie's value, wherever it is kept or written. Equal values
// have equal digests. A digest's digest is itself, and an empty value's is empty.
func Digest(value string) string {
	const mark = "sha256:"
	if value = strings.TrimSpace(value); value == "" || strings.HasPrefix(value, mark) && len(value) == len(mark)+32 {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return mark + hex.EncodeToString(sum[:16])
}

// HasSLO reports whether the client stated any service level objective.
func (r *Request) HasSLO() bool { return r.TTFTMs > 0 || r.TPOTMs > 0 }

func parseMs(s string) float64 {
	if s == "" { // the usual case; an error would allocate
		return 0
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || v > 1e12 {
		return 0
	}
	return v
}

// matchesSubset reports whether an endpoint is in the subset hint.
func (r *Request) matchesSubset(e *Endpoint) bool {
	for _, s := range r.Subset {
		ip := s
		if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.IndexByte(s, ':') == i {
			ip = s[:i]
		} else if strings.HasPrefix(s, "[") {
			if j := strings.IndexByte(s, ']'); j > 0 {
				ip = s[1:j]
			}
		}
		if ip == e.Address {
			return true
		}
	}
	return false
}

// PreferIfAvailable reports whether the client asks for a conditional decode: "Prefer: if-available", alone or in a
// list.
func (r *Request) PreferIfAvailable() bool {
	v := r.Headers.Get(HeaderPrefer)
	if v == "" { // the usual case
		return false
	}
	for part := range strings.SplitSeq(v, ",") {
		if strings.EqualFold(strings.TrimSpace(part), "if-available") {
			return true
		}
	}
	return false
}

// NewRequest starts a request from its headers and body as received. withBody is false if the stream ended with the
// headers. number makes the id of a request without one.
//
// NewRequest and Read are the costly part of a decision and use no changing state: requests' goroutines may call them
// concurrently.
func (p *Picker) NewRequest(headers header.List, body []byte, withBody bool, number uint64) (*Request,
	*apierror.Error) {
	return p.newRequest(new(Request), nil, headers, body, nil, withBody, number)
}

// NewDescribedRequest is NewRequest with a described body.
func (p *Picker) NewDescribedRequest(headers header.List, d *described.Body, number uint64) (*Request,
	*apierror.Error) {
	return p.newRequest(new(Request), nil, headers, nil, d, true, number)
}

// RequestMemory is reusable memory for a described request.
type RequestMemory struct {
	request Request
	memory  parse.Memory
}

// NewDescribedRequestIn is NewDescribedRequest in reused memory.
func (p *Picker) NewDescribedRequestIn(m *RequestMemory, headers header.List, d *described.Body,
	number uint64) (*Request, *apierror.Error) {
	return p.newRequest(&m.request, &m.memory, headers, nil, d, true, number)
}

func (p *Picker) newRequest(r *Request, memory *parse.Memory, headers header.List, body []byte, d *described.Body,
	withBody bool, number uint64) (*Request, *apierror.Error) {
	*r = Request{Headers: headers.Normalize(), SizeBytes: len(body)}
	if d != nil {
		r.SizeBytes = d.Len()
	}
	if r.ID = r.Headers.Get(HeaderRequestID); r.ID == "" {
		r.ID = p.RequestID(number)
	}
	if !withBody {
		return r, nil
	}
	b, err := p.parseAs(apiPath(r.Headers), body, d, memory)
	if err != nil {
		r.TargetModel = newer(r.Headers, HeadersModelRewrite) // for the metrics
		return r, err
	}
	r.Body = b
	for _, x := range p.bodyReaders {
		err = first(err, p.Guard(x, func() { x.ReadBody(r) }))
	}
	return r, first(err, p.readPrompts(r, b.Prompts))
}

// readPrompts prepares what plug-ins compare of prompts, from a body or a renderer.
func (p *Picker) readPrompts(r *Request, prompts []parse.Prompt) (err *apierror.Error) {
	for i := range prompts {
		switch {
		case p.unit > 0 && p.opt.OwnNames:
			prompts[i].DivideAlone(p.unit, p.unitLimit)
		case p.unit > 0:
			prompts[i].Divide(p.unit, p.unitLimit)
		}
		for _, x := range p.promptReaders {
			err = first(err, p.Guard(x, func() { x.ReadPrompt(r, &prompts[i]) }))
		}
	}
	return err
}

// Read prepares what the answers say about a request's content.
func (p *Picker) Read(r *Request, answers []Answer) {
	for i := range answers {
		if answers[i].Err != nil {
			continue
		}
		pl := p.Plugin(answers[i].Plugin)
		if x, ok := pl.(LatencyReader); ok && answers[i].Latencies == nil {
			if err := p.Guard(x, func() { x.ReadLatencies(&answers[i]) }); err != nil {
				answers[i].Err = err
			}
		}
		x, ok := pl.(AnswerReader)
		if !ok {
			continue
		}
		err := p.Guard(x, func() { x.ReadAnswer(&answers[i]) })
		if err = first(err, p.readPrompts(r, answers[i].Prompts)); err != nil {
			answers[i].Err = err
		}
	}
}
