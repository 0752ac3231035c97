package latency_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

func newTimer(t testing.TB, model, accelerator string, tp, nodes int) *latency.Timer {
	t.Helper()
	h, err := hardware.Names{Model: model, Accelerator: accelerator, TP: tp, Nodes: nodes}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	timer, err := latency.New(latency.Config{Hardware: h})
	if err != nil {
		t.Fatal(err)
	}
	return timer
}

// Macro-steps over the knots of a measured table end exactly where single
// steps end, token by token.
func TestMacroStepsOverTables(t *testing.T) {
	timers := []*latency.Timer{newTimer(t, "Llama-3.1-8B", "H100", 1, 1), newTimer(t, "Llama-3.1-70B", "H100", 8, 2),
		newTimer(t, "gpt-oss-20b", "L40S", 1, 1)}
	rapid.Check(t, func(t *rapid.T) {
		timer := rapid.SampledFrom(timers).Draw(t, "timer")
		type arrival struct {
			at             machine.Time
			prompt, output int
		}
		var arrivals []arrival
		var at machine.Time
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			at += machine.Time(rapid.Int64Range(0, 40e6).Draw(t, "gap"))
			arrivals = append(arrivals,
				arrival{at, rapid.IntRange(1, 3000).Draw(t, "prompt"), rapid.IntRange(1, 400).Draw(t, "output")})
		}
		play := func(single bool) []string {
			e, err := engine.New(engine.Config{Timer: timer, SingleSteps: single})
			if err != nil {
				t.Fatal(err)
			}
			var fx engine.Effects
			for i, a := range arrivals {
				e.Input(a.at, &engine.Submit{ID: engine.RequestID(i + 1), PromptTokens: a.prompt, MaxTokens: a.output,
					Interest: engine.EveryToken}, &fx)
			}
			for at, ok := e.Next(); ok; at, ok = e.Next() {
				e.Advance(at, &fx)
			}
			var tokens []string
			for _, f := range fx.List {
				switch f.Kind {
				case engine.FirstToken, engine.Finished:
					tokens = append(tokens, fmt.Sprintf("%d kind %d at %d", f.Request, f.Kind, f.At))
				case engine.Tokens:
					for k := range int(f.Count) {
						tokens = append(tokens, fmt.Sprintf("%d token %d at %d", f.Request, int(f.First)+k,
							f.Schedule.End(k+1)))
					}
				}
			}
			slices.Sort(tokens)
			return tokens
		}
		if diff := cmp.Diff(play(true), play(false)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The engine's times for a prompt, and for a step in which a batch decodes, equal those of the tables within 2 %. The
// test covers chunks, batches and blocks, and not the timer alone.
func TestEngineTakesTheTablesTimes(t *testing.T) {
	held := 0
	for _, m := range latency.Builtin() {
		timer := newTimer(t, m.Model, m.System, m.TP, 1)
		for _, p := range m.Points {
			if p.Batch > 256 || !p.Decode && p.Context != 512 && p.Context != 2048 && p.Context != 8192 {
				continue
			}
			// The first token comes with the prompts, which one step computes; the next one of each
			// attends to the prompt and to it.
			prompt, output := int(p.Context), 1
			if p.Decode {
				prompt, output = int(p.Context)-1, 2
			}
			e, err := engine.New(engine.Config{Timer: timer, MaxNumSeqs: 256, MaxNumBatchedTokens: 1 << 23,
				MaxModelLen: 1 << 16, NumGPUBlocks: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			var fx engine.Effects
			for i := range p.Batch {
				e.Input(0, &engine.Submit{ID: engine.RequestID(i + 1), PromptTokens: prompt, MaxTokens: output,
					Interest: engine.EveryToken}, &fx)
			}
			var first, last machine.Time
			finished := int64(0)
			for at, ok := e.Next(); ok; at, ok = e.Next() {
				e.Advance(at, &fx)
				for _, f := range fx.List {
					switch f.Kind {
					case engine.FirstToken:
						first = f.At
					case engine.Finished:
						last = f.At
						finished++
					}
				}
				fx.Reset()
			}
			took := first
			if p.Decode {
				took = last - first
			}
			if r := float64(took) / float64(p.Nanoseconds); finished != p.Batch || r < .98 || r > 1.02 {
				t.Errorf("%s on %s, TP %d: %s: the engine finished %d requests and took %s, the table has %s", m.Model,
					m.System, m.TP, p, finished, took, hardware.Round(p.Nanoseconds))
			}
			held++
		}
	}
	if held != 7*(3+9*7) {
		t.Errorf("%d points were played", held)
	}
}

// Document 003's batching comparison on measured step times: clients that send
// their next request when the last is answered.
func TestBatchingComparison(t *testing.T) {
	timer := newTimer(t, "Llama-3.1-8B", "A100-80GB", 1, 1)
	datadriven.RunTest(t, "testdata/engine/batching", func(t *testing.T, td *datadriven.TestData) string {
		var clients, requests, prompt, low, high int
		td.ScanArgs(t, "clients", &clients)
		td.ScanArgs(t, "requests", &requests)
		td.ScanArgs(t, "prompt", &prompt)
		td.ScanArgs(t, "output", &low, &high)
		var out strings.Builder
		for _, line := range strings.Fields(td.Input) {
			batching, err := engine.ParseBatching(line)
			if err != nil {
				return err.Error()
			}
			e, err := engine.New(engine.Config{Timer: timer, Batching: batching})
			if err != nil {
				return err.Error()
			}
			var fx engine.Effects
			begun := map[engine.RequestID]machine.Time{}
			var took []machine.Time
			var last machine.Time
			send := func(now machine.Time) {
				id := engine.RequestID(len(begun) + 1)
				draw := machine.NewDraw(1, "batching", "output", uint64(id))
				begun[id] = now
				e.Input(now, &engine.Submit{ID: id, PromptTokens: prompt,
					MaxTokens: int(draw.Between(machine.Time(low), machine.Time(high)))}, &fx)
			}
			for range clients {
				send(0)
			}
			for len(took) < requests {
				at, ok := e.Next()
				if !ok {
					return "the engine stopped"
				}
				e.Advance(at, &fx)
				for i := 0; i < len(fx.List); i++ { // send may add effects
					if f := fx.List[i]; f.Kind == engine.Finished {
						last = f.At
						took = append(took, f.At-begun[f.Request])
						if len(begun) < requests {
							send(f.At)
						}
					}
				}
				fx.Reset()
			}
			slices.Sort(took)
			fmt.Fprintf(&out, "%-10s  %3.0f req/s  p50 %s  p99 %s\n", line, float64(requests)/last.Seconds(),
				took[len(took)/2].Duration().Round(1e6), took[len(took)*99/100].Duration().Round(1e6))
		}
		return out.String()
	})
}
