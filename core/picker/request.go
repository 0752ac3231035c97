package picker

import (
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// newer is the newer header's value if it is there, even if empty, else the
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
	// Served is what the data plane said with the response's headers.
	Served Served
	// SizeBytes is the length of the body as it came.
	SizeBytes int

	// PromptBlocks may stand for the prompt's text: the identities of its
	// consecutive blocks of PromptBlockTokens tokens each. Simulated requests
	// carry these instead of text; a last partial block is one more identity.
	PromptBlocks      []uint64
	PromptBlockTokens int

	Model       string // as the client named it
	TargetModel string // after rewriting
	Rewrite     string // name of the InferenceModelRewrite that chose TargetModel
	Objective   Objective
	FairnessID  string
	// TTFTMs and TPOTMs are the service level objectives in milliseconds; 0 is none.
	TTFTMs, TPOTMs float64

	// Tokens is the prompt's length, real when a tokeniser answered, else
	// estimated at four bytes a token. Prepare sets the estimate.
	Tokens int
	// Attributes are what producers found out about the request, by data key;
	// nil when nobody published any.
	Attributes map[string]string
	// PromptTokens are the prompt's token ids, one slice per prompt, when a
	// tokeniser answered or the client sent ids.
	PromptTokens [][]uint32
}

// Path is the :path header.
func (r *Request) Path() string { return r.Headers.Get(":path") }

// SetAttribute publishes what a producer found out about the request.
func (r *Request) SetAttribute(key, value string) {
	if r.Attributes == nil {
		r.Attributes = map[string]string{}
	}
	r.Attributes[key] = value
}

// HasSLO says whether the client stated any service level objective.
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

// matchesSubset says whether an endpoint is in the subset hint.
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

// PreferIfAvailable says whether the client asks for a conditional decode:
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
func (p *Picker) NewRequest(headers header.List, body []byte, withBody bool, number uint64) (*Request, *apierror.Error) {
	r := &Request{Headers: headers.Normalize(), SizeBytes: len(body)}
	if r.ID = r.Headers.Get(HeaderRequestID); r.ID == "" {
		r.ID = p.RequestID(number)
	}
	if !withBody {
		return r, nil
	}
	b, err := p.Parse(apiPath(r.Headers), body)
	if err != nil {
		r.TargetModel = newer(r.Headers, HeadersModelRewrite) // for the figures
		return r, err
	}
	r.Body = b
	return r, nil
}
