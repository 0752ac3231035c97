package disagg

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Change rewrites a decode server's answer on its way to the client: the
// cached tokens of its usage are the prefill leg's, and in session mode it
// begins with the prefill leg's token. Events and documents that need no
// change stay as they are to the byte; a changed one has its keys sorted.
type Change struct {
	cached   int
	set      bool
	document bool // one JSON document, if it looks like one, and not a stream of events
	talk     *talk

	held []byte
	gone bool // the document was too long; it passes unchanged
}

// maxDocument bounds how much of an answer is held back to be changed.
const maxDocument = 64 << 20

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
	if len(c.held) == 0 && c.talk == nil && data[len(data)-1] == '\n' && !bytes.Contains(data, usageKey) {
		return data // the usual event
	}
	c.held = append(c.held, data...)
	end := bytes.LastIndexByte(c.held, '\n') + 1
	if end == 0 {
		if len(c.held) > maxDocument {
			c.gone = true
			return c.held
		}
		return nil
	}
	var out []byte
	for line := range bytes.SplitAfterSeq(c.held[:end], []byte("\n")) {
		out = append(out, c.line(line)...)
	}
	c.held = append(c.held[:0], c.held[end:]...)
	return out
}

// End is what is still to be sent when the answer is whole.
func (c *Change) End() []byte {
	if c.gone || len(c.held) == 0 {
		return nil
	}
	if !c.document {
		return c.line(c.held)
	}
	o, err := parseObject(c.held)
	if err != nil {
		return c.held
	}
	changed := c.set && setCached(o, c.cached)
	if c.talk != nil {
		changed = c.talk.document(o) || changed
	}
	if !changed {
		return c.held
	}
	return o.write()
}

var usageKey = []byte(`"usage"`)

// line is one line of a stream.
func (c *Change) line(line []byte) []byte {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || c.talk == nil && !bytes.Contains(data, usageKey) {
		return line
	}
	o, err := parseObject(bytes.TrimSpace(data))
	if err != nil {
		return line // [DONE], or nothing of ours
	}
	changed := c.set && setCached(o, c.cached)
	var before []byte
	if c.talk != nil {
		before = c.talk.event(o)
	}
	if !changed && before == nil {
		return line
	}
	out := append(before, line...)
	if changed {
		tail := line[len(bytes.TrimRight(line, "\r\n")):]
		out = append(append(append(before, "data: "...), o.write()...), tail...)
	}
	return out
}

// setCached writes the cached tokens into a usage, wherever this API has it,
// and tells whether that changes anything.
func setCached(o object, cached int) bool {
	usage := o.object("usage")
	for _, in := range []string{"response", "message"} {
		if usage == nil {
			usage = o.object(in).object("usage")
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
	d := usage.object(details)
	if d == nil {
		d = object{}
	}
	if was, ok := d.integer("cached_tokens"); ok && was == cached {
		return false
	}
	d["cached_tokens"] = n
	usage[details] = map[string]any(d)
	return true
}
