package imports

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

var configurations = []struct {
	name, format, text string
	want, told         []string // in the scenario, in the notes
}{
	{"shared prefix in stages", InferencePerf, `
load: {type: constant, interval: 15, stages: [{rate: 2, duration: 50}, {rate: 20, duration: 30}]}
api: {type: completion, streaming: true, headers: {x-tenant: blue}}
server: {type: vllm, model_name: m, ignore_eos: true}
data: {type: shared_prefix, shared_prefix: {num_groups: 32, num_prompts_per_group: 32, system_prompt_len: 2048, question_len: 256, output_len: 256}}
report: {request_lifecycle: {summary: true}, goodput: {constraints: {ttft: 0.2, request_latency: 5}}}
circuit: breaker
`, []string{"api: completions", "- {duration: 50s, rate: 2}\n    - {duration: 15s, rate: 0}\n    - {duration: 30s, rate: 20}", "tokens: 256", "shared: {groups: 32, characters: 8192}", "outputTokens: 256",
		`headers: [{name: "x-tenant", value: "blue"}]`, "slo: {ttft: 0.2s, e2e: 5s}"}, []string{"by Poisson", "not taken over: circuit"}},
	{"lengths, adapters", InferencePerf, `
load: {type: poisson, stages: [{rate: 3, duration: 10}], lora_traffic_split: [{name: sql, split: 0.25}, {name: code, split: 0.75}]}
api: {type: chat}
data: {type: random, input_distribution: {type: normal, min: 100, max: 4000, mean: 2000, std_dev: 300}, output_distribution: {min: 10, max: 1024, mean: 100, std_dev: 200}}
`, []string{`prompt: {tokens: "normal(2000, 300, min=100, max=4000)"}`, `outputTokens: "lognormal(100, 200, min=10, max=1024)"`, `{name: "sql", share: 25%}`, `loraAdapters: ["sql", "code"]`, "stream: false"}, []string{"the answers' length is a lognormal"}},
	{"at once", InferencePerf, "load: {type: concurrent, stages: [{num_requests: 200, concurrency_level: 16}]}\ndata: {type: mock}\n", []string{"concurrency: 16", "requests: 200"}, nil},
	{"a specification", GuideLLM, `
metadata: {labels: {name: heavy}}
spec:
  backend: {kind: openai_http, target: http://x, model: m, request_format: /v1/chat/completions}
  profile: {kind: concurrent}
  data: [{kind: synthetic_text, prompt_tokens: 1000, prompt_tokens_stdev: 100, prompt_tokens_min: 50, prompt_tokens_max: 3000, output_tokens: 800, turns: 3, delay: 2, prefix_buckets: [{bucket_weight: 100, prefix_count: 4, prefix_tokens: 64}]}]
  constraints: [{kind: max_duration, seconds: 600}]
benchmarks: [{profile.streams: 50}, {profile.streams: 1}]
`, []string{"concurrency: 50", "duration: 600s", `tokens: "normal(1000, 100, min=50, max=3000)"`, "shared: {groups: 4, characters: 256}", "outputTokens: 800", "{turns: 3, thinkTime: 2s}"}, []string{"of 2 loads that are played one after the other the first is taken"}},
	{"older arguments", GuideLLM, "target: http://x\ndata_request_formatter: text_completions\nprofile: poisson\nrate: [1, 5]\nmax_seconds: 30\ndata: {prompt_tokens: 256, output_tokens: 128}\n",
		[]string{"api: completions", "rate: 1", "duration: 30s", "tokens: 256", "outputTokens: 128"}, []string{"of 2 loads"}},
	{"classes", PriorityMix, `
endpoint_url: http://x
load: {duration_seconds: 90, rate_per_second: 6, max_in_flight: 24, request_timeout_seconds: 180, fail_on_error: false}
request: {prompt: Say hello., max_tokens: 512, stream: true}
trafficClasses:
- {name: critical, weight: 0.2, priority: 100, objective: app-critical, fairnessID: tenant-critical, request: {promptTemplate: "0123456789", promptRepeat: 150, max_tokens: 64}}
- {name: batch, weight: 0.6, priority: -10, objective: app-batch}
`, []string{"rate: 6", "duration: 90s", "timeout: 180s", `{name: "critical", share: 25%, maxTokens: 64, objective: "app-critical", fairnessID: "tenant-critical", prompt: {characters: 1500}}`,
		`{name: "batch", share: 75%, maxTokens: 512, objective: "app-batch", prompt: {characters: 10}}`}, []string{"class critical has the priority 100"}},
}

// What is made of a configuration is a scenario that says the same, and what it
// cannot say is told.
func TestRead(t *testing.T) {
	for _, x := range configurations {
		t.Run(x.name, func(t *testing.T) {
			s, err := Read(x.format, []byte(x.text))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := scenario.Parse("made.yaml", s.Text); err != nil {
				t.Errorf("%v\n%s", err, s.Text)
			}
			for _, w := range x.want {
				if !strings.Contains(string(s.Text), w) {
					t.Errorf("%q is missing:\n%s", w, s.Text)
				}
			}
			notes := strings.Join(s.Notes, "\n")
			for _, w := range x.told {
				if !strings.Contains(notes, w) {
					t.Errorf("not told: %q:\n%s", w, notes)
				}
			}
			if x.told == nil && notes != "" {
				t.Errorf("told %s", notes)
			}
		})
	}
}

// Mistakes name the field.
func TestMistakes(t *testing.T) {
	for _, x := range [][3]string{
		{InferencePerf, "load: {type: consant, stages: [{rate: 1, duration: 2}]}", `load.type: found "consant"; expected one of constant, poisson, concurrent; did you mean "constant"?`},
		{InferencePerf, "load: {type: constant}", "load.stages: missing"},
		{InferencePerf, "load: {type: constant, stages: [{rate: much, duration: 2}]}", `load.stages[0].rate: found "much"; expected a number`},
		{InferencePerf, "load: {type: trace_replay, stages: [{}]}", "load.type"},
		{InferencePerf, "[1", "expected a configuration of inference-perf"},
		{GuideLLM, "profile: {kind: sweep}", "profile.kind"}, {GuideLLM, "profile: {kind: poisson}\ndata: []", "profile.rate: missing"},
		{PriorityMix, "load: {rate_per_second: 1}", "trafficClasses: missing"},
	} {
		if _, err := Read(x[0], []byte(x[1])); err == nil || !strings.Contains(err.Error(), x[2]) {
			t.Errorf("%s: %v, want %q", x[1], err, x[2])
		}
	}
}

// No configuration ends in a panic.
func FuzzRead(f *testing.F) {
	for _, x := range configurations {
		f.Add(x.format, x.text)
	}
	f.Fuzz(func(t *testing.T, format, text string) {
		if s, err := Read(format, []byte(text)); err == nil {
			_, _ = scenario.Parse("made.yaml", s.Text) // what does not hold is told there
		}
	})
}
