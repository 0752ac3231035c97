package picker

import (
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// maxBuffered bounds how much of a non-streaming response is kept to read its
// usage; what is longer passes unread.
const maxBuffered = 32 << 20

// Response is the picker's side of one response: it rewrites the model's name
// back, reads token usage and runs the plug-ins' hooks.
//
// Reading (NewResponse, Read, Close) concerns nothing but its request, whose own
// goroutine does it. Hooks (RunHeaderHooks, RunBodyHooks) have the picker's turn, and are
// told what was read until then.
type Response struct {
	Decision *Decision // nil when the response belongs to no scheduled request
	Status   string    // :status
	Headers  header.List
	// Streaming says that chunks are passed on one by one (SSE, or the client
	// asked for a stream).
	Streaming bool
	StartedAt machine.Time
	// Served is what the data plane said with the headers.
	Served Served
	Progress
	// Err is the first panic of a plug-in over this response.
	Err *apierror.Error
	// Reads is how often the body was parsed: each piece of a stream and its
	// trailers, else once, at the end.
	Reads int
	// Spans are how long each hook took (with Options.Stopwatch), for the driver to
	// take away: a response may be long.
	Spans []Span

	chunk     []byte
	described bool // there are no chunks, only Progress
	ended     bool // nothing more will be read
	told      bool // and the hooks know it
	set       header.List
	metadata  map[string]map[string]any
	parser    parse.Parser
	buffer    []byte
	events    bool // the model server sends events
	stream    sse.Scanner
	overflow  bool // too long to be kept
	p         *Picker
}

// Progress is what is known of a response's body so far.
type Progress struct {
	// First and End are true during the hook call for the first and the last
	// chunk.
	First, End bool
	Usage      parse.Usage
	HasUsage   bool
	// Bytes is how much of the body came so far, Chunks in how many pieces.
	Bytes  int64
	Chunks int
	// FirstAt and LastAt are when the first and the last non-empty chunk came.
	FirstAt, LastAt machine.Time
	// Events is how many events of a stream came: each token is one, with vLLM.
	Events int
}

// Chunk returns the chunk that the hooks are told of, as the model server sent it.
func (r *Response) Chunk() []byte {
	if r.described {
		panic(&parse.Unknown{What: "the response's bytes"})
	}
	return r.chunk
}

// SetHeader sets a header of the response. Of two plug-ins that set one the last counts.
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

// Hooks are what plug-ins want to be told of a request's further way. Without
// the first two a Response belongs to its request alone, and without the third
// so does the end of a Decision: a driver with many requests at once need then
// take no turns for them.
type Hooks struct {
	ResponseHeader, ResponseBody, Release bool
	// ResponseChunks: some look at the response's bytes, too.
	ResponseChunks bool
}

// Hooks returns which plug-ins there are.
func (p *Picker) Hooks() Hooks {
	h := Hooks{ResponseHeader: len(p.responseHeaders) > 0, ResponseBody: len(p.responseBodies) > 0,
		Release: len(p.releasers) > 0}
	for _, x := range p.responseBodies {
		if progress, ok := x.(ProgressReader); !ok || !progress.ReadsProgress() {
			h.ResponseChunks = true
		}
	}
	return h
}

// UsageReader is a ResponseBody that looks at nothing but a response's usage. It is told of
// responses to requests without a body, too.
type UsageReader interface{ ReadsUsage() }

// ProgressReader is a ResponseBody that looks at a Response's Progress and not at
// its Chunk, if it says so. Then no bytes need be made for it in virtual time.
type ProgressReader interface{ ReadsProgress() bool }

// NewResponse begins a response by its headers. d is nil when Envoy answered by
// itself before the request was decided.
func (p *Picker) NewResponse(now machine.Time, d *Decision, headers header.List) *Response {
	return p.ResponseIn(new(Response), now, d, headers)
}

// ResponseIn is NewResponse in memory that is there.
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

// Scheduled says that the response is one to a request which the plug-ins have
// decided about: others have no hooks.
func (r *Response) Scheduled() bool {
	return r.Placed() && !r.Decision.Request.HeaderOnly()
}

// Placed says that the response is one to a request that was sent to an endpoint.
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
		// content-length stands, unless DropContentLength says otherwise.
		if !consumed[h.Name] && !ours.Has(h.Name) {
			set = append(set, h)
		}
	}
	return set
}

// Said reports whether plug-ins have set headers, as long as the body has not begun,
// or metadata at its end.
func (r *Response) Said() bool {
	return r.Chunks == 0 && !r.End && r.set != nil || r.End && r.metadata != nil
}

// HookHeaders returns the headers that plug-ins set.
func (r *Response) HookHeaders() header.List { return r.set }

