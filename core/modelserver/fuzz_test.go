package modelserver

import (
	"encoding/json"
	"testing"
)

func FuzzHandle(f *testing.F) {
	f.Add("kv://127.0.0.1:5600/e/1-2-3")
	f.Fuzz(func(t *testing.T, handle string) {
		_, _ = parseHandle(handle, 1<<20)
	})
}

// Whatever a body is, it is read, or refused with a reason, without a panic, and
// what is answered to it is JSON.
func FuzzBodies(f *testing.F) {
	rd := testReader(f, nil)
	for i, body := range []string{
		`{"messages":[{"role":"user","content":"hello"}],"max_tokens":3,"tools":[{"type":"function",` +
			`"function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"array"}}}}}]}`,
		`{"prompt":[[1,2]],"stop":["a","b"],"logprobs":2}`,
		`{"input":[{"type":"function_call","name":"f"},{"role":"user","content":"x"}],"tools":[{"type":"function",` +
			`"name":"f"}],"tool_choice":"required"}`,
		`{"max_tokens":3,"messages":[{"role":"user","content":[{"type":"tool_result","content":"x"}]}]}`,
		`{"input":["a",""],"encoding_format":"base64"}`,
		`{"token_ids":[1],"sampling_params":{"n":2}}`,
	} {
		f.Add(i, []byte(body), false)
	}
	f.Fuzz(func(t *testing.T, api int, body []byte, held bool) {
		x := &script{t: t, reader: rd, api: APIs[uint(api)%uint(len(APIs))], held: held}
		x.open("")
		x.body(string(body))
		if e := x.refused; e != nil {
			if e.Status < 400 || e.Message == "" {
				t.Fatalf("%+v", e)
			}
			return
		}
		q := x.resp.Request()
		if q.Choices() > 64 {
			return
		}
		x.tokens(1)
		if held {
			x.p.Part2, x.p.Metadata = true, "m"
			x.tell()
		}
		x.finish(3)
		if !q.Stream && !json.Valid(x.sent) && json.Valid(body) {
			t.Fatalf("not JSON: %s", x.sent)
		}
	})
}
