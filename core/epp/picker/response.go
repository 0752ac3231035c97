package picker

import (
	"cmp"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// maxBuffered bounds the bytes of a non-streaming response that are kept to read its usage. Longer responses pass
// unread.
const maxBuffered = 32 << 20

// Response is the picker's side of one response. It restores the client's model name, reads token usage and runs the
// plug-ins' hooks.
//
// Reading (NewResponse, Read, Close) uses only the request's own data, in the request's goroutine. Hooks
// (RunHeaderHooks, RunBodyHooks) run in the picker's turn on what was read until then.
type Response struct {
	Decision *Decision // nil when the response belongs to no scheduled request
	Status   string    // HTTP status, such as "200"
	Headers  header.List
	// Streaming states that chunks are forwarded one by one (SSE, or the client asked for a stream).
	Streaming bool
	StartedAt machine.Time
	// Served is the data plane's report that came with the headers.
	Served Served
	Progress
	// Err is the first panic of a plug-in at this response.
	Err *apierror.Error
	// Reads counts how often the body was parsed: each piece of a stream and its trailers, else once at the end.
	Reads int
	// Spans are the hooks' durations (with Options.Stopwatch). The driver removes them, since a response may be long.
	Spans []Span

	chunk     []byte
	described bool // there are no chunks, only Progress
	ended     bool // nothing more will be read
	reported  bool // the hooks have run for the end
	set       header.List
	metadata  map[string]map[string]any
	parser    parse.Parser
	buffer    []byte
	events    bool // the model server sends events
	stream    sse.Scanner
	overflow  bool // too long to be kept
	p         *Picker
}

// Progress is the state of a response's body so far. The tags are its names in the log of inputs.
type Progress struct {
	// First and End are true during the hooks for the first and the last chunk.
	First       bool `json:"first"`
	End         bool `json:"end"`
	parse.Usage      // valid with HasUsage
	HasUsage    bool `json:"usage"`
	// Bytes is the length of the body so far, Chunks the number of its pieces.
	Bytes  int64 `json:"bytes"`
	Chunks int   `json:"chunks"`
	// FirstAt and LastAt are the times of the first and the last non-empty chunk.
	FirstAt machine.Time `json:"firstAt"`
	LastAt  machine.Time `json:"lastAt"`
	// Events counts a stream's events. With vLLM each is one token.
	Events int `json:"events"`
}

// Chunk returns the chunk for the hooks, as the model server sent it.
func (r *Response) Chunk() []byte {
	if r.described {
		panic(&parse.Unknown{What: "the response's bytes"})
	}
	return r.chunk
}

// SetHeader sets a header of the response. The last plug-in that sets one wins.
func (r *Response) SetHeader(name, value string) {
	r.set = append(slices.DeleteFunc(r.set, func(h header.Header) bool { return h.Name == name }),
		header.Header{Name: name, Value: value})
}

// SetMetadata adds dynamic metadata to the last body message.
func (r *Response) SetMetadata(namespace, key string, value any) {
	if r.metadata == nil {
		r.metadata = map[string]map[string]any{}
	}
	if r.metadata[namespace] == nil {
		r.metadata[namespace] = map[string]any{}
	}
	r.metadata[namespace][key] = value
}

// Hooks states in which parts of a response plug-ins take part. Without any a Response belongs to its request alone: a
// driver of many concurrent requests then needs no turns for it.
type Hooks struct {
	ResponseHeader, ResponseBody bool
	// ResponseChunks: some also read the response's bytes.
	ResponseChunks bool
}

// Hooks returns the hooks for which there are plug-ins.
func (p *Picker) Hooks() Hooks {
	h := Hooks{ResponseHeader: len(p.responseHeaders) > 0, ResponseBody: len(p.responseBodies) > 0}
	for _, x := range p.responseBodies {
		if progress, ok := x.(ProgressReader); !ok || !progress.ReadsProgress() {
			h.ResponseChunks = true
		}
	}
	return h
}

// UsageReader marks a ResponseBody that reads only a response's usage. It also gets responses to requests without a
// body.
type UsageReader interface{ ReadsUsage() }

// ProgressReader is a ResponseBody that may read a Response's Progress only, and not its Chunk. ReadsProgress reports
// whether that is so; virtual time then makes no bytes for it.
type ProgressReader interface{ ReadsProgress() bool }

// NewResponse starts a response from its headers. d is nil if Envoy answered by itself before the request was decided.
func (p *Picker) NewResponse(now machine.Time, d *Decision, headers header.List) *Response {
	return p.ResponseIn(new(Response), now, d, headers)
}

// ResponseIn is NewResponse in reused memory.
func (p *Picker) ResponseIn(r *Response, now machine.Time, d *Decision, headers header.List) *Response {
	*r = Response{Decision: d, Headers: headers, p: p, StartedAt: now}
	r.Status = headers.Get(":status")
	r.events = strings.Contains(strings.ToLower(headers.Get("content-type")), "text/event-stream")
	r.Streaming = r.events
	r.parser, r.stream.Limit = parse.OpenAI{}, maxBuffered
	if r.Scheduled() {
		r.Streaming = r.Streaming || d.Request.Body.Stream
		if ps := parse.New(d.Request.Body.Parser); ps != nil {
			r.parser = ps
		}
	}
	return r
}

// Scheduled reports whether the plug-ins decided about the request. Other responses have no hooks.
func (r *Response) Scheduled() bool {
	return r.Placed() && !r.Decision.Request.HeaderOnly()
}

// Placed reports whether the request was sent to an endpoint.
func (r *Response) Placed() bool { return r.Decision != nil && r.Decision.Err == nil }

// RunHeaderHooks runs the hooks for the response's headers.
func (r *Response) RunHeaderHooks(now machine.Time) {
	if !r.Scheduled() {
		return
	}
	for _, h := range r.p.responseHeaders {
		t := r.p.Stopwatch()
		r.Err = first(r.Err, r.p.Guard(h, func() { h.ResponseHeader(now, r) }))
		r.took("ResponseReceived", h, t)
	}
}

// SetHeaders returns the headers to set: the plug-ins', and the response's own again.
func (r *Response) SetHeaders() header.List {
	set := append(make(header.List, 0, 1+len(r.set)+len(r.Headers)),
		header.Header{Name: HeaderWentResponse, Value: "true"})
	set = append(set, r.set...)
	ours := r.set.Index()
	for _, h := range r.Headers {
		// content-length stays, unless DropContentLength is true.
		if !consumed[h.Name] && !ours.Has(h.Name) {
			set = append(set, h)
		}
	}
	return set
}

// Modified reports whether plug-ins have set headers before the body's beginning, or metadata at its end.
func (r *Response) Modified() bool {
	return r.Chunks == 0 && !r.End && r.set != nil || r.End && r.metadata != nil
}

// HookHeaders returns the headers that plug-ins set.
func (r *Response) HookHeaders() header.List { return r.set }

// DropContentLength reports whether the response's content-length may no longer be true, so that it must be removed.
func (r *Response) DropContentLength() bool {
	_, has := r.Headers.Lookup("content-length")
	return has && r.rewritesBack()
}

func (r *Response) rewritesBack() bool {
	d := r.Decision
	return d != nil && !d.Request.HeaderOnly() && d.Request.Model != "" && d.Request.TargetModel != d.Request.Model
}

// Read takes one chunk and returns the bytes for the client, nil if there are none yet. A non-streaming response whose
// model name is restored is held back until its end, since chunks may split the name.
func (r *Response) Read(now machine.Time, chunk []byte, end bool) []byte {
	if r.ended {
		return nil
	}
	r.First = r.Chunks == 0
	r.Chunks++
	if r.Streaming || end {
		r.Reads++
	}
	r.chunk, r.End = chunk, end
	r.Bytes += int64(len(chunk))
	if len(chunk) > 0 {
		r.FirstAt = cmp.Or(r.FirstAt, now)
		r.LastAt = now
	}
	out := chunk
	back := r.rewritesBack()
	if r.Streaming {
		r.readStream(chunk, end)
	} else {
		out = r.whole(chunk, end, back)
	}
	if back && out != nil {
		out = parse.RestoreModel(out, r.Decision.Request.TargetModel, r.Decision.Request.Model)
	}
	r.ended = end
	return out
}

// ReadPiece is Read for a described piece. It returns false if nothing goes to the client yet.
func (r *Response) ReadPiece(now machine.Time, piece *described.Piece, end bool) bool {
	if r.ended {
		return false
	}
	r.First = r.Chunks == 0
	r.Chunks++
	r.chunk, r.described, r.End, r.ended = nil, true, end, end
	r.FirstAt = cmp.Or(r.FirstAt, now)
	r.LastAt = now
	r.Events = piece.Usage.CompletionTokens
	if piece.Has && (end || r.Streaming) {
		u := &piece.Usage
		r.Usage, r.HasUsage = parse.Usage{PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens,
			TotalTokens: u.PromptTokens + u.CompletionTokens}, true
		if u.Details {
			r.Usage.CachedTokens, r.Usage.HasCached = u.CachedTokens, true
		}
	}
	return end || r.Streaming || !r.rewritesBack()
}

// whole collects a non-streaming response for its usage at the end.
func (r *Response) whole(chunk []byte, end, back bool) []byte {
	if r.overflow {
		return chunk
	}
	if len(r.buffer) == 0 && end { // the usual case: one piece, not copied
		r.Usage, r.HasUsage = r.parser.Usage(chunk, false)
		return chunk
	}
	r.buffer = append(r.buffer, chunk...)
	switch {
	case end:
		r.Usage, r.HasUsage = r.parser.Usage(r.buffer, false)
	case len(r.buffer) > maxBuffered:
		r.overflow = true
	case back:
		return nil
	default:
		return chunk
	}
	all := r.buffer
	r.buffer = nil
	if back {
		return all
	}
	return chunk
}

// Close ends a response without a last chunk (trailers, or a broken stream) and returns what was held back. read is
// true if the hooks must run for the end.
func (r *Response) Close() (out []byte, read bool) {
	if r.ended {
		return nil, false
	}
	all := r.buffer
	r.buffer = nil
	if u, ok := r.parser.Usage(all, false); ok && !r.Streaming {
		r.Usage, r.HasUsage = u, true
	}
	if r.rewritesBack() && !r.overflow {
		out = parse.RestoreModel(all, r.Decision.Request.TargetModel, r.Decision.Request.Model)
	}
	r.Reads++
	r.First, r.chunk, r.End = r.Chunks == 0, nil, true
	r.ended = true
	return out, true
}

// Describe sets what was read of a response whose chunks are not available.
func (r *Response) Describe(x Progress) { r.Progress, r.described, r.ended = x, true, x.End }

// EndReported reports whether the hooks have run for the response's end.
func (r *Response) EndReported() bool { return r.reported }

// Parser returns the type of the parser that reads the response.
func (r *Response) Parser() string { return r.parser.Type() }

// receives reports whether a hook gets the body of the response to a request.
func receives(h ResponseBody, r *Request) bool {
	_, usage := h.(UsageReader)
	return usage || !r.HeaderOnly()
}

// EachResponseBody yields the plug-ins that get the body of a decision's response.
func (p *Picker) EachResponseBody(d *Decision, yield func(Plugin)) {
	for _, h := range p.responseBodies {
		if receives(h, d.Request) {
			yield(h)
		}
	}
}

// Complete reports whether the response came to its end.
func (r *Response) Complete() bool { return r.ended }

// Failed reports whether the model server reported a failure: by its status, or by a header named "status", the only
// one that the real EPP reads.
func (r *Response) Failed() bool {
	if s, ok := r.Headers.Lookup("status"); ok && s != "200" {
		return true
	}
	return len(r.Status) == 3 && r.Status[0] >= '4'
}

// Metadata returns the dynamic metadata for the last body message, nil for none.
func (r *Response) Metadata() map[string]map[string]any { return r.metadata }

// RunBodyHooks runs the hooks for the last piece. It does nothing after the end.
func (r *Response) RunBodyHooks(now machine.Time) {
	if r.reported || !r.Placed() {
		return
	}
	r.reported = r.End
	for _, h := range r.p.responseBodies {
		if !receives(h, r.Decision.Request) {
			continue
		}
		t := r.p.Stopwatch()
		r.Err = first(r.Err, r.p.Guard(h, func() { h.ResponseBody(now, r) }))
		if r.Streaming || r.End { // the real EPP's hooks get a non-streaming response whole
			r.took("ResponseStreaming", h, t)
		}
	}
	r.chunk = nil
}

func (r *Response) took(point string, h Plugin, began machine.Time) {
	if r.p.opt.Stopwatch != nil {
		r.Spans = append(r.Spans, Span{point, h, r.p.Stopwatch() - began})
	}
}

// readStream looks for usage in whole events, however chunks split them.
func (r *Response) readStream(chunk []byte, end bool) {
	if !r.events { // the client asked for a stream, and the server answers in one piece
		r.readUsage(chunk, false)
		return
	}
	r.stream.Write(chunk)
	for e, ok := r.stream.Next(); ok; e, ok = r.stream.Next() {
		r.readUsage(e.Data, true)
	}
	if end || r.stream.TooLong() {
		if e, ok := r.stream.Last(); ok {
			r.readUsage(e.Data, true)
		}
	}
}

// readUsage takes the token counts of a response, or of one of its events.
func (r *Response) readUsage(data []byte, event bool) {
	if event && string(data) != "[DONE]" {
		r.Events++
	}
	u, ok := r.parser.Usage(data, event)
	if !ok {
		return
	}
	if event && r.HasUsage { // Anthropic sends input and output counts in different events
		u.PromptTokens = max(u.PromptTokens, r.Usage.PromptTokens)
		u.CompletionTokens = max(u.CompletionTokens, r.Usage.CompletionTokens)
		u.CachedTokens, u.HasCached = max(u.CachedTokens, r.Usage.CachedTokens), u.HasCached || r.Usage.HasCached
		u.TotalTokens = max(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
	}
	r.Usage, r.HasUsage = u, true
}
