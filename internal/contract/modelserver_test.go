package contract

import (
	"fmt"
	"net/netip"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// simple is the state of a server without faults or images.
type simple struct {
	modelserver.State
	draws lifecycle.Draws
}

func (s *simple) Draws() *lifecycle.Draws      { return &s.draws }
func (s *simple) Fault(string) lifecycle.Fault { return lifecycle.Fault{} }
func (s *simple) Own(netip.Addr) bool          { return true }
func (s *simple) MeetsAt(string, int) bool     { return false }
func (s *simple) ImagePercent() int            { return 0 }
func (s *simple) Shown([]modelserver.Media)    {}

func responses(t *rapid.T) Kind[*modelserver.Progress, *modelserver.Effects] {
	type fx = modelserver.Effects
	painting := dist.Fixed(50 * machine.Millisecond)
	rd := &modelserver.Reader{State: &simple{},
		Config: &modelserver.Config{Engine: engine.Config{MaxModelLen: 100, BlockSize: 16}, Models: []string{"m"},
			Tokenizer: tokens.Packed{}, Template: tokens.TemplateFor("m"),
			Vocabulary: tokens.NewVocabulary(tokens.Packed{}), Omni: true, ImageTime: &painting}}
	fault, err := lifecycle.ParseFault(
		rapid.SampledFrom([]string{"", "", "delay=20ms", "stall=2", "reset-after=2", "die-in-prefill",
			"end-before-part2"}).Draw(t, "fault"))
	if err != nil {
		t.Fatal(err)
	}
	head := modelserver.Head{RequestID: "r", Image: rapid.Bool().Draw(t, "image")}
	held, stream := rapid.Bool().Draw(t, "held"), rapid.Bool().Draw(t, "stream")
	body := fmt.Appendf(nil, `{"messages":[{"role":"user","content":"a"}],"max_tokens":4,"stream":%t}`, stream)
	return Kind[*modelserver.Progress, *fx]{
		Make: func() Instance[*modelserver.Progress, *fx] {
			r, x := new(modelserver.Response), new(fx)
			r.Init(rd, &modelserver.ResponseOptions{Head: &head, API: modelserver.Chat, Fault: fault, Held: held})
			r.Open(0, "", x)
			r.Body(0, len(body), x)
			if fault[lifecycle.AtBody].For == 0 {
				q, bad := modelserver.Chat.Read(rd, &head, body)
				r.Take(0, q, bad, x)
			}
			x.Reset()
			all := modelserver.Progress{Choices: make([]modelserver.Choice, 1)}
			return Instance[*modelserver.Progress, *fx]{Machine: r, Effects: x,
				Own: func(p *modelserver.Progress) *modelserver.Progress {
					// Progress accumulates: nothing that has happened is taken back.
					all.Started, all.Part2, all.Rejected = true, all.Part2 || p.Part2, all.Rejected || p.Rejected
					all.Gone, all.Violation = max(all.Gone, p.Gone), max(all.Violation, p.Violation)
					if c := &all.Choices[0]; p.Choices[0].Finished || !c.Finished && p.Choices[0].Tokens > c.Tokens {
						*c = p.Choices[0]
					}
					return &all
				}, Say: func(x *fx) []Said {
					var out []Said
					for i := range x.List {
						e := &x.List[i]
						out = append(out, Said{e.At,
							fmt.Sprintf("%d %d %v %t %s", e.Kind, e.Status, e.Error, e.Reset, r.Append(nil, e))})
					}
					return out
				}}
		},
		Message: func(t *rapid.T, _ machine.Time) *modelserver.Progress {
			p := &modelserver.Progress{Started: true,
				Choices: []modelserver.Choice{{Tokens: rapid.IntRange(0, 4).Draw(t, "tokens")}}}
			p.Part2 = rapid.Bool().Draw(t, "part 2")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				p.Gone = "gone"
			case 1:
				p.Violation = "violation"
			case 2:
				p.Rejected = true
			case 3, 4, 5:
				p.Choices[0] = modelserver.Choice{Tokens: 4, Finished: true, Reason: engine.ReasonLength}
			}
			return p
		},
		Spans: []machine.Time{machine.Millisecond, 10 * machine.Millisecond, 50 * machine.Millisecond},
		Rest:  machine.Second,
	}
}
