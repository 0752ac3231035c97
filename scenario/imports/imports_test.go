package imports

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/scenario"
)

var configurations = []struct {
	name, format, text string
	want, notes        []string // in the scenario, in the notes
}{
	{"shared prefix in stages", InferencePerf, `
load: {type: constant, interval: 15, stages: [{rate: 2, duration: 50}, {rate: 20, duration: 30}]}
api: {type: completion, streaming: true, headers: {x-tenant: blue}}
server: {type: vllm, model_name: m, ignore_eos: true}
data: {type: shared_prefix, shared_prefix: {num_groups: 32, num_prompts_per_group: 32, system_prompt_len: 2048, question_len: 256, output_len: 256}}
report: {request_lifecycle: {summary: true}, goodput: {constraints: {ttft: 0.2, request_latency: 5}}}
circuit: breaker
`, []string{"api: completions", "- {duration: 50s, rate: 2}\n    - {duration: 15s, rate: 0}\n    - {duration: 30s, rate: 20}", "tokens: 256", "shared: {groups: 32, characters: 8192}", "outputTokens: 256",
		`headers: [{name: "x-tenant", value: "blue"}]`, "slo: {ttft: 0.2s, e2e: 5s}"},
		[]string{"Poisson arrivals", "left out: circuit"}},
	{"lengths, adapters", InferencePerf, `
load: {type: poisson, stages: [{rate: 3, duration: 10}], lora_traffic_split: [{name: sql, split: 0.25}, {name: code, split: 0.75}]}
api: {type: chat}
data: {type: random, input_distribution: {type: normal, min: 100, max: 4000, mean: 2000, std_dev: 300}, output_distribution: {min: 10, max: 1024, mean: 100, std_dev: 200}}
`, []string{`prompt: {tokens: "normal(2000, 300, min=100, max=4000)"}`, `outputTokens: "lognormal(100, 200, min=10, max=1024)"`, `{name: "sql", share: 25%}`, `loraAdapters: ["sql", "code"]`, "stream: false"}, []string{"the answers' length is a lognormal"}},
	{"at once", InferencePerf,
		"load: {type: concurrent, stages: [{num_requests: 200, concurrency_level: 16}]}\ndata: {type: mock}\n",
		[]string{"concurrency: 16", "requests: 200"}, nil},
	{"a specification", GuideLLM, `
metadata: {labels: {name: heavy}}
spec:
  backend: {kind: openai_http, target: http://x, model: m, request_format: /v1/chat/completions}
  profile: {kind: concurrent}
  data: [{kind: synthetic_text, prompt_tokens: 1000, prompt_tokens_stdev: 100, prompt_tokens_min: 50, prompt_tokens_max: 3000, output_tokens: 800, turns: 3, delay: 2, prefix_buckets: [{bucket_weight: 100, prefix_count: 4, prefix_tokens: 64}]}]
  constraints: [{kind: max_duration, seconds: 600}]
benchmarks: [{profile.streams: 50}, {profile.streams: 1}]
`, []string{"concurrency: 50", "duration: 600s", `tokens: "normal(1000, 100, min=50, max=3000)"`, "shared: {groups: 4, characters: 256}", "outputTokens: 800", "{turns: 3, thinkTime: 2000ms}"}, []string{"the first of 2 consecutive loads"}},
	{"older arguments", GuideLLM,
		"target: http://x\ndata_request_formatter: text_completions\nprofile: poisson\nrate: [1, 5]\nmax_seconds: " +
			"30\ndata: {prompt_tokens: 256, output_tokens: 128}\n",
		[]string{"api: completions", "rate: 1", "duration: 30s", "tokens: 256", "outputTokens: 128"},
		[]string{"of 2 consecutive loads"}},
	{"conversations that are made up", InferencePerf, `
load: {type: concurrent, stages: [{num_requests: 1152, concurrency_level: 128}, {num_requests: 10, concurrency_level: 1}]}
api: {type: completion, streaming: true}
data:
  type: conversation_replay
  conversation_replay:
    seed: 37
    max_model_len: 65536
    num_conversations: 192
    shared_system_prompt_len: 256
    dynamic_system_prompt_len: {type: lognormal, min: 49152, max: 49152, mean: 49152, std_dev: 1}
    turns_per_conversation: {type: lognormal, min: 1, max: 15, mean: 4, std_dev: 2.5}
    input_tokens_per_turn: {type: lognormal, min: 256, max: 256, mean: 256, std_dev: 1}
    output_tokens_per_turn: {type: normal, min: 10, max: 1000, mean: 300, std_dev: 100}
    tool_call_latency_sec: {type: lognormal, min: 1, max: 2, mean: 1.5, std_dev: 1}
`, []string{"api: chat", "requests: 1152", "concurrency: 128", "tokens: 256", "shared: {groups: 192, characters: 197632}", `turns: "lognormal(4, 3, min=1, max=15)", thinkTime: "lognormal(1.5s, 1s, min=1s, max=2s)"`, `outputTokens: "normal(300, 100, min=10, max=1000)"`},
		[]string{"not completion", "maxModelLen 65536", "192 beginnings", "of 2 consecutive loads"}},
	{"arguments", VLLMBench,
		"executable: benchmark_serving.py\nmodel: m\nbase-url: x\ndataset-name: random\nrandom-input-len: " +
			"10000\nrandom_output_len: 1000\nrandom-range-ratio: 0.1\nmax-concurrency: 8\nnum-prompts: " +
			"32\nrequest-rate: inf\nbackend: vllm\nignore-eos: none\ngoodput: ttft:200 e2el:5000\n",
		[]string{"api: completions", "stream: true", "requests: 32", "concurrency: 8", "prompt: {tokens: 9000..11000}",
			"outputTokens: 900..1100", "slo: {ttft: 200ms, e2e: 5000ms}"}, nil},
	{"a command", VLLMBench,
		"vllm bench serve --backend openai-chat --endpoint /v1/chat/completions \\\n  " +
			"--dataset-name=prefix_repetition --num-prompts 500 --request-rate 20 --burstiness 0.5 " +
			"--ramp-up-strategy linear\n",
		[]string{"api: chat", "rate: 20", "arrivals: gamma", "burstiness: 0.5", "requests: 500",
			"tokens: 256\n    shared: {groups: 10, characters: 1024}", "outputTokens: 128"},
		[]string{"on average", "without ignore-eos", "left out: ramp-up-strategy"}},
	{"sonnet", VLLMBench, "dataset-name: sonnet\nsonnet-input-len: 8192\nsonnet-output-len: 512\nsonnet-prefix-len: " +
		"6144\nignore-eos: none\n",
		[]string{"requests: 1000", "concurrency: 1000", "tokens: 2048\n    shared: {groups: 1, characters: 24576}",
			"outputTokens: 512"}, nil},
	{"a profile", AIPerf, "aiperf profile --model m --url u --endpoint-type completions --streaming --request-rate 5 " +
		"--arrival-pattern gamma --arrival-smoothness 2 --request-count 500 --isl 1000 --isl-stddev 100 --osl 200 " +
		"--num-prefix-prompts 4 --prefix-prompt-length 64 --goodput \"time_to_first_token:100 " +
		"inter_token_latency:3.4\"",
		[]string{"api: completions", "stream: true", "rate: 5", "arrivals: gamma", "burstiness: 2", "requests: 500",
			`tokens: "normal(1000, 100, min=1)"`, "shared: {groups: 4, characters: 256}", "outputTokens: 200",
			"slo: {ttft: 100ms, tpot: 3.4ms}"}, nil},
	{"turns", AIPerf, "concurrency: 16\nconversation-num: 20\nconversation-turn-mean: " +
		"3\nconversation-turn-delay-mean: 500\nfancy: 1\n",
		[]string{"stream: false", "concurrency: 16", "requests: 60", "conversations: {turns: 3, thinkTime: 500ms}",
			"tokens: 550"}, []string{"left out: fancy"}},
	{"classes", PriorityMix, `
endpoint_url: http://x
load: {duration_seconds: 90, rate_per_second: 6, max_in_flight: 24, request_timeout_seconds: 180, fail_on_error: false}
request: {prompt: Say hello., max_tokens: 512, stream: true}
trafficClasses:
- {name: critical, weight: 0.2, priority: 100, objective: app-critical, fairnessID: tenant-critical, request: {promptTemplate: "0123456789", promptRepeat: 150, max_tokens: 64}}
- {name: batch, weight: 0.6, priority: -10, objective: app-batch, request: {prompt_template: "No {variation}"}}
`, []string{"rate: 6", "duration: 90s", "timeout: 180s", `{name: "critical", share: 25%, maxTokens: 64, objective: "app-critical", fairnessID: "tenant-critical", prompt: {characters: 1, shared: {groups: 1, characters: 1499}}}`,
		`{name: "batch", share: 75%, maxTokens: 512, objective: "app-batch", prompt: {characters: 11, shared: ` +
			`{groups: 1, characters: 3}}}`, `{name: "app-batch", priority: -10}`},
		[]string{"the pool's objectives set the priorities"}},
}

