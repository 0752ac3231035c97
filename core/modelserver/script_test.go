package modelserver

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// nowhere is a server without any state.
type nowhere struct{ draws lifecycle.Draws }

func (x *nowhere) Draws() *lifecycle.Draws                      { return &x.draws }
func (x *nowhere) Fault(string) lifecycle.Fault                 { return lifecycle.Fault{} }
func (x *nowhere) Adapter(name string) (engine.AdapterID, bool) { return 1, name == "adapter" }
func (x *nowhere) Own(netip.Addr) bool                          { return false }
func (x *nowhere) MeetsAt(host string, port int) bool           { return host == "here" && port == 8998 }
func (x *nowhere) Fetched(string) bool                          { return false }
func (x *nowhere) Shown([]Media)                                {}
func (x *nowhere) ImagePercent() int                            { return 0 }
func (x *nowhere) EncodingsAt() (string, int)                   { return "here", 5600 }
func (x *nowhere) Stored() Stored                               { return x }
func (x *nowhere) Response(string) ([]openai.Message, bool)     { return nil, false }
func (x *nowhere) Conversation(string) ([]Item, bool)           { return nil, false }
func (x *nowhere) KeepResponse(string, *StoredResponse)         {}
func (x *nowhere) Continue(string, []Item)                      {}

