package disagg

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
)

func FuzzTargets(f *testing.F) {
	f.Add("http://a:1,https://[::1]:2, 10.0.0.1")
	f.Fuzz(func(t *testing.T, list string) {
		for _, x := range ParseTargets(list) {
			if x.Bad == "" && (x.Host == "" || x.Port < 1 || x.Port > 65535) {
				t.Fatalf("%q: %+v", list, x)
			}
			if again, err := ParseTarget(x.String()); x.Bad == "" && !strings.ContainsAny(x.Host, "%?#/") && (err != nil || again.Port != x.Port) {
				t.Fatalf("%q: %v %+v", list, err, again)
			}
		}
	})
}

// whatever bodies come, a ClientRequest asks for a leg or answers, and never panics.
func FuzzBodies(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":3}`), []byte(`{"choices":[{"kv_metadata":{"kv_handle":"h"},"message":{"content":"a"}}],"kv_transfer_params":{},"usage":{}}`), []byte("data: {\"usage\":{}}\n\n"))
	f.Add([]byte(`null`), []byte(`[]`), []byte(`data: `))
	f.Fuzz(func(t *testing.T, request, reply, answer []byte) {
		for _, connector := range Connectors() {
			for _, sessions := range []bool{false, true} {
				c := &Config{Connector: connector, ChunkTokens: len(request) % 2}
				if len(reply)%2 == 1 {
					c.Encoder = ECNIXL
				}
				c.MoRIIO = MoRIIO{Write: len(answer)%3 == 0, Parallel: len(answer)%2 == 0, DPSize: 3}
				if sessions {
					c.Sessions, _ = NewSessions(1, nil)
				}
				x := New(c, Request{Method: "POST", Path: chatPath, Body: request, Prefillers: ParseTargets("a:1"), Encoders: ParseTargets("b:1,c:2")})
				play(x, Start{}, reply, answer, 40)
			}
		}
	})
}

func play(x *ClientRequest, m Message, reply, answer []byte, left int) {
	var fx Effects
	x.Input(1, m, &fx)
	for _, e := range fx.List {
		if left--; left < 0 {
			return
		}
		switch e := e.Do.(type) {
		case Call:
			kind := "text/event-stream"
			if e.Leg.Kind != Decode || left%2 == 0 {
				kind = "application/json"
			}
			play(x, Head{Leg: e.Leg.ID, Status: 200, ContentType: kind}, reply, answer, left)
			if e.Leg.Concurrent && e.Leg.Kind != Decode {
				play(x, Whole{e.Leg.ID, reply}, reply, answer, left)
			}
		case Collect:
			play(x, Whole{e.Leg, reply}, reply, answer, left)
		case Peek:
			play(x, Part{Leg: e.Leg, Data: answer, End: true}, reply, answer, left)
		case Deliver:
			if e.Change != nil && len(answer) > 0 {
				e.Change.Write(answer)
				e.Change.End()
			}
			play(x, Delivered{}, reply, answer, left)
		}
	}
}

// However an answer is cut into pieces, the client gets the same bytes.
func TestChangeDoesNotDependOnCuts(t *testing.T) {
	text := strings.Join(okChunks, "")
	for _, document := range []bool{false, true} {
		if document {
			text = okDecode
		}
		run := func(cuts []string) string {
			c := &Change{cached: 9, set: true, document: document}
			var out strings.Builder
			for _, cut := range cuts {
				if cut != "" {
					out.Write(c.Write([]byte(cut)))
				}
			}
			out.Write(c.End())
			return out.String()
		}
		want := run([]string{text})
		if !strings.Contains(want, `"cached_tokens":9`) {
			t.Fatal(want)
		}
		rapid.Check(t, func(t *rapid.T) {
			var cuts []string
			for rest := text; rest != ""; {
				n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
				cuts, rest = append(cuts, rest[:n]), rest[n:]
			}
			if got := run(cuts); got != want {
				t.Fatalf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// A retry is due even when the request is woken late, and only once.
func TestRetryOnce(t *testing.T) {
	x := New(&Config{Retries: 3}, Request{Method: "POST", Path: chatPath, Body: []byte(`{}`), Prefillers: ParseTargets("a:1")})
	var fx Effects
	x.Input(0, Start{}, &fx)
	x.Input(0, Failed{Leg: 1}, &fx)
	at, ok := x.Next()
	if !ok || at != DefaultRetryBackoff {
		t.Fatal(at, ok)
	}
	fx.Reset()
	x.Advance(at+machine.Second, &fx)
	if len(fx.List) != 1 || fx.List[0].At != at {
		t.Fatal(fx)
	}
	fx.Reset()
	x.Advance(at+2*machine.Second, &fx)
	if _, ok := x.Next(); ok || len(fx.List) != 0 {
		t.Fatal("tried again without a reason")
	}
}

// What was due before a message is played before it: the prefill server's answer
// comes too late for a wait that was over by then.
func TestLateInput(t *testing.T) {
	c := &Config{MoRIIO: MoRIIO{Write: true, Parallel: true, Wait: machine.Second}}
	x := New(c, Request{Method: "POST", Path: chatPath, Body: []byte(`{}`), Prefillers: ParseTargets("a:1")})
	var fx Effects
	x.Input(0, Start{}, &fx)
	fx.Reset()
	x.Input(2*machine.Second, Head{Leg: 1, Status: 200, ContentType: "application/json"}, &fx)
	x.Input(2*machine.Second, Whole{1, []byte(`{}`)}, &fx)
	for _, e := range fx.List {
		if a, ok := e.Do.(Answer); ok && a.Status == 504 && e.At == machine.Second {
			return
		}
	}
	t.Fatalf("nothing says that the wait was over: %+v", fx.List)
}

// What is scrubbed has nothing left that an engine would fetch caches by,
// whatever a client has written; and what has nothing is not touched.
func FuzzScrub(f *testing.F) {
	for _, s := range []string{`{"kv_transfer_params":{}}`, `{"KV_\u0074ransfer_params":1,"a":"\"kv_handle\""}`, `{"bootstrap_ho\u017ft":1}`, `{"\u212aV_HANDLE":"x"}`,
		`{"sampling_params":{"extra_args":{"kv_transfer_params":{}}}}`, "{\x00\"\x00", `{"a":"\\","kv_handle":"x"}`, `{"a":1,"kv_handle":"x","kv_handle":"y"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		clean, found, err := Scrub(body)
		if err != nil {
			return
		}
		if len(found) == 0 && !bytes.Equal(clean, body) {
			t.Fatalf("changed to %q", clean)
		}
		type fields struct {
			KV   json.RawMessage `json:"kv_transfer_params"`
			EC   json.RawMessage `json:"ec_transfer_params"`
			Name json.RawMessage `json:"kv_handle"`
			Host json.RawMessage `json:"bootstrap_host"`
			Port json.RawMessage `json:"bootstrap_port"`
			Room json.RawMessage `json:"bootstrap_room"`
		}
		var q struct {
			fields
			Sampling struct {
				fields
				Extra fields `json:"extra_args"`
			} `json:"sampling_params"`
		}
		_ = json.Unmarshal(clean, &q) // what is wrong with the rest stops nothing
		for _, x := range []fields{q.fields, q.Sampling.fields, q.Sampling.Extra} {
			if x.KV != nil || x.EC != nil || x.Name != nil || x.Host != nil || x.Port != nil || x.Room != nil {
				t.Fatalf("%q is left in %q", x, clean)
			}
		}
	})
}
