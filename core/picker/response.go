package picker

import (
	"bytes"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

func drawID(seed, n uint64) machine.Draw { return machine.NewDraw(seed, "picker", "request-id", n) }

// maxBuffered bounds how much of a non-streaming response is kept to read its
// usage; what is longer passes unread.
const maxBuffered = 32 << 20

// Response is the picker's side of one response: it rewrites the model's name
// back, reads token usage and runs the plug-ins' hooks.
type Response struct {
	Decision *Decision // nil when the response belongs to no scheduled request
	Status   string    // :status
	Headers  Headers
	// Streaming says that chunks are passed on one by one (SSE, or the client
	// asked for a stream).
	Streaming bool
	// First and End are true during the hook call for the first and the last
	// chunk; Chunk is that chunk as the model server sent it.
	First, End bool
	Chunk      []byte
	Usage      parse.Usage
	HasUsage   bool
	// Bytes is how much of the body came so far, Chunks in how many pieces.
	Bytes  int64
	Chunks int
	// FirstAt and LastAt are when the first and the last non-empty chunk came.
	FirstAt, LastAt machine.Time
	StartedAt       machine.Time

	set      Headers
	metadata map[string]map[string]any
	parser   parse.Parser
	buffer   []byte
	tail     []byte // an SSE line that is not complete yet
	ended    bool
	p        *Picker
}

// SetHeader adds a header to the response.
func (r *Response) SetHeader(name, value string) { r.set = append(r.set, Header{name, value}) }

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

// ResponseHeaders begins a response: it returns the headers to set. d is nil
// when Envoy answered by itself before the request was decided.
func (p *Picker) ResponseHeaders(now machine.Time, d *Decision, headers Headers) (*Response, []Header) {
	r := &Response{Decision: d, Headers: headers, p: p, StartedAt: now}
	r.Status, _ = headers.Get(":status")
	ct, _ := headers.Get("content-type")
	r.Streaming = strings.Contains(strings.ToLower(ct), "text/event-stream")
	r.parser = parse.OpenAI{}
	scheduled := d != nil && d.Err == nil && d.Request.Body != nil
	if scheduled {
		r.Streaming = r.Streaming || d.Request.Body.Stream
		if ps := parse.New(d.Request.Body.Parser); ps != nil {
			r.parser = ps
		}
		for _, h := range p.responseHeaders {
			h.ResponseHeader(now, r)
		}
	}
	set := []Header{{HeaderWentResponse, "true"}}
	set = append(set, r.set...)
next:
	for _, h := range headers {
		if h.Name == "content-length" {
			continue // it stands, unless DropContentLength says otherwise
		}
		for _, s := range r.set {
			if s.Name == h.Name {
				continue next
			}
		}
		set = append(set, h)
	}
	return r, set
}

// DropContentLength says whether the response's content-length may no longer
// be true and must be removed.
func (r *Response) DropContentLength() bool {
	_, has := r.Headers.Get("content-length")
	return has && r.rewritesBack()
}

func (r *Response) rewritesBack() bool {
	d := r.Decision
	return d != nil && d.Request.Body != nil && d.Request.TargetModel != d.Request.Model
}

// Body takes one chunk and returns what goes to the client instead. A response
// that does not stream is held back until its end; nothing is returned before.
func (r *Response) Body(now machine.Time, chunk []byte, end bool) []byte {
	if r.ended {
		return nil
	}
	r.First = r.Chunks == 0
	r.Chunks++
	r.Chunk, r.End = chunk, end
	r.Bytes += int64(len(chunk))
	if len(chunk) > 0 {
		if r.FirstAt == 0 {
			r.FirstAt = now
		}
		r.LastAt = now
	}
	if r.Streaming {
		r.readStream(chunk, end)
	} else if r.buffer != nil || len(chunk) > 0 {
		r.buffer = append(r.buffer, chunk...)
	}
	out := chunk
	if !r.Streaming {
		if !end && len(r.buffer) < maxBuffered {
			r.hooks(now)
			return nil
		}
		if end {
			if u, ok := r.parser.Usage(r.buffer, false); ok {
				r.Usage, r.HasUsage = u, true
			}
		}
		out, r.buffer = r.buffer, nil
	}
	if r.rewritesBack() {
		out = parse.RestoreModel(out, r.Decision.Request.TargetModel, r.Decision.Request.Model)
	}
	r.hooks(now)
	r.ended = end
	return out
}

// Flush ends a response that ended without a last chunk (trailers): what was
// held back is returned.
func (r *Response) Flush(now machine.Time) []byte {
	if r.ended {
		return nil
	}
	out := r.buffer
	r.buffer = nil
	if u, ok := r.parser.Usage(out, false); ok && !r.Streaming {
		r.Usage, r.HasUsage = u, true
	}
	if r.rewritesBack() {
		out = parse.RestoreModel(out, r.Decision.Request.TargetModel, r.Decision.Request.Model)
	}
	r.First, r.Chunk, r.End = r.Chunks == 0, nil, true
	r.hooks(now)
	r.ended = true
	return out
}

// Metadata is the dynamic metadata for the last body message, nil for none.
func (r *Response) Metadata() map[string]map[string]any { return r.metadata }

func (r *Response) hooks(now machine.Time) {
	d := r.Decision
	if d == nil || d.Err != nil || d.Request.Body == nil {
		return
	}
	for _, h := range r.p.responseBodies {
		h.ResponseBody(now, r)
	}
}

// readStream looks for usage in whole SSE lines, however they were cut.
func (r *Response) readStream(chunk []byte, end bool) {
	text := chunk
	if len(r.tail) > 0 {
		text = append(r.tail, chunk...)
	}
	cut := bytes.LastIndexByte(text, '\n') + 1
	if end || len(text)-cut > maxBuffered {
		cut = len(text)
	}
	if u, ok := r.parser.Usage(text[:cut], true); ok {
		if r.HasUsage { // Anthropic tells input and output in different events
			u.PromptTokens = max(u.PromptTokens, r.Usage.PromptTokens)
			u.CompletionTokens = max(u.CompletionTokens, r.Usage.CompletionTokens)
			u.CachedTokens = max(u.CachedTokens, r.Usage.CachedTokens)
			u.TotalTokens = max(u.TotalTokens, u.PromptTokens+u.CompletionTokens)
		}
		r.Usage, r.HasUsage = u, true
	}
	r.tail = append(r.tail[:0:0], text[cut:]...)
}