// testReader reads the requests of a server with prefix caching and a context of
// 4,096 tokens.
func testReader(t testing.TB, change func(*Config)) *Reader {
	t.Helper()
	eng, err := engine.New(engine.Config{Batching: engine.BatchingContinuous,
		Timer: latency.Constant{TimeToFirstToken: 1, InterTokenLatency: 1}, NumGPUBlocks: 1000, MaxModelLen: 4096,
		BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{Seed: 3, Engine: eng.Config(), Models: []string{"m"}, Tokenizer: tokens.Packed{},
		Template: tokens.TemplateFor("m"), Vocabulary: tokens.NewVocabulary(tokens.Packed{}),
		EngineID: "engine"}
	if change != nil {
		change(c)
	}
	return &Reader{Config: c, State: &nowhere{}}
}

func (r *Reader) content(q *Request, i int) *content {
	c := new(content)
	r.say(c, q, i)
	return c
}

// script drives one Response as a driver would, and writes down what it says.
type script struct {
	t       testing.TB
	reader  *Reader
	api     *API
	head    Head
	fault   string
	held    bool
	brief   bool
	resp    Response
	fx      Effects
	p       Progress
	now     machine.Time
	out     strings.Builder
	content string
	sent    []byte
	refused *openai.Error
	ends    int
}

var kindNames = []string{"read", "submit", "resume", "abort", "begin", "tokens", "end", "refuse", "bodyless", "fail",
	"cut", "leave"}

func (x *script) open(violation string) {
	x.head.RequestID, x.head.Attempt, x.head.Created = "r1", 1, 1
	fault, err := lifecycle.ParseFault(x.fault)
	if err != nil {
		x.t.Fatal(err)
	}
	x.resp.Init(x.reader, &ResponseOptions{Head: &x.head, API: x.api, Fault: fault, Endpoint: "here", Held: x.held,
		Brief: x.brief, Silent: x.brief,
		Recorder: record.Func(func(e record.Event) {
			fmt.Fprintf(&x.out, "%v %s", e.Time, e.Step)
			for _, d := range e.Details {
				fmt.Fprintf(&x.out, " %s=%v", d.Key, d.Value)
			}
			x.out.WriteString("\n")
		})})
	x.resp.Open(x.now, violation, &x.fx)
	x.play()
}

func (x *script) body(content string) {
	x.content = content
	x.resp.Body(x.now, len(content), &x.fx)
	x.play()
}

func (x *script) tell() {
	x.resp.Input(x.now, &x.p, &x.fx)
	x.play()
}

func (x *script) tokens(n int) {
	for i := range x.p.Choices {
		x.p.Choices[i].Tokens = n
	}
	x.p.Started = true
	x.tell()
}

func (x *script) finish(n int) {
	for i := range x.p.Choices {
		x.p.Choices[i] = Choice{Tokens: n, Finished: true, Reason: engine.ReasonLength}
	}
	x.p.Started = true
	x.tell()
}

func (x *script) play() {
	for i := 0; i < len(x.fx.List); i++ {
		e := x.fx.List[i]
		fmt.Fprintf(&x.out, "-> %s", kindNames[e.Kind])
		if e.At != x.now {
			fmt.Fprintf(&x.out, " at=%v", e.At)
		}
		before := len(x.sent)
		switch e.Kind {
		case ReadBody:
			x.out.WriteString("\n")
			q, bad := x.api.Read(x.reader, &x.head, []byte(x.content))
			x.resp.Take(x.now, q, bad, &x.fx)
			if bad == nil {
				x.p.Choices = make([]Choice, q.Choices())
			}
			continue
		case Submit:
			for _, s := range x.resp.Sequences() {
				m := &s.Submit
				fmt.Fprintf(&x.out, "\n   prompt=%d max=%d stop=%d hold-first=%t hold-kv=%t priority=%d blocks=%d "+
					"interest=%d", m.PromptTokens, m.MaxTokens, m.StopAfter, m.HoldAfterFirst, m.HoldKV, m.Priority,
					len(m.Hashes), m.Interest)
			}
		case Bodyless:
			fmt.Fprintf(&x.out, " status=%d", e.Status)
			x.ends++
		case Cut:
			fmt.Fprintf(&x.out, " reset=%t", e.Reset)
			x.ends++
		case Leave:
			x.ends++
		case Refuse, Fail, End:
			x.ends++
			fallthrough
		case BeginAnswer, Tokens:
			if e.Error != nil {
				fmt.Fprintf(&x.out, " status=%d", e.Error.Status)
				if e.Kind == Refuse {
					x.refused = e.Error
				}
			}
			x.sent = x.resp.Append(x.sent, &e)
			fmt.Fprintf(&x.out, " %s", x.sent[before:])
		}
		x.out.WriteString("\n")
	}
	x.fx.Reset()
}

// Scripts: new [held] [brief] [fault=…] [threshold]; body <json>; start cached=N;
// tokens N; finish N [reason]; part2-begun; part2; violation; gone; reject CODE;
// kept; at TIME.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/response", func(t *testing.T, path string) {
		var x *script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				x = &script{t: t, reader: testReader(t, func(c *Config) {
					if d.HasArg("image") {
						time := dist.Fixed(machine.Second)
						c.Omni, c.ImageTime = true, &time
					}
					if d.HasArg("independent") {
						c.Engine.Batching = engine.BatchingIndependent
					}
				}), api: Chat, held: d.HasArg("held"), brief: d.HasArg("brief")}
				x.head.Threshold, x.head.Image = d.HasArg("threshold"), d.HasArg("image")
				d.MaybeScanArgs(t, "fault", &x.fault)
				if d.HasArg("completion") {
					x.api = Completions
				}
				var violation string
				d.MaybeScanArgs(t, "violation", &violation)
				x.open(violation)
				return x.out.String()
			}
			x.out.Reset()
			arg := func() int {
				n, err := strconv.Atoi(d.CmdArgs[0].Key)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			switch d.Cmd {
			case "body":
				x.body(d.Input)
			case "start":
				d.MaybeScanArgs(t, "cached", &x.p.Cached)
				x.p.Started, x.p.StartedAt = true, x.now
				x.tell()
			case "tokens":
				x.tokens(arg())
			case "finish":
				for i := range x.p.Choices {
					x.p.Choices[i].Reason = engine.ReasonLength
				}
				switch {
				case d.HasArg("stop"):
					x.finishAs(arg(), engine.ReasonStop)
				case d.HasArg("crash"):
					x.finishAs(arg(), engine.ReasonCrash)
				default:
					x.finishAs(arg(), engine.ReasonLength)
				}
			case "part2-begun":
				x.p.Part2Begun = true
				x.tell()
			case "part2":
				x.p.Part2Begun, x.p.Part2, x.p.Metadata = true, true, "meta"
				x.tell()
			case "violation":
				x.p.Violation = "broken"
				x.tell()
			case "gone":
				x.p.Gone = "the client left"
				x.tell()
			case "reject":
				x.p.Rejected, x.p.Code = true, engine.CodeFull
				x.tell()
			case "kept":
				x.p.Kept = &Kept{Host: "10.0.0.1", Port: 5600,
					Hold: &enginecore.Hold{Blocks: connector.Blocks{First: 7, Count: 2}, Tokens: 20}}
			case "at":
				span, err := time.ParseDuration(d.CmdArgs[0].Key)
				if err != nil {
					t.Fatal(err)
				}
				x.now = machine.FromDuration(span)
				if at, ok := x.resp.Next(); ok && at <= x.now {
					x.resp.Advance(x.now, &x.fx)
					x.play()
				}
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			if at, ok := x.resp.Next(); ok {
				fmt.Fprintf(&x.out, "next %v\n", at)
			}
			return x.out.String()
		})
	})
}

