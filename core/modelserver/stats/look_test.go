package stats

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
	"pgregory.net/rapid"
)

// randomLook plays random requests at a random server, and looks at it.
func randomLook(t *rapid.T, timer engine.StepTimer) *Look {
	adapters := rapid.Bool().Draw(t, "adapters")
	c := engine.Config{ReportSteps: true, NumGPUBlocks: 64, MaxModelLen: 512, MaxInFlight: 3,
		NumCPUBlocks: rapid.SampledFrom([]int{0, 16}).Draw(t, "cpu blocks"),
		Timer: rapid.SampledFrom(
			[]engine.StepTimer{timer, latency.PerToken{Step: engine.ToFixed(10 * machine.Millisecond)}}).Draw(t,
			"timer")}
	if adapters {
		c.Adapters, c.MaxLoRAs = []engine.AdapterID{1, 2}, 1
	}
	b, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	c = b.Config()
	x := &bench{Stats: New(&c), eng: b, seqs: map[engine.RequestID]*Sequence{}}
	now := machine.Time(0)
	for id := range engine.RequestID(rapid.IntRange(0, 8).Draw(t, "requests")) {
		was := now
		now += machine.Time(rapid.IntRange(0, 4000).Draw(t, "ms")) * machine.Millisecond
		for at, ok := x.eng.Next(); ok && at <= now; at, ok = x.eng.Next() {
			x.eng.Advance(at, &x.fx)
			x.deliver()
		}
		x.Computed(was, now, x.eng.Computing())
		m, q := &engine.Submit{ID: id + 1, PromptTokens: rapid.IntRange(1, 500).Draw(t, "prompt"),
			MaxTokens: rapid.IntRange(1, 100).Draw(t, "max")},
			&Sequence{EveryToken: rapid.Bool().Draw(t, "every token"), N: rapid.IntRange(0, 3).Draw(t, "n")}
		if adapters {
			m.Adapter, q.Adapter = 1+engine.AdapterID(id%2), fmt.Sprint("adapter \"", id%2)
		}
		x.submit(now, m, q)
		switch rapid.IntRange(0, 5).Draw(t, "then") {
		case 0:
			x.input(now, engine.Abort{ID: id + 1})
		case 1:
			x.Fetched(new(Sequence), rapid.IntRange(1, 1000).Draw(t, "tokens"), c.BlockSize,
				rapid.Int64Range(1, 1e10).Draw(t, "bytes"), 0.01, rapid.Float64Range(0, 3).Draw(t, "took"))
		case 2:
			x.FetchFailed(1)
		}
	}
	server := &Server{Engine: c, Model: rapid.SampledFrom([]string{"m", "a\"b\\c\nd"}).Draw(t, "model"),
		MemoryBytes: 20e9, SpeculativeTokens: rapid.IntRange(0, 2).Draw(t, "drafts")}
	l := x.At(now, server, x.eng)
	l.Stats = x.Snapshot()
	l.Unix, l.SleepLevel, l.MediaQueries, l.MediaHits = now.Seconds(), rapid.IntRange(0, 2).Draw(t, "level"), 5, 3
	if adapters {
		l.UseAdapters(x.eng, maps.Values(x.seqs))
	}
	if rapid.IntRange(0, 3).Draw(t, "pretend") == 0 {
		f, err := ParseFakeMetrics(
			[]byte(`{"running-requests":16,"kv-cache-usage":0.25,"loras":[{"running":"a,b","waiting":"c"},` +
				`{"running":"","waiting":"","timestamp":7}],"ttft-buckets-values":[0,3,1]}`))
		if err != nil {
			t.Fatal(err)
		}
		f.Pretend(&l, time.Second)
	}
	return &l
}

// families is how many there are in all.
const families = 85

var typeLine = regexp.MustCompile(`(?m)^# TYPE (\S+) `)

// Parsed text and samples without text have the same families, whatever happened at the server, and each family appears
// once.
func TestSamplesAsText(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	h, err := hardware.Names{Model: "llama-3.1-8b", Accelerator: "H100"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	timer, err := latency.New(latency.Config{Hardware: h})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := randomLook(t, timer)
		var text metrics.Text
		x.Write(&text)
		var names []string
		for _, m := range typeLine.FindAllSubmatch(text.Page, -1) {
			names = append(names, string(m[1]))
			seen[string(m[1])] = true
		}
		wanted := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "wanted")
		for _, want := range []func(string) bool{func(string) bool { return true },
			func(name string) bool { return slices.Contains(wanted, name) }} {
			c := metrics.NewCollector(want)
			x.Write(c)
			parsed, err := metrics.Parse(text.Page, want)
			if err != nil {
				t.Fatalf("%v\n%s", err, text.Page)
			}
			if d := cmp.Diff(parsed, c.Take(), cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("the text (-) and the samples (+) differ: %s", d)
			}
		}
		if !bytes.Contains(text.Page, []byte(`engine="0"`)) {
			t.Fatal("no labels")
		}
	})
	if len(seen) < families {
		t.Errorf("only %d families were seen: %v", len(seen), slices.Sorted(maps.Keys(seen)))
	}
}
