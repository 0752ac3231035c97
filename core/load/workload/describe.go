package workload

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/held"
)

// describable are the fields of a body that do not affect its prompt, and that are read independently of it.
var describable = map[string]bool{"model": true, "messages": true, "prompt": true, "stream": true,
	"stream_options": true, "max_tokens": true,
	"max_completion_tokens": true, "min_tokens": true, "ignore_eos": true, "n": true, "temperature": true,
	"top_p": true, "top_k": true,
	"min_p": true, "seed": true, "priority": true, "cache_salt": true, "cache_hit_threshold": true,
	"presence_penalty": true, "frequency_penalty": true}

// Describe makes requests described instead of written, if everything in them can be. One goroutine must then make all
// requests.
func (c *Config) Describe() {
	for _, x := range c.Classes {
		x.Config.Describe()
	}
	if c.Recorded != nil {
		c.recordings = newRecordings(c.Recorded)
		return
	}
	if c.API == Embed || c.API == Messages || c.API == Responses || c.Text == "" && c.Alphabet != ASCII ||
		!plain(c.Text) {
		return
	}
	for _, p := range c.Prefixes {
		if !plain(p) {
			return
		}
	}
	for _, model := range append([]string{c.Model}, c.adapters()...) {
		body := c.sample(asked{model, c.output(0)})
		if c.API != Generate && (described.NewFields(c.API == Chat, body) == nil || !described.Plain(model) ||
			!eachOnce(body)) {
			return
		}
	}
	c.fields = map[asked]*described.Fields{}
	for _, p := range c.Prefixes {
		c.shared = append(c.shared, described.NewShared(described.Literal(p)))
	}
}

// sample returns a body with the prompt "@".
func (c *Config) sample(as asked) []byte { return c.body(as, []message{{"user", "@"}}) }

// maxFields bounds the kept Fields.
const maxFields = 1 << 14

// fieldsOf returns the fields that all requests with equal properties share.
func (c *Config) fieldsOf(as asked) *described.Fields {
	f := c.fields[as]
	if f == nil {
		if c.API == Generate {
			f = described.NewGenerateFields(c.sampling(as))
		} else {
			f = described.NewFields(c.API == Chat, c.sample(as))
		}
		if len(c.fields) < maxFields {
			c.fields[as] = f
		}
	}
	return f
}

// plain reports whether a text can be described: it needs no escapes in JSON and cannot contain a held body's boundary.
func plain(s string) bool { return described.Plain(s) && !held.MayBound(s) }

// Write undoes Describe.
func (c *Config) Write() {
	c.fields, c.shared, c.recordings, c.Classes = nil, nil, nil, slices.Clone(c.Classes)
	for i, x := range c.Classes {
		own := *x.Config
		own.Write()
		c.Classes[i].Config = &own
	}
}

func (c *Config) adapters() []string {
	var names []string
	for _, a := range c.Adapters {
		names = append(names, a.Name)
	}
	return names
}

// eachOnce reports whether a body has only describable fields, each once.
func eachOnce(body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		name, _ := key.(string)
		if err != nil || !describable[name] || seen[name] {
			return false
		}
		seen[name] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return false
		}
	}
	return true
}

// say returns the user's message in the request with this number, after the beginning of its group, if any.
func (c *Config) say(index, group int) described.Message {
	var before *described.Shared
	if group >= 0 {
		before = c.shared[group]
	}
	said := described.Literal(c.Text)
	if c.Text == "" {
		said = described.Letters(c.drawn(index))
	}
	return described.NewMessage("user", before, said)
}
