package disagg

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

func FuzzTargets(f *testing.F) {
	f.Add("http://a:1,https://[::1]:2, 10.0.0.1")
	f.Fuzz(func(t *testing.T, list string) {
		for _, x := range ParseTargets(list) {
			if x.Bad == "" && (x.Host == "" || x.Port < 1 || x.Port > 65535) {
				t.Fatalf("%q: %+v", list, x)
			}
			if again, err := ParseTarget(x.String()); x.Bad == "" && !strings.ContainsAny(x.Host, "%?#/") &&
				(err != nil || again.Port != x.Port) {
				t.Fatalf("%q: %v %+v", list, err, again)
			}
		}
	})
}

// Whatever bodies come, a ClientRequest asks for legs that make sense, one after
// another, and gives the client exactly one answer.
func FuzzBodies(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":3}`),
		[]byte(`{"choices":[{"kv_metadata":{"kv_handle":"h"},"message":{"content":"a"}}],"kv_transfer_params":{},`+
			`"usage":{}}`), []byte("data: {\"usage\":{}}\n\n"))
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`),
		[]byte(`{"id":1}`), []byte(`{"choices":[{"finish_reason":"length"}]}`))
	f.Add([]byte(`null`), []byte(`[]`), []byte(`data: `))
	f.Fuzz(func(t *testing.T, request, reply, answer []byte) {
		for _, k := range connector.All {
			for _, sessions := range []bool{false, true} {
				c := &Config{Connector: k, ChunkTokens: len(request) % 2}
				if len(reply)%2 == 1 {
					c.Encoder = ECNIXL
				}
				c.MoRIIO = connector.MoRIIO{Write: len(answer)%3 == 0, Parallel: len(answer)%2 == 0, DPSize: 3}
				if sessions {
					c.Sessions, _ = NewSessions(1, nil)
				}
				p := played{T: t, request: request, reply: reply, answer: answer, left: 200, connector: k.Name,
					x: New(c, Request{Method: "POST", Path: chatPath, Body: request, Prefillers: ParseTargets("a:1"),
						Encoders: ParseTargets("b:1,c:2")})}
				p.tell(Start{})
				if p.left > 0 && p.ends != 1 {
					t.Fatalf("%s: %d ends of the answer", k.Name, p.ends)
				}
			}
		}
	})
}

// played is a request whose legs all have these answers.
type played struct {
	*testing.T
	x                      *ClientRequest
	request, reply, answer []byte
	connector              string
	left                   int // messages
	legs                   []Leg
	ends                   int
}

func (p *played) tell(m Message) {
	if p.left--; p.left < 0 {
		return
	}
	var fx Effects
	p.x.Input(1, m, &fx)
	for _, e := range fx.List { // legs begin in order, whether they succeed or fail
		if c, ok := e.Do.(Call); ok {
			p.called(c.Leg)
		}
	}
	for _, e := range fx.List {
		switch e := e.Do.(type) {
		case Call:
			kind := "text/event-stream"
			if e.Leg.Kind != Decode || e.Leg.ID%2 == 0 {
				kind = "application/json"
			}
			p.tell(Head{Leg: e.Leg.ID, Status: 200, ContentType: kind})
			if e.Leg.Concurrent && e.Leg.Kind != Decode {
				p.tell(Whole{e.Leg.ID, p.reply})
			}
		case Collect:
			p.known(e.Leg)
			p.tell(Whole{e.Leg, p.reply})
		case Peek:
			p.known(e.Leg)
			p.tell(Part{Leg: e.Leg, Data: p.answer, End: true})
		case Drop:
			p.known(e.Leg)
		case Deliver:
			p.known(e.Leg)
			p.ends++
			if e.Change != nil && len(p.answer) > 0 {
				e.Change.Write(p.answer)
				e.Change.End()
			}
			p.tell(Delivered{})
		case Say:
			if e.End {
				p.ends++
			}
		case Answer:
			p.ends++
			if e.Status < 200 || e.Status > 599 {
				p.Fatalf("%s: the answer's status is %d", p.connector, e.Status)
			}
			if e.Verbatim == 0 && !json.Valid(e.Body) {
				p.Fatalf("%s: an answer of its own is no JSON: %q", p.connector, e.Body)
			} else if e.Verbatim > 0 {
				p.known(e.Verbatim)
			}
		}
	}
}

// called checks a leg.
func (p *played) called(l Leg) {
	switch {
	case l.ID != len(p.legs)+1:
		p.Fatalf("%s: leg %d after %d others", p.connector, l.ID, len(p.legs))
	case p.ends > 0:
		p.Fatalf("%s: leg %d after the answer's end", p.connector, l.ID)
	case l.Original && l.Body != nil:
		p.Fatalf("%s: leg %d has the client's body and another, %q", p.connector, l.ID, l.Body)
	case !l.Original && len(l.Body) > 0 && !json.Valid(l.Body):
		p.Fatalf("%s: leg %d has a body that is no JSON: %q", p.connector, l.ID, l.Body)
	case l.Kind == Prefill && l.Target.String() != "a:1" || l.Kind == Decode && l.Target != (Target{}):
		p.Fatalf("%s: the %s leg goes to %s", p.connector, l.Kind, l.Target)
	}
	p.legs = append(p.legs, l)
}

func (p *played) known(leg int) {
	if leg < 1 || leg > len(p.legs) {
		p.Fatalf("%s: nobody called leg %d", p.connector, leg)
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
	x := New(&Config{Retries: 3},
		Request{Method: "POST", Path: chatPath, Body: []byte(`{}`), Prefillers: ParseTargets("a:1")})
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
	c := &Config{MoRIIO: connector.MoRIIO{Write: true, Parallel: true, Wait: machine.Second}}
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
	for _, s := range []string{`{"kv_transfer_params":{}}`, `{"KV_\u0074ransfer_params":1,"a":"\"kv_handle\""}`,
		`{"bootstrap_ho\u017ft":1}`, `{"\u212aV_HANDLE":"x"}`,
		`{"sampling_params":{"extra_args":{"kv_transfer_params":{}}}}`, "{\x00\"\x00", `{"a":"\\","kv_handle":"x"}`,
		`{"a":1,"kv_handle":"x","kv_handle":"y"}`} {
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
