package exports

import (
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/imports"
)

// of a scenario with this workload.
func parse(t *testing.T, workload string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("x.yaml",
		[]byte("apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n  - {name: default, flow: plain, "+
			"modelServer: {batching: continuous, loraAdapters: [sql]}}\nworkload: "+workload))
	if err != nil {
		t.Fatalf("%v\n%s", err, workload)
	}
	return s
}

// What is written and read again is the same traffic.
func TestThereAndBack(t *testing.T) {
	for _, x := range []struct {
		name, workload string
		formats        []string
		lost           string // the note besides the one about draws; "" is none
	}{
		{"closed loop", `{api: chat, concurrency: 16, requests: 200, prompt: {tokens: 512}, outputTokens: 64}`,
			Formats(), ""},
		{"rate and duration", `{api: completions, rate: 4, duration: 60s, prompt: {tokens: "normal(2000, 300, ` +
			`min=100, max=4000)"}, outputTokens: "normal(200, 30, min=10, max=400)"}`, Formats(), ""},
		{"stages", `{api: chat, stages: [{rate: 2, duration: 20s}, {rate: 8, duration: 20s}], prompt: {tokens: 64, ` +
			`shared: {groups: 4, characters: 4096}}, outputTokens: 64, timeout: 90s, slo: {ttft: 500ms, e2e: 5s}}`,
			Formats(), "tokenizer of the model's name"},
		{"pauses", `{api: chat, stages: [{rate: 2, duration: 20s}, {rate: 0, duration: 5s}, {rate: 8, duration: ` +
			`30s}], prompt: {tokens: 100..300}, outputTokens: 50..400}`, []string{imports.InferencePerf}, ""},
		{"conversations", `{api: chat, concurrency: 8, requests: 100, conversations: {turns: "lognormal(4, 3, min=1, ` +
			`max=15)", thinkTime: "lognormal(5s, 2s, min=1s, max=20s)"}, prompt: {tokens: 256, shared: {groups: 12, ` +
			`characters: "normal(4000, 400, min=1000, max=8000)"}}, outputTokens: 100}`,
			[]string{imports.InferencePerf}, "has no chat"},
		{"turns", `{api: chat, concurrency: 8, requests: 100, conversations: {turns: 5, thinkTime: 2s}, prompt: ` +
			`{tokens: 128}, outputTokens: 128}`, Formats(), "has no chat"},
		{"adapters and headers",
			`{api: chat, rate: 2, requests: 100, loraAdapters: [{name: sql, share: 25%}], headers: [{name: x-tenant, ` +
				`value: blue}], stream: false, prompt: {tokens: 16}, outputTokens: 8}`, []string{imports.InferencePerf},
			""},
		{"objectives and whole answers",
			`{api: completions, rate: 2, requests: 100, headers: [{name: x-tenant, value: blue}], stream: false, ` +
				`slo: {ttft: 200ms, tpot: 30ms, e2e: 4s}, prompt: {tokens: 16}, outputTokens: 8}`, Formats(), ""},
		{"pauses that vary", `{api: chat, concurrency: 8, requests: 100, conversations: {turns: 3, thinkTime: ` +
			`"normal(2s, 400ms, min=500ms, max=5s)"}, prompt: {tokens: 128}, outputTokens: 128}`,
			[]string{imports.GuideLLM}, ""},
	} {
		for _, format := range x.formats {
			t.Run(x.name+" "+format, func(t *testing.T) {
				before := parse(t, x.workload)
				text, lost, err := Write(format, before, "http://127.0.0.1:1")
				if err != nil {
					t.Fatal(err)
				}
				note := strings.Join(lost, "\n")
				if x.lost != "" && format == imports.InferencePerf && !strings.Contains(note, x.lost) || x.lost == "" &&
					len(lost) > 2 {
					t.Errorf("told %s", note)
				}
				made, err := imports.Read(format, text, 0)
				if err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				after, err := scenario.Parse("made.yaml", made.Text)
				if err != nil {
					t.Fatalf("%v\n%s", err, made.Text)
				}
				same(t, format, before, after)
				if t.Failed() {
					t.Logf("%s\n%s", text, made.Text)
				}
			})
		}
	}
}

