package picker_test

import (
	"fmt"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/gate"
)

// pool builds the default picker over n endpoints with different metrics.
func pool(tb testing.TB, n int, opt picker.Options) *picker.Picker {
	tb.Helper()
	p, err := picker.New(config.Default(), plugins.Builtin(), opt)
	if err != nil {
		tb.Fatal(err)
	}
	var list []*picker.Endpoint
	for i := range n {
		list = append(list, picker.NewEndpoint("default", fmt.Sprintf("w%04d", i),
			fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), "8000", nil))
	}
	p.Pool().Set(list)
	for i := range n {
		p.Pool().Update(0, i, picker.Metrics{Waiting: int64(i % 7), Running: int64(i % 13),
			KVUsage: float64(i%100) / 100})
	}
	return p
}

// prompt returns a request of 32 prefix blocks.
func prompt(id int) *picker.Request {
	text := make([]byte, 32*64*4)
	for i := range text {
		text[i] = byte(i*7 + id%50)
	}
	p := parse.TextPrompt(text)
	p.Divide(parse.UnitTokens, 1<<20) // as Picker.NewRequest does, before the picker's turn
	return &picker.Request{ID: fmt.Sprint(id), Prepared: picker.Prepared{TargetModel: "m", Tokens: 2048},
		Body: &parse.Body{Kind: parse.Completions, Model: "m", MaxOutputTokens: -1, Prompts: []parse.Prompt{p}}}
}

// One decision of the default profile (queue, KV cache, prefix) with a prefix
// of 32 blocks, committed and released; record is the full record.
func BenchmarkDecision(b *testing.B) {
	for _, n := range []int{16, 64, 1024} {
		for _, detail := range []bool{false, true} {
			b.Run(fmt.Sprintf("endpoints=%d/record=%v", n, detail), func(b *testing.B) {
				p := pool(b, n, picker.Options{Detail: detail})
				requests := make([]*picker.Request, 50)
				for i := range requests {
					requests[i] = prompt(i)
				}
				d := &picker.Decision{}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					d = p.Pick(machine.Time(i), requests[i%50], p.Pool().View(), nil, d)
					p.Commit(machine.Time(i), d)
					p.Release(machine.Time(i), d)
				}
				if limit := map[int]float64{16: 10, 1024: 100}[n]; limit > 0 && b.N >= 1000 {
					gate.AtMost(b, b.Elapsed().Seconds()*1e6/float64(b.N), "us/decision", limit)
				}
			})
		}
	}
}
