package modelserver

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Head holds the values of a request's headers that a model server uses.
type Head struct {
	// RequestID keys all random draws of the request.
	RequestID string
	// Attempt is the number of times that Envoy has sent the request, from 1.
	Attempt int
	// TraceParent is the traceparent header (W3C Trace Context).
	TraceParent string
	// Fault and ReturnError are the values of FaultHeader and of llm-d-inference-sim's x-return-error.
	Fault, ReturnError string
	// Threshold asks for the finish reason of cache_hit_threshold, and Image for a picture in the answer. Both headers
	// are llm-d-inference-sim's.
	Threshold, Image bool
	// Created is the creation time in the response, in Unix seconds.
	Created int64
	// Scratch is memory that chats are parsed into; nil allocates.
	Scratch *openai.Chat
	// Memory is an earlier request that is no longer used, whose memory this one takes; nil allocates.
	Memory *Memory
	// Client reports whether the client has left, so that the server stops working for it; nil never leaves.
	Client chattemplate.Client

	room *room             // replaces Memory if no client reads the answer
	kv   *connector.Params // the body's fields about caches, if they are known
}

// FaultHeader injects a fault into one request at one server, as "kind", "kind=value" or several of them separated by
// semicolons.
const FaultHeader = "X-Windtunnel-Fault"

// Acting lists the headers that ReadHead reads, except those that only name the request. A server treats all requests
// without any of them alike.
var Acting = []string{FaultHeader, "X-Return-Error", "X-Cache-Threshold-Finish-Reason", "X-Envoy-Attempt-Count",
	"X-Send-Image"}

// ReadHead parses a request's headers. get returns the first value of a header by its name in net/http's canonical
// form, or "".
func ReadHead(get func(name string) string) Head {
	h := Head{RequestID: get("X-Request-Id"), Attempt: 1, TraceParent: get("Traceparent"), Fault: get(FaultHeader),
		ReturnError: get("X-Return-Error"),
		Threshold:   get("X-Cache-Threshold-Finish-Reason") == "true"}
	if v := get("X-Envoy-Attempt-Count"); v != "" {
		if n, err := strconv.Atoi(v); err == nil {
			h.Attempt = max(n, 1)
		}
	}
	if v := get("X-Send-Image"); v != "" {
		h.Image, _ = strconv.ParseBool(v) // an invalid value asks for none
	}
	return h
}

// id returns the id that the client chose, in the body or in the header.
func (h *Head) id(p *openai.Sampling) string { return cmp.Or(p.RequestID, h.RequestID) }

// Fault returns the fault to inject into a request: the one that its headers ask for, or else the server's own fault
// for its id.
func (r *Reader) Fault(h *Head) (lifecycle.Fault, *openai.Error) {
	if !r.IgnoreFaultHeader {
		asked := h.Fault
		if asked == "" && h.ReturnError != "" {
			asked = "status=" + h.ReturnError
		}
		if asked != "" {
			f, err := ParseFault(asked)
			return f, BadFault(err)
		}
	}
	return r.State.Fault(h.RequestID), nil
}

// BadFault returns the answer to a request whose FaultHeader is invalid; nil if err is nil.
func BadFault(err error) *openai.Error {
	if err == nil {
		return nil
	}
	return openai.Errorf(400, FaultHeader, "%v", err)
}

// ParseFault parses the value of FaultHeader.
func ParseFault(value string) (lifecycle.Fault, error) {
	f, err := lifecycle.ParseFault(value)
	if err != nil {
		err = fmt.Errorf("%s %q: %w", FaultHeader, value, err)
	}
	return f, err
}

// API is one protocol for completions.
type API struct {
	// Path is the URL path that serves the API.
	Path string
	// Read turns a body into a request.
	Read func(r *Reader, head *Head, body []byte) (*Request, *openai.Error)
	// AppendError writes the body of an error.
	AppendError func(b []byte, e *openai.Error) []byte
}

// The APIs of nearly all requests.
var (
	Chat        = &API{"/v1/chat/completions", (*Reader).readChat, openai.AppendError}
	Completions = &API{"/v1/completions", (*Reader).readCompletion, openai.AppendError}
)

// APIs lists the APIs that use the engine and are served over plain HTTP.
var APIs = []*API{
	Chat, Completions,
	{"/v1/responses", (*Reader).readResponses, openai.AppendError},
	{"/v1/messages", (*Reader).readMessages, AppendMessagesError},
	{"/v1/embeddings", (*Reader).readEmbeddings, openai.AppendError},
	{"/inference/v1/generate", (*Reader).readGenerate, openai.AppendError},
	Native,
}

// APIOf returns the API at a path, or nil.
func APIOf(path string) *API {
	switch path {
	case GRPCGenerate.Path:
		return GRPCGenerate
	case GRPCEmbed.Path:
		return GRPCEmbed
	}
	for _, a := range APIs {
		if a.Path == path {
			return a
		}
	}
	return nil
}
