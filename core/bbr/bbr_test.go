package bbr_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/bbr"
)

var table = bbr.Table{"llama": {Pool: 0, Base: "llama"}, "sql": {Pool: 0, Base: "llama"}, "qwen": {Pool: 1, Base: "qwen"}}

// What a body asks for is what the headers say; what cannot be read passes.
func TestDecide(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"model":"llama","prompt":"x"}`, "x-gateway-model-name=llama x-gateway-base-model-name=llama"},
		{`{"messages":[{"role":"user","content":"{\"model\":\"qwen\"}"}],"options":{"model":"qwen"},"model":"sql"}`, "x-gateway-model-name=sql x-gateway-base-model-name=llama"},
		{`{"model":"llama","model":"qwen"}`, "x-gateway-model-name=qwen x-gateway-base-model-name=qwen"}, // as the picker and model servers read it
		{`{"model":"who"}`, "404 The model `who` does not exist."},
		{`{"model":"LLAMA"}`, "404 The model `LLAMA` does not exist."},
		{`{"model":"` + strings.Repeat("x", 300) + `"}`, "404 The model `" + strings.Repeat("x", 256) + "…` does not exist."},
		{`{"prompt":"x"}`, ""}, {`{"model":""}`, ""}, {`{"model":7}`, ""}, {`{"model":null}`, ""}, {`{"model":"a\nb"}`, ""},
		{`["model","llama"]`, ""}, {``, ""}, {`model`, ""}, {`{"model":"llama"`, ""}, {`{"model":"llama"}}`, ""},
	} {
		d := bbr.Decide([]byte(c.body), table.Find)
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

// Whatever a body is, what is read of it is what a JSON reader reads, and fits into a
// header.
func FuzzModel(f *testing.F) {
	for _, s := range []string{`{"model":"m"}`, `{"model":"a","model":"b"}`, `{"a":[{"model":1}],"model":"ü"}`, `{`, `{"model":"\u0000"}`} {
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
