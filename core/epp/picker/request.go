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

// newer returns the newer header's value if it is there, even if empty, else the
// older one's.
func newer(h header.List, names [2]string) string {
	if v, ok := h.Lookup(names[0]); ok {
		return v
	}
	return h.Get(names[1])
}

// Objective is what an InferenceObjective gives a request: its priority.
type Objective struct {
	Name     string
	Priority int
}

// Served is the data plane's word on who answered a request: metadata
// x-gateway-destination-endpoint-served of envoy.lb.
type Served struct {
	Told     bool // there was metadata of envoy.lb
	Known    bool // and it named an endpoint
	Endpoint string
}

// Request is one inference request on its way through the picker. The driver
// fills ID, Headers, Body and Subset; Prepare fills the rest.
type Request struct {
	ID      string
	Headers header.List
	// Body is the parsed body; nil for a request that has none, which is never
	// scheduled but sent to any endpoint.
	Body *parse.Body
	// Subset lists "ip:port" hints of the data plane (metadata
	// envoy.lb.subset_hint); only the address part is matched. HasSubset tells
	// an empty list from none.
	Subset    []string
	HasSubset bool
	// SizeBytes is the length of the body as it came.
	SizeBytes int

	Model       string // as the client named it
	TargetModel string // after rewriting
	Rewrite     string // name of the InferenceModelRewrite that chose TargetModel
	Objective   Objective
	FairnessID  string
	// TTFTMs and TPOTMs are the service level objectives in milliseconds; 0 is none.
	TTFTMs, TPOTMs float64
	// MaxWait is the most that it waits in flow control, whatever that is configured to;
	// 0 is no bound.
	MaxWait machine.Time

	// Tokens is the prompt's length, real when a tokeniser answered, else
	// estimated at four bytes a token. Prepare sets the estimate.
	Tokens int
	// Attributes are what producers found out about the request, by data key;
	// nil when nobody published any.
	Attributes map[string]string
	// Rendered are the prompts as a renderer made token ids of them; nil where
	// none did.
	Rendered []parse.Prompt
	// Spans are how long each HeaderProcessor took (with Options.Stopwatch).
	Spans []Span
	// Members are what plug-ins have the body carry besides, towards the endpoint.
	Members []Member
}

// Member is a member of a JSON body: the names of the objects that it is in and its own, and
// its value, which is only asked for when the body is written.
type Member struct {
	Path  []string
	Value func() ([]byte, error)
}

// HeaderOnly says that there is no body. Such a request is not scheduled but
// sent to any endpoint.
func (r *Request) HeaderOnly() bool { return r.Body == nil }

// Prompts returns the prompts that plug-ins compare: as a renderer made token ids of
// them, else as the client sent them.
func (r *Request) Prompts() []parse.Prompt {
	if r.Rendered != nil || r.Body == nil {
		return r.Rendered
	}
	return r.Body.Prompts
}

// Path returns the :path header.
func (r *Request) Path() string { return r.Headers.Get(":path") }

// SetAttribute publishes what a producer found out about the request.
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

// Remembered returns a request's header as plug-ins may keep it and hand it on: of one
// that may carry a credential its Digest. Who asks for one is a SecretReader.
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

// Digest stands for a cookie's value, or another credential, where it is
// remembered or written down: equal for equal values. That of a digest is itself; an empty value has
// none.
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
	if s == "" { // as nearly always, and an error is garbage
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

// PreferIfAvailable reports whether the client asks for a conditional decode:
// "Prefer: if-available", also inside a list.
func (r *Request) PreferIfAvailable() bool {
	v := r.Headers.Get(HeaderPrefer)
	if v == "" { // as nearly always
		return false
	}
	for part := range strings.SplitSeq(v, ",") {
		if strings.EqualFold(strings.TrimSpace(part), "if-available") {
			return true
		}
	}
	return false
}

// NewRequest begins a request from its headers, as they came, and its body.
// withBody is false when the stream ended with the headers. number makes the
// id of a request that came without one.
//
// It and Read are the costly part of a decision, and need nothing that changes:
// requests' own goroutines may call them, several at once.
func (p *Picker) NewRequest(headers header.List, body []byte, withBody bool, number uint64) (*Request,
	*apierror.Error) {
	return p.newRequest(new(Request), nil, headers, body, nil, withBody, number)
}

// NewDescribedRequest is NewRequest with a body that is described.
func (p *Picker) NewDescribedRequest(headers header.List, d *described.Body, number uint64) (*Request,
	*apierror.Error) {
	return p.newRequest(new(Request), nil, headers, nil, d, true, number)
}

// RequestMemory is memory for a described request.
type RequestMemory struct {
	request Request
	room    parse.Room
}

// NewDescribedRequestIn is NewDescribedRequest in memory that nobody needs any more.
func (p *Picker) NewDescribedRequestIn(m *RequestMemory, headers header.List, d *described.Body,
	number uint64) (*Request, *apierror.Error) {
	return p.newRequest(&m.request, &m.room, headers, nil, d, true, number)
}

func (p *Picker) newRequest(r *Request, room *parse.Room, headers header.List, body []byte, d *described.Body,
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
	b, err := p.parseAs(apiPath(r.Headers), body, d, room)
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

// readPrompts works out what plug-ins compare of prompts that have come: those
// of a body, or of a renderer.
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

// Read works out what answers say about a request's content.
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
