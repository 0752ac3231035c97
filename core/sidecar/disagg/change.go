package disagg

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/windtunnel/windtunnel/core/wire/jsonobject"
	"github.com/windtunnel/windtunnel/core/wire/sse"
)

// Change rewrites a decode server's answer on its way to the client. It replaces the cached tokens in the usage by the
// prefill leg's and, in session mode, puts the prefill leg's token first. Events and documents that need no change stay
// the same to the byte. A changed one has sorted keys.
type Change struct {
	cached   int
	set      bool
	document bool // one JSON document, as far as its type shows, and not a stream of events
	session  *sessionRequest

	events sse.Scanner
	held   []byte // of the document; for events, the bytes handed out
	gone   bool   // the document was too long and passes unchanged
}

// maxDocument limits how much of an answer is held back for changes.
const maxDocument = 64 << 20

// Added returns the number of tokens, so far, that the answer has and the decode server did not make.
func (c *Change) Added() int {
	if c.session != nil && c.session.first != "" && !c.session.pending {
		return 1
	}
	return 0
}

// Write takes a piece of the answer and returns what the client gets now. The
// result is valid until the next call.
func (c *Change) Write(data []byte) []byte {
	if c.gone {
		return data
	}
	if c.document && len(c.held) == 0 {
		switch text := bytes.TrimLeft(data, " \t\r\n"); {
		case bytes.HasPrefix(text, []byte("data:")):
			c.document = false
		case len(text) > 0 && text[0] != '{':
			c.gone = true
			return data
		}
	}
	if c.document {
		c.held = append(c.held, data...)
		if len(c.held) > maxDocument {
			c.gone = true
			return c.held
		}
		return nil
	}
	if len(c.events.Rest()) == 0 && c.session == nil && bytes.HasSuffix(data, []byte("\n\n")) &&
		!bytes.Contains(data, usageKey) {
		return data // the usual event
	}
	c.held = c.held[:0]
	c.events.Write(data)
	for e, ok := c.events.Next(); ok; e, ok = c.events.Next() {
		c.held = c.event(c.held, e)
	}
	if c.gone = c.events.TooLong(); c.gone {
		c.held = append(c.held, c.events.Rest()...)
	}
	return c.held
}

// End returns the rest of the answer when the decode server's answer is whole.
func (c *Change) End() []byte {
	if c.gone {
		return nil
	}
	if !c.document {
		e, _ := c.events.Last()
		return c.event(nil, e)
	}
	if len(c.held) == 0 {
		return nil
	}
	o, err := jsonobject.Parse(c.held)
	if err != nil {
		return c.held
	}
	changed := c.set && setCached(o, c.cached)
	if c.session != nil {
		changed = c.session.document(o) || changed
	}
	if !changed {
		return c.held
	}
	return o.Write()
}

var usageKey = []byte(`"usage"`)

// event appends one event of a stream in the form that the client gets.
func (c *Change) event(b []byte, e sse.Event) []byte {
	if e.Data == nil || c.session == nil && !bytes.Contains(e.Data, usageKey) {
		return append(b, e.Raw...)
	}
	o, err := jsonobject.Parse(e.Data)
	if err != nil {
		return append(b, e.Raw...) // [DONE], or not an object
	}
	changed := c.set && setCached(o, c.cached)
	if c.session != nil {
		b = append(b, c.session.event(o)...)
	}
	if !changed {
		return append(b, e.Raw...)
	}
	return e.Replace(b, o.Write())
}

// setCached writes the cached tokens into a usage, in the field of its API, and reports whether that changes anything.
func setCached(o object, cached int) bool {
	usage := o.Object("usage")
	for _, in := range []string{"response", "message"} {
		if usage == nil {
			usage = o.Object(in).Object("usage")
		}
	}
	if usage == nil {
		return false
	}
	n := json.Number(strconv.Itoa(cached))
	details := "prompt_tokens_details"
	if _, has := usage["prompt_tokens"]; !has {
		if was, has := usage["cache_read_input_tokens"]; has { // Anthropic's
			usage["cache_read_input_tokens"] = n
			return was != n
		}
		if _, has := usage["input_tokens"]; has { // the Responses API's
			details = "input_tokens_details"
		}
	}
	d := usage.Object(details)
	if d == nil {
		d = object{}
	}
	if was, ok := d.Integer("cached_tokens"); ok && was == cached {
		return false
	}
	d["cached_tokens"] = n
	usage[details] = map[string]any(d)
	return true
}
