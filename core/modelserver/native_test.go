package modelserver

import (
	"bytes"
	"testing"
)

// What a Dynamo worker answers, cut into pieces anywhere, becomes the same answer, which ends.
func FuzzPostprocess(f *testing.F) {
	f.Add([]byte("{\"token_ids\":[5],\"index\":0}\n{\"token_ids\":[6,7],\"index\":0,\"finish_reason\":\"stop\",\"stop_reason\":\"x\"}\n{\"token_ids\":[],\"completion_usage\":{\"prompt_tokens\":3,\"completion_tokens\":3}}\n"), 7, true)
	f.Add([]byte("{\"token_ids\":[],\"error\":{\"error\":{\"message\":\"m\",\"code\":500}}}\nmore"), 1, false)
	f.Add([]byte("{\"index\":-1}\n"), 3, true)
	f.Add([]byte("{\"index\":1,\"text\":\"a\"}\n\n"), 3, false)
	f.Fuzz(func(t *testing.T, answer []byte, cut int, stream bool) {
		body := `{"model":"m","n":2,"messages":[{"role":"user","content":"hi"}]}`
		if stream {
			body = `{"stream":true,` + body[1:]
		}
		r := testReader(t, nil)
		read := func(pieces ...[]byte) (string, bool) {
			pre, bad := r.Preprocess(Chat, &Head{RequestID: "r"}, []byte(body), nil)
			if bad != nil {
				t.Fatal(bad)
			}
			p := pre.Postprocess()
			var out []byte
			for _, x := range pieces {
				out = append(out, p.Write(bytes.Clone(x))...)
			}
			out = append(out, p.End()...)
			return string(out), p.Failed() != nil
		}
		if len(answer) == 0 {
			return
		}
		at := int(uint(cut) % uint(len(answer)))
		whole, failed := read(answer)
		cutOff, failedToo := read(answer[:at], answer[at:])
		if whole != cutOff || failed != failedToo {
			t.Errorf("in one piece %q %v, in two %q %v", whole, failed, cutOff, failedToo)
		}
		if stream && !bytes.HasSuffix([]byte(whole), []byte("data: [DONE]\n\n")) {
			t.Errorf("%q does not end", whole)
		}
	})
}