func same(t *testing.T, format string, x, y *scenario.Scenario) {
	a, b := &x.Workload, &y.Workload
	for _, d := range []struct {
		what string
		a, b *dist.Dist
	}{
		{"prompts", &a.Prompt.Tokens, &b.Prompt.Tokens}, {"answers", &a.OutputTokens, &b.OutputTokens},
		{"beginnings", &a.Prompt.Shared.Characters, &b.Prompt.Shared.Characters},
		{"turns", &a.Conversations.Turns, &b.Conversations.Turns},
		{"pauses", &a.Conversations.ThinkTime, &b.Conversations.ThinkTime},
	} {
		for _, p := range []float64{0.1, 0.5, 0.9} {
			if v, w := d.a.Quantile(p),
				d.b.Quantile(p); math.Abs(float64(v-w)) > 0.02*float64(v)+1 && !(d.what == "turns" && v+w == 1) {
				t.Errorf("%s: p%v is %d, and was %d", d.what, 100*p, w, v)
			}
		}
	}
	if a.Prompt.Shared.Groups != b.Prompt.Shared.Groups || a.API != b.API || a.Stream != b.Stream {
		t.Error("groups, API or streaming differ")
	}
	// A rate may come back as a stage, and GuideLLM's first rate is one alone.
	open := func(s *scenario.Scenario) stages {
		w := &writer{s: s, w: &s.Workload}
		return w.open()
	}
	if a.Rate == 0 && len(a.Stages) == 0 {
		if a.Requests != b.Requests || a.Concurrency != b.Concurrency {
			t.Errorf("%d requests, %d at once; were %d, %d", b.Requests, b.Concurrency, a.Requests, a.Concurrency)
		}
	} else if v, w := open(x),
		open(y); v.rates[0] != w.rates[0] || v.durations[0] != w.durations[0] || format == imports.InferencePerf &&
		(len(v.rates) != len(w.rates) || v.pause != w.pause) {
		t.Errorf("rates %v, were %v", w, v)
	}
	if a.SLO != b.SLO || len(a.Headers) != len(b.Headers) {
		t.Errorf("objectives or headers: %v %v", b.SLO, b.Headers)
	}
	if format == imports.InferencePerf {
		if a.Timeout != b.Timeout {
			t.Errorf("timeout: %v", b.Timeout)
		}
		if len(a.LoRAAdapters) > 0 && (len(b.LoRAAdapters) == 0 || b.LoRAAdapters[0] != a.LoRAAdapters[0]) {
			t.Errorf("adapters %v", b.LoRAAdapters)
		}
	}
}

