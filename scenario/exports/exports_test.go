package exports

import (
	"math"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/latency/dist"
	"github.com/windtunnel/windtunnel/scenario"
	"github.com/windtunnel/windtunnel/scenario/imports"
)

// of a scenario with this workload.
func parse(t *testing.T, workload string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("x.yaml", []byte("apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n  - {name: default, flow: plain, modelServer: {batching: continuous, loraAdapters: [sql]}}\nworkload: "+workload))
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
		lost           string // what is told besides the draws; "" is nothing
	}{
		{"closed loop", `{api: chat, concurrency: 16, requests: 200, prompt: {tokens: 512}, outputTokens: 64}`, Formats(), ""},
		{"rate and duration", `{api: completions, rate: 4, duration: 60s, prompt: {tokens: "normal(2000, 300, min=100, max=4000)"}, outputTokens: "normal(200, 30, min=10, max=400)"}`, Formats(), ""},
		{"stages", `{api: chat, stages: [{rate: 2, duration: 20s}, {rate: 8, duration: 20s}], prompt: {tokens: 64, shared: {groups: 4, characters: 4096}}, outputTokens: 64, timeout: 90s, slo: {ttft: 500ms, e2e: 5s}}`, Formats(), "come again where more are sent"},
		{"pauses", `{api: chat, stages: [{rate: 2, duration: 20s}, {rate: 0, duration: 5s}, {rate: 8, duration: 30s}], prompt: {tokens: 100..300}, outputTokens: 50..400}`, []string{imports.InferencePerf}, ""},
		{"conversations", `{api: chat, concurrency: 8, requests: 100, conversations: {turns: "lognormal(4, 3, min=1, max=15)", thinkTime: "lognormal(5s, 2s, min=1s, max=20s)"}, prompt: {tokens: 256, shared: {groups: 12, characters: "normal(4000, 400, min=1000, max=8000)"}}, outputTokens: 100}`, []string{imports.InferencePerf}, ""},
		{"turns", `{api: chat, concurrency: 8, requests: 100, conversations: {turns: 5, thinkTime: 2s}, prompt: {tokens: 128}, outputTokens: 128}`, Formats(), ""},
		{"adapters and headers", `{api: chat, rate: 2, requests: 100, loraAdapters: [{name: sql, share: 25%}], headers: [{name: x-tenant, value: blue}], stream: false, prompt: {tokens: 16}, outputTokens: 8}`, []string{imports.InferencePerf}, ""},
	} {
		for _, format := range x.formats {
			t.Run(x.name+" "+format, func(t *testing.T) {
				before := parse(t, x.workload)
				text, lost, err := Write(format, before, "http://127.0.0.1:1")
				if err != nil {
					t.Fatal(err)
				}
				told := strings.Join(lost, "\n")
				if x.lost != "" && format == imports.InferencePerf && !strings.Contains(told, x.lost) || x.lost == "" && len(lost) > 1 {
					t.Errorf("told %s", told)
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
		{"prompts", &a.Prompt.Tokens, &b.Prompt.Tokens}, {"answers", &a.OutputTokens, &b.OutputTokens}, {"beginnings", &a.Prompt.Shared.Characters, &b.Prompt.Shared.Characters},
		{"turns", &a.Conversations.Turns, &b.Conversations.Turns}, {"pauses", &a.Conversations.ThinkTime, &b.Conversations.ThinkTime},
	} {
		for _, p := range []float64{0.1, 0.5, 0.9} {
			if v, w := d.a.Quantile(p), d.b.Quantile(p); math.Abs(float64(v-w)) > 0.02*float64(v)+1 && !(d.what == "turns" && v+w == 1) {
				t.Errorf("%s: p%v is %d, and was %d", d.what, 100*p, w, v)
			}
		}
	}
	if a.Prompt.Shared.Groups != b.Prompt.Shared.Groups || a.API != b.API || a.Stream != b.Stream && format == imports.InferencePerf {
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
	} else if v, w := open(x), open(y); v.rates[0] != w.rates[0] || v.durations[0] != w.durations[0] || format == imports.InferencePerf && (len(v.rates) != len(w.rates) || v.pause != w.pause) {
		t.Errorf("rates %v, were %v", w, v)
	}
	if format == imports.InferencePerf {
		if a.SLO != b.SLO || a.Timeout != b.Timeout || len(a.Headers) != len(b.Headers) {
			t.Errorf("objectives, timeout or headers: %v %v %v", b.SLO, b.Timeout, b.Headers)
		}
		if len(a.LoRAAdapters) > 0 && (len(b.LoRAAdapters) == 0 || b.LoRAAdapters[0] != a.LoRAAdapters[0]) {
			t.Errorf("adapters %v", b.LoRAAdapters)
		}
	}
}

// What has no like is told, or refused with the field.
func TestLost(t *testing.T) {
	for _, x := range []struct {
		format, workload string
		told             []string
	}{
		{imports.InferencePerf, `{rate: 3, requests: 10, arrivals: constant, prompt: {tokens: "empirical(100*3, 800)"}, outputTokens: 8}`, []string{"poisson and not constant", "3.333333334s: it is told in whole seconds", "the prompts' length is lognormal, of the same mean and deviation, and not empirical"}},
		{imports.GuideLLM, `{rate: 3, requests: 10, arrivals: gamma, burstiness: 2, prompt: {tokens: 100..200, shared: {groups: 2, characters: 400..800}}, outputTokens: 8, slo: {ttft: 1s}, headers: [{name: x-a, value: b}], leaving: {after: 1s}}`,
			[]string{"poisson and not gamma", "is normal, of the same mean and deviation, and not uniform", "beginnings' length is its mean, 150 tokens", "workload.slo", "workload.headers", "clients that leave"}},
		{imports.InferencePerf, `{stages: [{rate: 2, duration: 20s}, {rate: 4, duration: 20s, ramp: true}], prompt: {text: "Hello you"}, maxTokens: 8}`, []string{"stages[1] has its mean rate, 3", "not workload.prompt.text"}},
		{imports.GuideLLM, `{rate: 1, requests: 5}`, []string{"simulated model servers choose"}},
	} {
		_, lost, err := Write(x.format, parse(t, x.workload), "http://x")
		if err != nil {
			t.Error(err)
		}
		for _, w := range x.told {
			if !strings.Contains(strings.Join(lost, "\n"), w) {
				t.Errorf("%q is not told: %q", w, lost)
			}
		}
	}
	for _, x := range [][3]string{
		{imports.InferencePerf, `{classes: [{name: a, share: 100%}], rate: 1, requests: 5, outputTokens: 3}`, "workload.classes: several kinds of traffic"},
		{imports.GuideLLM, `{rate: 1, requests: 5, diurnal: {period: 1h, swing: 50%}, outputTokens: 3}`, "workload.diurnal"},
		{imports.GuideLLM, `{rate: 1, requests: 5, bursts: {on: 1s, off: 1s}, outputTokens: 3}`, "workload.bursts"},
		{imports.GuideLLM, `{stages: [{rate: 1, duration: 5s}, {rate: 1, duration: 6s}], outputTokens: 3}`, "stages of 5s and of 6s"},
		{imports.InferencePerf, `{stages: [{rate: 1, duration: 5s}, {rate: 0, duration: 6s}, {rate: 1, duration: 5s}, {rate: 1, duration: 5s}], outputTokens: 3}`, "pauses of unlike lengths"},
		{"jmeter", `{requests: 1}`, `no format "jmeter"`},
	} {
		if _, _, err := Write(x[0], parse(t, x[1]), "http://x"); err == nil || !strings.Contains(err.Error(), x[2]) {
			t.Errorf("%v, want %q", err, x[2])
		}
	}
}
