package stream

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

var kindNames = []string{"decide", "continue headers", "request headers", "request body", "request trailers",
	"response headers", "response body", "response trailers", "answer", "fail"}

// send and advance are the machine's calls with a buffer of their own.
func (s *Stream) send(now machine.Time, m Message) []Effect {
	var fx machine.Effects[Effect]
	s.Input(now, &m, &fx)
	return fx.List
}

func (s *Stream) advance(now machine.Time) []Effect {
	var fx machine.Effects[Effect]
	s.Advance(now, &fx)
	return fx.List
}

// A decision that comes after its deadline has no effect: the stream answered the request at the deadline.
func TestDecisionAfterItsDeadline(t *testing.T) {
	s := New(Config{Deadline: machine.Second})
	s.send(0, Message{Kind: Headers, Head: header.Of(":method", "POST", ":path", "/v1/completions"), End: true})
	fx := s.send(2*machine.Second, Message{Kind: Decided, Decision: Decision{Endpoint: "10.0.0.1:8000"}})
	if len(fx) != 1 || fx[0].Kind != SendAnswer || fx[0].Answer.Status != 504 || fx[0].At != machine.Second ||
		s.Result() != Answered {
		t.Errorf("%v, %s", s.Result(), describe(fx))
	}
}

func describe(effects []Effect) string {
	var b strings.Builder
	for _, e := range effects {
		fmt.Fprintf(&b, "-> %s", kindNames[e.Kind])
		for _, h := range e.Set {
			fmt.Fprintf(&b, " set %s=%s", h.Name, h.Value)
		}
		for _, r := range e.Remove {
			fmt.Fprintf(&b, " remove %s", r)
		}
		switch {
		case e.Kind == Decide:
			fmt.Fprintf(&b, " body=%q", short(e.Body))
		case len(e.Body) > 0:
			fmt.Fprintf(&b, " %q", short(e.Body))
		}
		if e.Replace {
			b.WriteString(" replace")
		}
		if e.End {
			b.WriteString(" END")
		}
		if e.Kind == SendAnswer {
			fmt.Fprintf(&b, " %d %s", e.Answer.Status, e.Answer.Body)
		}
		if e.Reason != "" {
			fmt.Fprintf(&b, " %s", e.Reason)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func short(b []byte) []byte {
	if len(b) > 260 {
		return append(append([]byte(nil), b[:20]...), fmt.Sprintf("… %d bytes", len(b))...)
	}
	return b
}

// The scripts under testdata are conversations: what Envoy says, and what the
// EPP says back.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *Stream
		var written strings.Builder
		var modes Modes
		var now machine.Time
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			written.Reset()
			if d.HasArg("at") {
				var at string
				d.ScanArgs(t, "at", &at)
				dur, err := time.ParseDuration(at)
				if err != nil {
					t.Fatal(err)
				}
				now = machine.FromDuration(dur)
			}
			str := func(key, fallback string) string {
				if d.HasArg(key) {
					d.ScanArgs(t, key, &fallback)
				}
				return fallback
			}
			end := d.HasArg("end")
			var out []Effect
			switch d.Cmd {
			case "new":
				now = 0
				modes = Modes{parseMode(str("request", "duplex")), parseMode(str("response", "duplex"))}
				cfg := Config{Hold: d.HasArg("hold"), LosePart2: d.HasArg("lose-part2"),
					MaxBodyBytes: 4 << 20, Deadline: 10 * machine.Second, HoldLimit: 60 * machine.Second,
					MetadataBytes: 8, Seed: 1}
				if str("errors", "openai") == "epp" {
					cfg.Errors = EPPErrors
				}
				if d.HasArg("limit") {
					d.ScanArgs(t, "limit", &cfg.MaxBodyBytes)
				}
				if d.HasArg("body-idle") {
					cfg.BodyIdle, cfg.BodyTotal = 2*machine.Second, 5*machine.Second
				}
				cfg.Recorder = record.Func(func(e record.Event) {
					fmt.Fprintf(&written, "%v %s", e.Time, e.Step)
					for _, f := range e.Details {
						fmt.Fprintf(&written, " %s=%v", f.Key, f.Value)
					}
					written.WriteString("\n")
				})
				s = New(cfg)
				return ""
			case "headers":
				head := header.Of(":method", "POST", ":path", str("path", "/v1/chat/completions"), "x-request-id", "r1",
					"content-length", "13")
				if d.HasArg("count") {
					var n int
					d.ScanArgs(t, "count", &n)
					head = append(head, make(header.List, n-len(head))...)
				}
				out = s.send(now, Message{Kind: Headers, Modes: modes, Head: head, End: end})
			case "body":
				body := []byte(d.Input)
				if d.HasArg("size") {
					var n int
					d.ScanArgs(t, "size", &n)
					body = bytes.Repeat([]byte("x"), n)
				}
				out = s.send(now, Message{Kind: Body, Body: body, End: end})
			case "trailers":
				out = s.send(now, Message{Kind: Trailers})
			case "decided":
				dec := Decision{Endpoint: str("endpoint", "10.0.0.1:8000"),
					Set: header.Of("x-gateway-destination-endpoint", "10.0.0.1:8000"), Plain: d.HasArg("plain"),
					Details: []record.Detail{record.D("endpoint", "10.0.0.1:8000")}}
				if d.HasArg("reject") {
					a := s.cfg.Errors.Answer(&apierror.Error{Status: 503, Message: "no ready endpoint"})
					dec = Decision{Answer: &a, Reason: "no ready endpoint"}
				}
				if d.HasArg("replace") {
					dec.Replace, dec.Body = true, []byte(d.Input)
				}
				out = s.send(now, Message{Kind: Decided, Decision: dec})
			case "response-headers":
				out = s.send(now, Message{Kind: ResponseHeaders, Head: header.Of(":status", str("status", "200")),
					End: end})
			case "response-body":
				out = s.send(now, Message{Kind: ResponseBody, Body: []byte(d.Input), End: end})
			case "response-trailers":
				out = s.send(now, Message{Kind: ResponseTrailers})
			case "gone":
				out = s.send(now, Message{Kind: PeerGone, Reason: strings.TrimSpace(d.Input)})
			case "advance":
				out = s.advance(now)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			text := written.String() + describe(out)
			if s.Result() != Running {
				text += s.Result().String() + "\n"
			} else if at, ok := s.Next(); ok {
				text += fmt.Sprintf("next %v\n", at)
			}
			return text
		})
	})
}

