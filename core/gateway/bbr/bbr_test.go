package bbr_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway/bbr"
)

var table = bbr.Table{"llama": {Pool: 0, Base: "llama"}, "sql": {Pool: 0, Base: "llama"},
	"qwen": {Pool: 1, Base: "qwen"}}

// The headers have the values of the body's fields. A body that cannot be read passes.
func TestDecide(t *testing.T) {
	closed := bbr.Closed(table.Find)
	for _, c := range []struct{ body, want string }{
		{`{"model":"llama","prompt":"x"}`, "x-gateway-model-name=llama x-gateway-base-model-name=llama"},
		{`{"messages":[{"role":"user","content":"{\"model\":\"qwen\"}"}],"options":{"model":"qwen"},"model":"sql"}`,
			"x-gateway-model-name=sql x-gateway-base-model-name=llama"},
		// as the picker and model servers read it
		{`{"model":"llama","model":"qwen"}`, "x-gateway-model-name=qwen x-gateway-base-model-name=qwen"},
		{`{"model":"who"}`, "404 The model `who` does not exist."},
		{`{"model":"LLAMA"}`, "404 The model `LLAMA` does not exist."},
		{`{"model":"` + strings.Repeat("x", 300) + `"}`,
			"404 The model `" + strings.Repeat("x", 256) + "…` does not exist."},
		{`{"prompt":"x"}`, ""}, {`{"model":""}`, ""}, {`{"model":7}`, "x-gateway-model-name=7"}, {`{"model":null}`, ""},
		{`{"model":"a\nb"}`, ""},
		{`["model","llama"]`, ""}, {``, ""}, {`model`, ""}, {`{"model":"llama"`, ""}, {`{"model":"llama"}}`, ""},
	} {
		d := closed.Decide([]byte(c.body))
		got := ""
		if d.Answer != nil {
			got = "404 " + d.Answer.Message
		}
		for _, h := range d.Set {
			got = strings.TrimSpace(got + " " + h.Name + "=" + h.Value)
		}
		if got != c.want || d.Answer != nil && d.Answer.Status != 404 {
			t.Errorf("%.80s: got %s, expected %s", c.body, got, c.want)
		}
	}
}

// A router as the payload processor is configured: any field becomes a header, an
// unknown model has an empty base, and what is required or no JSON is a 400.
func TestConfigured(t *testing.T) {
	r := bbr.Router{Fields: []bbr.Field{{Name: "model", Header: "X-Gateway-Model-Name", Required: true},
		{Name: "user", Header: "X-User"}}, Base: "X-Base", Find: table.Find, Strict: true}
	for _, c := range []struct{ body, want string }{
		{`{"model":"sql","user":"u"}`, "x-gateway-model-name=sql x-user=u x-base=llama"},
		{`{"model":"who","user":true}`, "x-gateway-model-name=who x-user=true x-base="},
		{`{"model":"llama","user":{"a":1}}`, "x-gateway-model-name=llama x-base=llama"},
		{`{"prompt":"x"}`, "400 the request body has no model; expected a JSON object with one, which says where the " +
			"request goes"},
		{`{"model":null}`, "400 the request body has no model; expected a JSON object with one, which says where the " +
			"request goes"},
		{`{"model":`, "400 failed to parse request body: it is no JSON object"},
	} {
		d, got := r.Decide([]byte(c.body)), ""
		if d.Answer != nil {
			got = fmt.Sprint(d.Answer.Status, " ", d.Answer.Message)
		}
		for _, h := range d.Set {
			got = strings.TrimSpace(got + " " + h.Name + "=" + h.Value)
		}
		if got != c.want {
			t.Errorf("%s: got %s, expected %s", c.body, got, c.want)
		}
	}
	if got := strings.Join(r.Headers(), " "); got != "x-gateway-model-name x-user x-base" {
		t.Errorf("headers of its own: %s", got)
	}
}

// For every body, the router reads the same values as a JSON reader does, and they fit into a header.
func FuzzModel(f *testing.F) {
	for _, s := range []string{`{"model":"m"}`, `{"model":"a","model":"b"}`, `{"a":[{"model":1}],"model":"ü"}`, `{`,
		`{"model":"\u0000"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		model, ok := bbr.Model(body)
		if !ok {
			return
		}
		var all map[string]json.RawMessage
		var want string
		if json.Unmarshal(body, &all) != nil || json.Unmarshal(all["model"], &want) != nil || want != model {
			t.Fatalf("read %q, expected %q", model, want)
		}
		if model == "" || strings.ContainsAny(model, "\r\n\x00") {
			t.Fatalf("%q is no header's value", model)
		}
	})
}