// Read returns a scenario with the same meaning, and notes for everything else.
func TestRead(t *testing.T) {
	for _, x := range configurations {
		t.Run(x.name, func(t *testing.T) {
			s, err := Read(x.format, []byte(x.text), 0)
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
			for _, w := range x.notes {
				if !strings.Contains(notes, w) {
					t.Errorf("no note: %q:\n%s", w, notes)
				}
			}
			if x.notes == nil && notes != "" {
				t.Errorf("told %s", notes)
			}
		})
	}
}

// Requests of a file are that file's, which is looked for beside the scenario.
func TestFiles(t *testing.T) {
	for _, x := range []struct{ format, text, want string }{
		{InferencePerf, "load: {type: trace_replay, trace: {file: a.csv, format: AzurePublicDataset}}\ndata: {type: " +
			"random}", `trace: {file: "a.csv", format: azure}`},
		{InferencePerf, "load: {type: constant, stages: [{rate: 1, duration: 9}]}\ndata: {type: shareGPT, path: " +
			"s.json}", `trace: {file: "s.json", format: sharegpt}`},
		{VLLMBench, "dataset-name: sharegpt\ndataset-path: s.json\nrequest-rate: 8\nnum-prompts: 3",
			`trace: {file: "s.json", format: sharegpt}`},
		{AIPerf, "input-file: m.jsonl\ncustom-dataset-type: mooncake_trace\nconcurrency: 16\nrequest-count: 2",
			`trace: {file: "m.jsonl", format: mooncake}`},
	} {
		s, err := Read(x.format, []byte(x.text), 0)
		if err != nil || !strings.Contains(string(s.Text), x.want) {
			t.Fatalf("%v %+v", err, s)
		}
		dir := t.TempDir()
		for name, text := range map[string]string{
			"a.csv":   "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.0,812,97\n",
			"s.json":  `[{"id":"a","conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Hello"}]}]`,
			"m.jsonl": `{"timestamp":0,"input_length":1,"output_length":4,"hash_ids":[0]}`,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := scenario.Parse(filepath.Join(dir, "made.yaml"), s.Text); err != nil {
			t.Errorf("%v\n%s", err, s.Text)
		}
	}
}

// Of several loads one is taken, the first or the one that is asked for, with all that is its own.
func TestLoads(t *testing.T) {
	const (
		stages = "load: {type: concurrent, stages: [{num_requests: 20, concurrency_level: 1}, {num_requests: 60, " +
			"concurrency_level: 3}]}\ndata: {type: mock}"
		benchmarks = "spec: {profile: {kind: concurrent}, data: [{prompt_tokens: 1, output_tokens: 1}], constraints: " +
			"[{kind: max_requests}]}\nbenchmarks: [{profile.streams: 1, 'constraints[0].count': 20}, " +
			"{profile.streams: 3, 'constraints[0].count': 60}]"
		rates = "profile: {kind: constant, rate: [1, 3]}\nmax_requests: 60\ndata: {prompt_tokens: 1, " +
			"output_tokens: 1}"
	)
	for _, x := range []struct {
		format, text string
		load         int
		want         []string
	}{
		{InferencePerf, stages, 0, []string{"concurrency: 1\n", "requests: 20\n", "--load 2"}},
		{InferencePerf, stages, 2, []string{"concurrency: 3\n", "requests: 60\n"}},
		{GuideLLM, benchmarks, 1, []string{"concurrency: 1\n", "requests: 20\n"}},
		{GuideLLM, benchmarks, 2, []string{"concurrency: 3\n", "requests: 60\n"}},
		{GuideLLM, rates, 2, []string{"rate: 3\n"}},
	} {
		s, err := Read(x.format, []byte(x.text), x.load)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range x.want {
			if !strings.Contains(string(s.Text), w) || strings.Contains(string(s.Text), "not taken over") {
				t.Errorf("%q is missing, or something was not taken over:\n%s", w, s.Text)
			}
		}
	}
	for _, x := range []struct {
		format, text string
		load         int
		want         string
	}{{InferencePerf, stages, 3, "load.stages: found load 3, and there are 2; expected 1 to 2"},
		{VLLMBench, "num-prompts: 3", 2, "the configuration has one load"},
		{VLLMBench, "num-prompts: 3", -1, "load -1"}} {
		if _, err := Read(x.format, []byte(x.text), x.load); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v, want %q", err, x.want)
		}
	}
}