// What the tools refuse is not written: inference-perf 0.7.0 and GuideLLM 0.8.1, as their
// configurations' classes and generators check it.
func TestAsTheToolsAsk(t *testing.T) {
	write := func(format, workload string) (map[string]any, string) {
		t.Helper()
		text, lost, err := Write(format, parse(t, workload), "http://x")
		if err != nil {
			t.Fatalf("%s: %v", workload, err)
		}
		var out map[string]any
		if err := yaml.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out, strings.Join(lost, "\n")
	}
	at := func(v any, path string) any {
		for name := range strings.SplitSeq(path, ".") {
			if list, ok := v.([]any); ok {
				v = list[0]
			}
			fields, _ := v.(map[string]any)
			v = fields[name]
		}
		return v
	}
	want := func(out map[string]any, path string, value any) {
		t.Helper()
		if got := at(out, path); got != value {
			t.Errorf("%s is %v, want %v", path, got, value)
		}
	}
	// random makes no chats.
	out, _ := write(imports.InferencePerf, `{api: chat, rate: 4, duration: 60s, prompt: {tokens: 64}, outputTokens: 8}`)
	want(out, "data.type", "shared_prefix")
	want(out, "data.shared_prefix.system_prompt_len", 0.0)
	want(out, "data.shared_prefix.num_prompts_per_group", 240.0)
	// Nor does conversation_replay.
	out, note := write(imports.InferencePerf,
		`{api: chat, concurrency: 4, requests: 60, conversations: {turns: 3}, prompt: {tokens: 64}, outputTokens: 8}`)
	want(out, "api.type", "completion")
	if !strings.Contains(note, "conversation_replay has no chat") {
		t.Errorf("told %s", note)
	}
	// Shares have a sum of 1, rounded once.
	for _, shares := range [][]string{{"10%", "20%"}, {"33.333333333%", "33.333333333%", "33.333333334%"},
		{"70%", "29.999999%"}, {"7%", "11%", "13%"}} {
		s := parse(t, `{api: completions, rate: 4, duration: 60s, prompt: {tokens: 64}, outputTokens: 8}`)
		for i, text := range shares {
			share, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
			if err != nil {
				t.Fatal(err)
			}
			s.Workload.LoRAAdapters = append(s.Workload.LoRAAdapters,
				scenario.AdapterShare{Name: strconv.Itoa(i), Share: scenario.Share(share / 100)})
		}
		sum := new(big.Rat)
		w := &writer{s: s, w: &s.Workload}
		for _, x := range w.inferencePerfSplit() {
			sum.Add(sum, new(big.Rat).SetFloat64(x.(map[string]any)["split"].(float64)))
		}
		if v, _ := sum.Float64(); v != 1 {
			t.Errorf("%v: the sum is %v", shares, v)
		}
	}
	// A trace's lengths are asked for apart from its times, and a stage besides.
	azure := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(azure, []byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,100,20\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = write(imports.InferencePerf, `{api: completions, trace: {format: azure, file: `+azure+`}}`)
	want(out, "data.trace.file", azure)
	want(out, "load.trace.file", azure)
	want(out, "load.stages.rate", 1.0)
	// GuideLLM takes Mooncake's milliseconds for seconds.
	mooncake := filepath.Join(t.TempDir(), "m.jsonl")
	if err := os.WriteFile(mooncake, []byte(`{"timestamp":0,"input_length":30,"output_length":5,"hash_ids":[0]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = write(imports.GuideLLM, `{api: chat, trace: {format: mooncake, speedup: 2, file: `+mooncake+`}}`)
	want(out, "spec.profile.time_scale", 0.0005)
	want(out, "spec.data.hash_id_block_size", 512.0)
	want(out, "spec.data.source.path", mooncake)
	text, _, err := Write(imports.GuideLLM,
		parse(t, `{api: chat, trace: {format: mooncake, speedup: 2, file: `+mooncake+`}}`), "http://x")
	if err != nil {
		t.Fatal(err)
	}
	if made, err := imports.Read(imports.GuideLLM, text, 0); err != nil || made.Trace != mooncake ||
		!strings.Contains(string(made.Text), "speedup: 2") {
		t.Errorf("%v %s", err, made.Text)
	}
}

// A note or an error names each field that a format cannot express.
func TestLost(t *testing.T) {
	for _, x := range []struct {
		format, workload string
		note             []string
	}{
		{imports.InferencePerf, `{rate: 3, requests: 10, arrivals: constant, prompt: {tokens: "empirical(100*3, ` +
			`800)"}, outputTokens: 8}`,
			[]string{"poisson and not constant", "3.333333334s: the format has whole seconds",
				"the prompts' length is lognormal, of the same mean and deviation, and not empirical"}},
		{imports.GuideLLM, `{rate: 3, requests: 10, arrivals: gamma, burstiness: 2, prompt: {tokens: 100..200, ` +
			`shared: {groups: 2, characters: 400..800}}, outputTokens: 8, slo: {ttft: 1s}, headers: [{name: x-a, ` +
			`value: b}], leaving: {after: 1s}}`,
			[]string{"poisson and not gamma", "is normal, of the same mean and deviation, and not uniform",
				"beginnings' length is always its mean, 150 tokens", "clients that leave"}},
		{imports.InferencePerf, `{stages: [{rate: 2, duration: 20s}, {rate: 4, duration: 20s, ramp: true}], prompt: ` +
			`{text: "Hello you"}, maxTokens: 8}`,
			[]string{"stages[1] has its mean rate, 3", "not workload.prompt.text"}},
		{imports.GuideLLM, `{rate: 1, requests: 5}`, []string{"simulated model servers' answers"}},
	} {
		_, lost, err := Write(x.format, parse(t, x.workload), "http://x")
		if err != nil {
			t.Error(err)
		}
		for _, w := range x.note {
			if !strings.Contains(strings.Join(lost, "\n"), w) {
				t.Errorf("%q is not told: %q", w, lost)
			}
		}
	}
	for _, x := range [][3]string{
		{imports.InferencePerf, `{classes: [{name: a, share: 100%}], rate: 1, requests: 5, outputTokens: 3}`,
			"workload.classes: several kinds of traffic"},
		{imports.GuideLLM, `{rate: 1, requests: 5, diurnal: {period: 1h, swing: 50%}, outputTokens: 3}`,
			"workload.diurnal"},
		{imports.GuideLLM, `{rate: 1, requests: 5, bursts: {on: 1s, off: 1s}, outputTokens: 3}`, "workload.bursts"},
		{imports.GuideLLM, `{stages: [{rate: 1, duration: 5s}, {rate: 1, duration: 6s}], outputTokens: 3}`,
			"stages of 5s and of 6s"},
		{imports.InferencePerf, `{stages: [{rate: 1, duration: 5s}, {rate: 0, duration: 6s}, {rate: 1, duration: 5s},` +
			` {rate: 1, duration: 5s}], outputTokens: 3}`, "pauses of different lengths"},
		{"jmeter", `{requests: 1}`, `no format "jmeter"`},
	} {
		if _, _, err := Write(x[0], parse(t, x[1]), "http://x"); err == nil || !strings.Contains(err.Error(), x[2]) {
			t.Errorf("%v, want %q", err, x[2])
		}
	}
}