// DropContentLength reports whether the response's content-length may no longer
// be true and must be removed.
func (r *Response) DropContentLength() bool {
	_, has := r.Headers.Lookup("content-length")
	return has && r.rewritesBack()
}

func (r *Response) rewritesBack() bool {
	d := r.Decision
	return d != nil && !d.Request.HeaderOnly() && d.Request.Model != "" && d.Request.TargetModel != d.Request.Model
}

// Read takes one chunk and returns what goes to the client instead, nil when
// nothing does yet: a whole (not streamed) response whose model name is
// rewritten is held back until its end, since the name may be cut in two.
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
		if r.FirstAt == 0 {
			r.FirstAt = now
		}
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

// ReadPiece is Read of a piece that is described. It is false where nothing goes
// to the client yet.
func (r *Response) ReadPiece(now machine.Time, piece *described.Piece, end bool) bool {
	if r.ended {
		return false
	}
	r.First = r.Chunks == 0
	r.Chunks++
	r.chunk, r.described, r.End, r.ended = nil, true, end, end
	if r.FirstAt == 0 {
		r.FirstAt = now
	}
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

// whole gathers a response that does not stream, for its usage at the end.
func (r *Response) whole(chunk []byte, end, back bool) []byte {
	if r.overflow {
		return chunk
	}
	if len(r.buffer) == 0 && end { // the usual case: all in one piece, not copied
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

// Close ends a response that ended without a last chunk (trailers, or the
// stream broke): what was held back is returned. It says whether there is
// something to be told.
func (r *Response) Close() (out []byte, news bool) {
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

// Describe stands for what was read of a response whose chunks are not there.
func (r *Response) Describe(x Progress) { r.Progress, r.described, r.ended = x, true, x.End }

// Told reports whether the hooks have heard of the response's end.
func (r *Response) Told() bool { return r.told }

// Parser returns the type of the parser that reads the response.
func (r *Response) Parser() string { return r.parser.Type() }

// hears reports whether a hook is told of the body of the response to a request.
func hears(h ResponseBody, r *Request) bool {
	_, usage := h.(UsageReader)
	return usage || !r.HeaderOnly()
}

// EachResponseBody goes through the plug-ins that are told of the body of a decision's response.
func (p *Picker) EachResponseBody(d *Decision, yield func(Plugin)) {
	for _, h := range p.responseBodies {
		if hears(h, d.Request) {
			yield(h)
		}
	}
}

// Complete reports whether the response came to its end.
func (r *Response) Complete() bool { return r.ended }

// Failed reports whether the model server reported a failure: by its status, or
// by a header named "status", which is all that the real EPP looks at.
func (r *Response) Failed() bool {
	if s, ok := r.Headers.Lookup("status"); ok && s != "200" {
		return true
	}
	return len(r.Status) == 3 && r.Status[0] >= '4'
}

// Metadata returns the dynamic metadata for the last body message, nil for none.
func (r *Response) Metadata() map[string]map[string]any { return r.metadata }

// RunBodyHooks runs the hooks for what was read last. Nothing follows the end.
func (r *Response) RunBodyHooks(now machine.Time) {
	if r.told || !r.Placed() {
		return
	}
	r.told = r.End
	for _, h := range r.p.responseBodies {
		if !hears(h, r.Decision.Request) {
			continue
		}
		t := r.p.Stopwatch()
		r.Err = first(r.Err, r.p.Guard(h, func() { h.ResponseBody(now, r) }))
		if r.Streaming || r.End { // the real one's hooks hear of another response as a whole
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

// readStream looks for usage in whole events, however they were cut.
func (r *Response) readStream(chunk []byte, end bool) {
	if !r.events { // the client asked for a stream, and the server answers in one piece
		r.notes(chunk, false)
		return
	}
	r.stream.Write(chunk)
	for e, ok := r.stream.Next(); ok; e, ok = r.stream.Next() {
		r.notes(e.Data, true)
	}
	if end || r.stream.TooLong() {
		if e, ok := r.stream.Last(); ok {
			r.notes(e.Data, true)
		}
	}
}

// notes takes what a response, or an event of one, says about tokens.
func (r *Response) notes(data []byte, event bool) {
	if event && string(data) != "[DONE]" {
		r.Events++
	}
	u, ok := r.parser.Usage(data, event)
	if !ok {
		return
	}
	if event && r.HasUsage { // Anthropic tells input and output in different events
		u.PromptTokens = max(u.PromptTokens, r.Usage.PromptTokens)
		u.CompletionTokens = max(u.CompletionTokens, r.Usage.CompletionTokens)
		u.CachedTokens, u.HasCached = max(u.CachedTokens, r.Usage.CachedTokens), u.HasCached || r.Usage.HasCached
		u.TotalTokens = max(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
	}
	r.Usage, r.HasUsage = u, true
}
