package modelserver

import (
	"fmt"
	"strconv"

	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Head is what of a request's headers acts at a model server.
type Head struct {
	// RequestID keys all that is random about the request.
	RequestID string
	// Attempt counts the times that Envoy has sent the request, from 1.
	Attempt int
	// TraceParent is the header of that name (W3C Trace Context).
	TraceParent string
	// Fault and ReturnError are the values of FaultHeader and of
	// llm-d-inference-sim's own.
	Fault, ReturnError string
	// Threshold asks for the finish reason of cache_hit_threshold, and Image for a
	// picture in the answer, both as llm-d-inference-sim has it.
	Threshold, Image bool
	// Created is the Unix time, in seconds, that the response tells.
	Created int64
	// Scratch is memory that chats are parsed into; nil takes new memory.
	Scratch *openai.Chat
	// Memory is where the request is read into, which is one of before that nobody
	// needs any more; nil takes new memory.
	Memory *Memory
	// Client reports whether it has left, so that no more work is done for it; nil
	// never leaves.
	Client chattemplate.Client

	room *room             // instead of Memory, where nobody reads the answer
	kv   *connector.Params // what the body says of caches, where that is known
}

// FaultHeader asks one server for a fault in one request, as
// "kind", "kind=value" or several of them separated by semicolons.
const FaultHeader = "X-Windtunnel-Fault"

// Acting are the headers that ReadHead reads, but for those that only name the request: one
// that has none of them goes through a server as all do.
var Acting = []string{FaultHeader, "X-Return-Error", "X-Cache-Threshold-Finish-Reason", "X-Envoy-Attempt-Count",
	"X-Send-Image"}

// ReadHead reads a request's headers; get returns the first value under a name
// in net/http's canonical form, or "".
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
		h.Image, _ = strconv.ParseBool(v) // anything else asks for none
	}
	return h
}

// id is the id that the client gave, in the body or in the header.
func (h *Head) id(p *openai.Sampling) string {
	if p.RequestID != "" {
		return p.RequestID
	}
	return h.RequestID
}

// Fault is what goes wrong with a request: what its headers ask for, or
// what the server has for its id.
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

// BadFault is the answer to a request whose FaultHeader cannot be done; nil where
// err is.
func BadFault(err error) *openai.Error {
	if err == nil {
		return nil
	}
	return openai.Errorf(400, FaultHeader, "%v", err)
}

// ParseFault reads the value of FaultHeader.
func ParseFault(value string) (lifecycle.Fault, error) {
	f, err := lifecycle.ParseFault(value)
	if err != nil {
		err = fmt.Errorf("%s %q: %w", FaultHeader, value, err)
	}
	return f, err
}

// API is one way of asking for tokens.
type API struct {
	// Path is where it is served.
	Path string
	// Read turns a body into a request.
	Read func(r *Reader, head *Head, body []byte) (*Request, *openai.Error)
	// AppendError writes the body of an error.
	AppendError func(b []byte, e *openai.Error) []byte
}

// The two that nearly all requests are for.
var (
	Chat        = &API{"/v1/chat/completions", (*Reader).readChat, openai.AppendError}
	Completions = &API{"/v1/completions", (*Reader).readCompletion, openai.AppendError}
)

// APIs are those that go through the engine and are served over plain HTTP.
var APIs = []*API{
	Chat, Completions,
	{"/v1/responses", (*Reader).readResponses, openai.AppendError},
	{"/v1/messages", (*Reader).readMessages, AppendMessagesError},
	{"/v1/embeddings", (*Reader).readEmbeddings, openai.AppendError},
	{"/inference/v1/generate", (*Reader).readGenerate, openai.AppendError},
	Native,
}

// APIOf is the API that is served at a path, or nil.
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
