package virtual

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/scenario"
)

// branching are recorded requests whose prompts' beginnings form a tree, as those of
// Mooncake's traces do.
func branching(t *rapid.T) (list []workload.Recorded) {
	unit := rapid.SampledFrom([]int{64, 256, 2048}).Draw(t, "unit")
	next := uint64(0)
	at := machine.Time(0)
	for range rapid.IntRange(1, 30).Draw(t, "requests") {
		p := workload.RecordedPrompt{Unit: unit}
		if len(list) > 0 && rapid.Bool().Draw(t, "goes on") {
			heads := list[rapid.IntRange(0, len(list)-1).Draw(t, "from")].Prompt[0].Heads
			p.Heads = append(p.Heads, heads[:rapid.IntRange(0, min(20, len(heads))).Draw(t, "of it")]...)
		}
		for range rapid.SampledFrom([]int{0, 1, 2, 3, 5, 40}).Draw(t, "more") {
			next++
			p.Heads = append(p.Heads, next)
		}
		if len(p.Heads) == 0 {
			p.Heads = []uint64{0}
		}
		p.Bytes = (len(p.Heads)-1)*unit + rapid.IntRange(1, unit).Draw(t, "rest")
		if rapid.IntRange(0, 2).Draw(t, "waits") == 0 {
			at += machine.Time(rapid.IntRange(0, 3000).Draw(t, "ms")) * machine.Millisecond
		}
		list = append(list, workload.Recorded{At: at, Chat: rapid.IntRange(0, 9).Draw(t, "chat") > 0,
			Stream: rapid.Bool().Draw(t, "stream"),
			Output: rapid.IntRange(1, 60).Draw(t, "output"), Prompt: []workload.RecordedPrompt{p}})
	}
	return list
}

// Requests of a trace that are described, direct or not, have the record of those that
// are written.
func TestDescribedTraces(t *testing.T) {
	direct := 0
	rapid.Check(t, func(t *rapid.T) {
		list := branching(t)
		config := rapid.SampledFrom([]string{"", scored}).Draw(t, "picker")
		play := func(short, inBytes bool) *living {
			s, err := scenario.Parse("trace.yaml", []byte(`
apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: pool
    model: llama-3.1-8b
    replicas: 3
    flow: plain
    modelServer: {batching: continuous, accelerator: H100, maxModelLen: 40000, numGPUBlocks: 2600}
workload: {requests: 1000}
`))
			if err != nil {
				t.Fatal(err)
			}
			if config != "" {
				s.Pools[0].EPP.Config = scenario.PickerConfig{File: "picker.yaml", Text: []byte(config)}
			}
			s.SendAgain(list)
			x := &living{}
			w, err := newWorld(s, x, Options{eachScore: !short})
			if err != nil {
				t.Fatal(err)
			}
			w.pools[0].direct = w.pools[0].direct && short
			if inBytes {
				w.load.Write()
			}
			if err := w.run(nil); err != nil {
				t.Fatal(err)
			}
			direct += x.lives
			return x
		}
		long := play(false, true).read()
		for _, direct := range []bool{false, true} {
			if d := firstDifference(play(direct, false).read(), long); d != "" {
				t.Fatalf("direct %t: %s", direct, d)
			}
		}
	})
	if direct == 0 {
		t.Error("no request was direct")
	}
}