// Mistakes name the field.
func TestMistakes(t *testing.T) {
	for _, x := range [][3]string{
		{InferencePerf, "load: {type: consant, stages: [{rate: 1, duration: 2}]}",
			`load.type: found "consant"; expected one of constant, poisson, concurrent, trace_replay; did you mean ` +
				`"constant"?`},
		{InferencePerf, "load: {type: constant}", "load.stages: missing"},
		{InferencePerf, "load: {type: constant, stages: [{rate: much, duration: 2}]}",
			`load.stages[0].rate: found "much"; expected a number`},
		{InferencePerf, "load: {type: trace_replay, stages: [{}]}", "load.trace.file: missing"},
		{InferencePerf, "load: {type: trace_session_replay, stages: [{}]}", "load.type"},
		{InferencePerf, "load: {type: poisson, stages: [{rate: 1, duration: 1}]}\ndata: {type: shareGPT}",
			"data.path: missing"},
		{GuideLLM, "spec: {profile: {kind: poisson}, data: [{}]}\nbenchmarks: [{profil.rate: 1}]",
			"there is no such field in spec"},
		{VLLMBench, "dataset-name: hf", "dataset-name: found"}, {VLLMBench, "goodput: ttft", "goodput: found \"ttft\""},
		{AIPerf, "concurrency: many", "concurrency: found"},
		{AIPerf, "input-file: x\ncustom-dataset-type: weka", "custom-dataset-type"},
		{PriorityMix, "trafficClasses: [{name: a, objective: b, priority: high}]", "priority: found \"high\""},
		{InferencePerf, "[1", "expected a configuration of inference-perf"},
		{GuideLLM, "profile: {kind: sweep}", "profile.kind"},
		{GuideLLM, "profile: {kind: poisson}\ndata: []", "profile.rate: missing"},
		{PriorityMix, "load: {rate_per_second: 1}", "trafficClasses: missing"},
	} {
		if _, err := Read(x[0], []byte(x[1]), 0); err == nil || !strings.Contains(err.Error(), x[2]) {
			t.Errorf("%s: %v, want %q", x[1], err, x[2])
		}
	}
}

// No configuration ends in a panic, and each that is refused is refused with words.
func FuzzRead(f *testing.F) {
	for _, x := range configurations {
		f.Add(uint8(slices.Index(Formats(), x.format)), x.text, 0)
	}
	f.Add(uint8(0), "[1", 2)
	f.Fuzz(func(t *testing.T, format uint8, text string, load int) {
		s, err := Read(Formats()[int(format)%len(Formats())], []byte(text), load)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("an error without words")
			}
			return
		}
		_, _ = scenario.Parse("made.yaml", s.Text) // other tests report errors
	})
}