func parseMode(s string) BodyMode {
	return map[string]BodyMode{"duplex": FullDuplex, "streamed": Streamed, "buffered": Buffered, "none": NoBody}[s]
}

// Any messages in any order: the stream ends in exactly one way, nothing
// follows the end, and part 2 goes at most once and only after the first
// non-empty chunk of a 2xx.
func FuzzAnyOrder(f *testing.F) {
	f.Add([]byte{1, 0, 2, 6, 0, 8, 9, 9}, uint8(1))
	f.Add([]byte{1, 2, 6, 10, 8, 11}, uint8(0x11))
	f.Add([]byte{1, 2, 6, 13, 13}, uint8(0x21))
	f.Fuzz(func(t *testing.T, ops []byte, setup uint8) {
		modes := Modes{BodyMode(setup >> 4 & 3), BodyMode(setup >> 6 & 3)}
		s := New(Config{Hold: setup&1 == 1, MaxBodyBytes: 40, Deadline: machine.Second, HoldLimit: machine.Second,
			BodyIdle: machine.Second, BodyTotal: 2 * machine.Second, MetadataBytes: 4})
		var ends, part2, requestEnds int
		var ok2xx, firstChunk bool
		now := machine.Time(0)
		check := func(out []Effect, was Result) {
			if was != Running && len(out) > 0 && (was != PassedThrough || out[0].Kind != PassResponseTrailers) {
				t.Fatalf("%v after the end", describe(out))
			}
			for _, e := range out {
				switch e.Kind {
				case SendAnswer, Fail:
					ends++
				case SendRequestBody:
					if bytes.Contains(e.Body, []byte(`name="metadata"`)) {
						if part2++; !ok2xx || !firstChunk {
							t.Fatal("part 2 before the first chunk of a 2xx")
						}
					}
					if e.End {
						requestEnds++
					}
				}
				if len(e.Body) > MaxChunkBytes && e.Kind == SendRequestBody && modes.Request == FullDuplex {
					t.Fatal("a chunk is too large")
				}
			}
			if s.Result() != was && s.Result() == PassedThrough {
				ends++
			}
		}
		for _, op := range append(ops, 14) {
			now += machine.Time(op) * 10 * machine.Millisecond
			was := s.Result()
			var out []Effect
			switch op % 15 {
			case 0:
				out = s.send(now, Message{Kind: Body, Body: []byte("{}"), End: false})
			case 1:
				out = s.send(now, Message{Kind: Headers, Modes: modes, Head: header.Of(":path", "/v1/completions"),
					End: false})
			case 2:
				out = s.send(now, Message{Kind: Body, Body: []byte("{}"), End: true})
			case 3:
				out = s.send(now, Message{Kind: Body, Body: make([]byte, 50), End: false})
			case 4:
				out = s.send(now, Message{Kind: Trailers})
			case 5:
				out = s.send(now, Message{Kind: Headers, Modes: modes, Head: nil, End: true})
			case 6:
				out = s.send(now, Message{Kind: Decided, Decision: Decision{}})
			case 7:
				out = s.send(now, Message{Kind: Decided, Decision: Decision{Answer: &Answer{Status: 503}}})
			case 8:
				if s.state == awaitBody || s.state == awaitResponse || s.state == awaitHeaders ||
					s.state == awaitDecision {
					ok2xx = true
				}
				out = s.send(now, Message{Kind: ResponseHeaders, Head: header.Of(":status", "200"), End: op > 128})
			case 9:
				firstChunk = true
				out = s.send(now, Message{Kind: ResponseBody, Body: []byte("tok"), End: op > 128})
			case 10:
				out = s.send(now, Message{Kind: ResponseHeaders, Head: header.Of(":status", "503"), End: op > 128})
			case 11:
				out = s.send(now, Message{Kind: ResponseBody, Body: nil, End: op > 128})
			case 12:
				out = s.send(now, Message{Kind: ResponseTrailers})
			case 13:
				if at, ok := s.Next(); ok {
					now = max(now, at)
				}
				out = s.advance(now)
			case 14:
				out = s.send(now, Message{Kind: PeerGone, Reason: ""})
			}
			check(out, was)
		}
		if ends != 1 || part2 > 1 || s.Result() == Running || s.Holding() {
			t.Fatalf("%d ends, %d times part 2, result %v", ends, part2, s.Result())
		}
		if modes.Request == FullDuplex && requestEnds > 1 {
			t.Fatalf("the request was ended %d times", requestEnds)
		}
		if at, ok := s.Next(); ok {
			t.Fatalf("a deadline at %v outlives the stream", at)
		}
	})
}

// A refusal says why the picker dropped the request in both forms; an evicted
// request's body is the bare text in both.
func TestAnswers(t *testing.T) {
	full := apierror.Error{Status: 429, Message: "no <room>", Reason: "rejected-saturated"}
	evicted := apierror.Error{Status: 429, Message: "evicted", Reason: "evicted", Bare: true}
	for _, c := range []struct {
		style ErrorStyle
		err   apierror.Error
		body  string
	}{
		{OpenAIErrors, full, `{"error":{"code":429,"message":"no <room>","param":null,"type":"rate_limit_error"}}`},
		{EPPErrors, full, "inference error: ResourceExhausted - no <room>"},
		{OpenAIErrors, evicted, "evicted"},
		{EPPErrors, evicted, "evicted"},
	} {
		a := c.style.Answer(&c.err)
		if string(a.Body) != c.body || a.Status != 429 || a.Set.Get(apierror.DroppedReasonHeader) != c.err.Reason {
			t.Errorf("%v %+v: %d %v %s, expected %s", c.style, c.err, a.Status, a.Set, a.Body, c.body)
		}
	}
}
