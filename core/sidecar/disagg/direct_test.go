package disagg

import (
	"bytes"
	"testing"

	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// A course has the legs that a request has whose answer from the prefill server says nothing
// unusual, and there is none where something is decided on the way.
func TestCourse(t *testing.T) {
	t.Parallel()
	to := &Target{Host: "10.0.0.2", Port: 8000}
	for _, c := range []struct {
		name      string
		config    Config
		body      string
		prefiller *Target
		ok        bool
		prefill   string // is in its body
	}{
		{"prefill and decode", Config{}, `{"model":"m","messages":[{"role":"user","content":"@"}],"max_tokens":9}`, to,
			true, `"do_remote_decode":true`},
		{"at the decode server alone", Config{}, `{"model":"m","messages":[{"role":"user","content":"@"}]}`, nil, true,
			""},
		{"retries", Config{Retries: 2, FallBack: true}, `{"model":"m","messages":[{"role":"user","content":"@"}]}`, to,
			true, `"max_tokens":1`},
		{"both legs at once", Config{Connector: connector.SGLang},
			`{"model":"m","messages":[{"role":"user","content":"@"}]}`, to, false, ""},
		{"an engine that is asked", Config{Connector: connector.Mooncake},
			`{"model":"m","messages":[{"role":"user","content":"@"}]}`, to, false, ""},
		{"the decode server is asked first", Config{Connector: connector.SharedStorage},
			`{"model":"m","messages":[{"role":"user","content":"@"}],"cache_hit_threshold":0.5}`, to, false, ""},
		{"in chunks", Config{ChunkTokens: 5}, `{"model":"m","messages":[{"role":"user","content":"@"}],"max_tokens":9}`,
			to, false, ""},
		{"fields that only a sidecar may say", Config{},
			`{"kv_transfer_params":{},"model":"m","messages":[{"role":"user","content":"@"}]}`, to, false, ""},
	} {
		d := described.NewBody(described.NewFields(true, []byte(c.body)), nil,
			described.NewMessage("user", nil, described.Literal("hello")))
		got, ok := c.config.Course(chatPath, &d, c.prefiller)
		if ok != c.ok {
			t.Errorf("%s: a course is there: %v, expected %v", c.name, ok, c.ok)
		}
		if !ok || !c.ok {
			continue
		}
		if got.Decode == nil || (got.Prefill != nil) != (c.prefiller != nil) {
			t.Errorf("%s: %+v", c.name, got)
		} else if got.Prefill != nil && !bytes.Contains(got.Prefill.Sample(), []byte(c.prefill)) {
			t.Errorf("%s: the prefill leg is %s", c.name, got.Prefill.Sample())
		}
	}
}