func (x *script) finishAs(n int, why engine.Reason) {
	for i := range x.p.Choices {
		x.p.Choices[i] = Choice{Tokens: n, Finished: true, Reason: why}
	}
	x.tell()
}

// Whatever happens in whatever order, with whatever fault: the request ends in
// one way, the engine is asked once, and nothing is said after the end.
func TestAnyOrder(t *testing.T) {
	faults := []string{"", "", "", "reset", "status=503", "delay=1s", "die-in-prefill", "end-before-part2", "no-body",
		"stall", "stall=2", "reset-after=2", "reset-after=0"}
	things := []string{"start", "token", "finish", "part2-begun", "part2", "violation", "gone", "reject", "time",
		"nothing"}
	rapid.Check(t, func(rt *rapid.T) {
		x := &script{t: t, reader: testReader(t, nil), api: APIs[rapid.IntRange(0, 1).Draw(rt, "api")],
			held: rapid.Bool().Draw(rt, "held"), brief: rapid.Bool().Draw(rt, "brief"),
			fault: rapid.SampledFrom(faults).Draw(rt, "fault")}
		stream := rapid.Bool().Draw(rt, "stream")
		x.open("")
		x.body(fmt.Sprintf(`{"messages":[{"role":"user","content":"a"}],"prompt":"a","max_tokens":5,"n":%d,`+
			`"stream":%t}`, rapid.IntRange(1, 2).Draw(rt, "n"), stream))
		for range rapid.IntRange(0, 12).Draw(rt, "things") {
			if x.resp.Over() && x.ends != 1 {
				rt.Fatalf("over with %d ends:\n%s", x.ends, x.out.String())
			}
			x.now += machine.Millisecond
			switch rapid.SampledFrom(things).Draw(rt, "thing") {
			case "start":
				x.p.Started = true
			case "token":
				if len(x.p.Choices) > 0 && !x.p.Choices[0].Finished {
					x.p.Started = true
					for i := range x.p.Choices {
						x.p.Choices[i].Tokens = min(5, x.p.Choices[i].Tokens+1)
					}
				}
			case "finish":
				x.p.Started = true
				for i := range x.p.Choices {
					x.p.Choices[i] = Choice{Tokens: 5, Finished: true, Reason: engine.ReasonLength}
				}
			case "part2-begun":
				x.p.Part2Begun = true
			case "part2":
				x.p.Part2Begun, x.p.Part2 = true, true
			case "violation":
				x.p.Violation = "v"
			case "gone":
				x.p.Gone = "g"
			case "reject":
				if len(x.p.Choices) > 0 && x.p.Choices[0].Tokens == 0 {
					x.p.Rejected, x.p.Code = true, engine.CodeFull
				}
			case "time":
				x.now += machine.Second
				x.resp.Advance(x.now, &x.fx)
				x.play()
				continue
			}
			x.tell()
		}
		x.p.Gone = "g"
		x.tell()
		if !x.resp.Over() || x.ends != 1 || strings.Count(x.out.String(), "-> submit") > 1 ||
			strings.Count(x.out.String(), "-> begin") > 1 {
			rt.Fatalf("%d ends:\n%s", x.ends, x.out.String())
		}
		if _, ok := x.resp.Next(); ok {
			rt.Fatal("it waits after its end")
		}
	})
}

// Told after each token, or of all at once: what was sent is the same.
func TestLateIsTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"a"}],"max_tokens":6,"stream":true,"stop":%s}`,
			rapid.SampledFrom([]string{`"a"`, `["zq"]`, `[]`}).Draw(rt, "stop"))
		var played []string
		for _, late := range []bool{false, true} {
			x := &script{t: t, reader: testReader(t, nil), api: Chat}
			x.open("")
			x.body(body)
			n := 6
			if stop := x.resp.Sequences()[0].Submit.StopAfter; stop > 0 {
				n = stop
			}
			for i := 1; i < n && !late; i++ {
				x.tokens(i)
			}
			x.finish(n)
			played = append(played, string(x.sent))
		}
		if !slices.Equal(played[:1], played[1:]) {
			rt.Fatalf("%s\n%s", played[0], played[1])
		}
	})
}
