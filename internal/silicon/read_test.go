package silicon

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var defaults = Defaults{Model: "Qwen/Qwen3-32B", Accelerator: "h100", TensorParallel: 4, Version: "0.18.0"}

// The fixtures have the fields that each tool writes, one or two results each.
func TestFormats(t *testing.T) {
	llama := Row{Line: 1, Model: "meta-llama/Llama-3.1-8B", Accelerator: "H100", Precision: "bf16", TensorParallel: 2,
		DataParallel: 1, ExpertParallel: 1, InputTokens: 1024, OutputTokens: 128, Low: 1, Concurrency: 8, Requests: 80,
		Version: "0.18.0", TTFT: Time{61.5, 58.25}, TPOT: Time{8.5, 8.25}}
	with := func(r Row, change func(*Row)) Row { change(&r); return r }
	burst := with(llama, func(r *Row) {
		r.Line, r.TensorParallel, r.Concurrency, r.Requests, r.TTFT, r.TPOT = 7, 4, 64, 64, Time{700, 0}, Time{14, 0}
	})
	qwen := Row{Line: 5, Model: "Qwen/Qwen3-32B", Accelerator: "H100", Precision: "fp8", TensorParallel: 4,
		DataParallel: 1, ExpertParallel: 1, InputTokens: 2000, OutputTokens: 256, Low: 1, Concurrency: 16,
		Requests: 160, Version: "0.18.0", TTFT: Time{310.5, 290}, TPOT: Time{18.25, 18}}
	stage := with(qwen, func(r *Row) {
		r.Line, r.Precision, r.InputTokens, r.OutputTokens, r.Concurrency, r.Requests = 1, "bf16", 1500, 400, 32, 320
		r.TTFT, r.TPOT = Time{420, 360}, Time{11.5, 11}
	})
	deepseek := Row{Line: 6, Model: "deepseek-ai/DeepSeek-V3", Accelerator: "B200", Precision: "fp8", TensorParallel: 1,
		DataParallel: 8, ExpertParallel: 8, InputTokens: 8192, OutputTokens: 1024, Low: 0.8, Concurrency: 128,
		Version: "0.18.0", TTFT: Time{0, 950}, TPOT: Time{0, 31}}
	want := map[string][]Row{
		"vllm.json": {llama, burst, with(burst, func(r *Row) {
			r.Line, r.Concurrency, r.RequestRate, r.TTFT, r.TPOT = 9, 0, 2.5, Time{50, 0}, Time{7.75, 0}
		})},
		"guidellm.json": {qwen, with(qwen, func(r *Row) {
			r.Line, r.Concurrency, r.RequestRate, r.Requests = 18, 0, 1.5, 90
			r.TTFT, r.TPOT = Time{200, 190}, Time{15, 14.5}
		})},
		"guidellm.yaml": {with(qwen, func(r *Row) {
			r.Line, r.Precision, r.InputTokens, r.OutputTokens, r.Concurrency, r.Requests = 4, "bf16", 512, 128, 1, 10
			r.TTFT, r.TPOT = Time{40, 39}, Time{7, 7}
		})},
		"stage_0_lifecycle_metrics.json": {stage},
		"stage_1_lifecycle_metrics.json": {with(stage, func(r *Row) {
			r.Concurrency, r.RequestRate, r.Requests, r.TTFT, r.TPOT = 0, 2, 120, Time{250, 0}, Time{18, 0}
		})},
		"aiperf.json": {with(llama, func(r *Row) {
			r.TensorParallel, r.InputTokens, r.OutputTokens, r.Concurrency, r.Requests = 4, 1000, 150, 4, 40
			r.TTFT, r.TPOT = Time{75.5, 70}, Time{9.25, 9.125}
		})},
		"inferencex.json": {{Line: 2, Model: "openai/gpt-oss-120b", Accelerator: "H200", Precision: "fp4",
			TensorParallel: 4, DataParallel: 1, ExpertParallel: 1, InputTokens: 1024, OutputTokens: 8192, Low: 0.8,
			Concurrency: 64, Version: "0.11.2", TTFT: Time{125, 95}, TPOT: Time{9.5, 9.4}}, deepseek},
		"report-0.1.yaml": {{Line: 1, Model: "meta-llama/Llama-3.1-70B", Accelerator: "H100", Precision: "bf16",
			TensorParallel: 4, DataParallel: 1, ExpertParallel: 1, InputTokens: 3000, OutputTokens: 300, Low: 1,
			Concurrency: 24, Requests: 240, Version: "0.4.0", TTFT: Time{520, 480}, TPOT: Time{25.5, 25}}},
		"report-0.2.yaml": {with(qwen, func(r *Row) {
			r.Line, r.Accelerator, r.Precision, r.TensorParallel, r.Version = 1, "H200", "bf16", 2, "0.3.1"
			r.InputTokens, r.OutputTokens, r.Concurrency, r.RequestRate, r.Requests = 2262, 900, 0, 3.5, 210
			r.TTFT, r.TPOT = Time{350, 300}, Time{20, 0}
		})},
		"results.csv": {with(deepseek, func(r *Row) {
			r.Line, r.Accelerator, r.InputTokens, r.OutputTokens = 3, "H200", 1000, 500
			r.Concurrency, r.RequestRate, r.TTFT, r.TPOT = 0, 3.5, Time{800.5, 0}, Time{32, 0}
			r.Version = "0.11.0"
		})},
	}
	files, err := filepath.Glob("testdata/results/*")
	if err != nil || len(files) != len(want) {
		t.Fatal(len(files), "fixtures,", len(want), "expected;", err)
	}
	for name, rows := range want {
		data, err := os.ReadFile(filepath.Join("testdata/results", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(name, data, defaults)
		for i := range rows {
			rows[i].File = name
			rows[i].Bench = name == "vllm.json" || name == "results.csv" || strings.HasPrefix(name, "inferencex")
		}
		if err != nil || !reflect.DeepEqual(got, rows) {
			t.Errorf("%s: found\n%+v (%v); expected\n%+v", name, got, err, rows)
		}
	}
}

// The built-in rows have the parallelism that they were measured with: the source counts GPUs.
func TestBuiltin(t *testing.T) {
	rows, err := Builtin()
	if err != nil || len(rows) != 467 {
		t.Fatal(len(rows), err)
	}
	text, err := os.ReadFile("data/silicon.csv")
	if err != nil {
		t.Fatal(err)
	}
	if same, err := Read("silicon.csv", text, Defaults{}); err != nil || !reflect.DeepEqual(rows, same) {
		t.Errorf("silicon.csv.gz is not silicon.csv (%v); run make silicon", err)
	}
	ranks := map[string]int{}
	for _, r := range rows {
		if r.DataParallel > 1 {
			ranks[r.Model+" "+r.Accelerator]++
		}
	}
	if want := map[string]int{"MiniMaxAI/MiniMax-M2.5 B200": 14, "MiniMaxAI/MiniMax-M2.5 B300": 9,
		"moonshotai/Kimi-K2.5 B200": 8, "Qwen/Qwen3-235B-A22B H200": 8}; !maps.Equal(ranks, want) {
		t.Errorf("rows of several ranks: %v; expected %v", ranks, want)
	}
	if r := rows[0]; r.File != "silicon.csv" || r.Line != 2 || r.Low != 0.8 || r.GPUs() != 1 || r.TTFT.Mean != 84.448 {
		t.Errorf("the first row is %+v", r)
	}
}

// Each error names file, line and field, and what was expected.
func TestWrongResults(t *testing.T) {
	csv := func(change ...string) string {
		line := strings.NewReplacer(change...).Replace(
			"model=meta-llama/Llama-3.1-8B,accelerator=h100,precision=fp8,tensor_parallel=1,data_parallel=1," +
				"input_tokens=1000,output_tokens=100,lengths=fixed,concurrency=8,ttft_ms=60,tpot_ms=7")
		var names, values []string
		for f := range strings.SplitSeq(line, ",") {
			name, v, _ := strings.Cut(f, "=")
			names, values = append(names, name), append(values, v)
		}
		return strings.Join(names, ",") + "\n" + strings.Join(values, ",") + "\n"
	}
	if _, err := Read("r", []byte(csv()), Defaults{}); err != nil {
		t.Fatal(err)
	}
	vllm := func(change ...string) string {
		return strings.NewReplacer(change...).Replace("{\n" + `"model_id": "meta-llama/Llama-3.1-8B",
"num_prompts": 10, "request_rate": "inf", "max_concurrency": 8, "completed": 10, "total_input_tokens": 1000,
"total_output_tokens": 100, "mean_ttft_ms": 60, "mean_tpot_ms": 7}`)
	}
	x := func(change ...string) string {
		return strings.NewReplacer(change...).Replace(`{"hw": "h200", "conc": 8, "model": "openai/gpt-oss-120b",
"isl": 1000, "osl": 100, "tp": 1, "mean_ttft": 0.1, "mean_tpot": 0.01, "disagg": false}`)
	}
	report := func(change ...string) string {
		data, err := os.ReadFile("testdata/results/report-0.2.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return strings.NewReplacer(change...).Replace(string(data))
	}
	d := Defaults{Accelerator: "h100", TensorParallel: 1}
	for text, want := range map[string]string{
		csv("concurrency=8", "concurrency="):                  "r:2: concurrency: found neither",
		csv("concurrency=8", "concurrency=0"):                 "r:2: concurrency: found neither",
		csv("concurrency=8", "concurrency=8,request_rate=2"):  "r:2: request_rate: found 2 with a concurrency of 8",
		csv("concurrency=8", "concurrency=8.5"):               `r:2: concurrency: found "8.5"; expected a whole number`,
		csv("concurrency=8", "concurrency=9999999"):           "r:2: concurrency: found 9.999999e+06; expected 0 to",
		csv("meta-llama/Llama-3.1-8B", "my-model"):            `r:2: model: found "my-model"; expected a model of the`,
		csv("h100", "tpu"):                                    `r:2: accelerator: found "tpu"; expected one of A10`,
		csv("=fp8", "=fp9"):                                   `r:2: precision: found "fp9"; expected one of bf16`,
		csv("tpot_ms=7", "tpot_ms=0.007"):                     "r:2: TPOT: found 0.007 ms; expected milliseconds",
		csv("ttft_ms=60", "ttft_ms=0.06"):                     "r:2: TTFT: found 0.06 ms; expected milliseconds",
		csv("tpot_ms=7", "tpot_ms=7000"):                      "r:2: TPOT: found 7000 ms after a TTFT of 60 ms",
		csv("tpot_ms=7", "tpot_ms=-7"):                        `r:2: tpot_ms: found "-7"; expected a number`,
		csv("tpot_ms=7", "tpot_ms=NaN"):                       `r:2: tpot_ms: found "NaN"; expected a number`,
		csv("tpot_ms=7", "tpot_ms=7e9"):                       "r:2: TPOT in ms: found 7e+09; expected",
		csv("tpot_ms=7", "tpot_ms="):                          "r:2: tpot_ms: found nothing; expected milliseconds",
		csv("lengths=fixed", "lengths=80"):                    `r:2: lengths: found "80"; expected fixed`,
		csv("lengths=fixed", "lengths=8..1"):                  "r:2: shortest length as a share of the longest: found",
		csv("output_tokens=100", "output_tokens=1"):           "r:2: output tokens: found 1; expected 2 to",
		csv("tensor_parallel=1,", "tensor=1,"):                `r:1: column 4: found "tensor"; expected one of model`,
		csv() + "short\n":                                     "r:3: wrong number of fields; expected the columns",
		vllm():                                                "",
		vllm("8B", "9B"):                                      `r:1: model: found "meta-llama/Llama-3.1-9B"`,
		vllm(`"max_concurrency": 8`, `"max_concurrency": []`): "r:3: max_concurrency: found a list",
		vllm(`"request_rate": "inf"`, `"request_rate": 4`):    "r:3: request_rate: found 4 with a concurrency of 8",
		vllm(`"completed": 10`, `"completed": 0`):             "r:3: completed: found no completed request",
		vllm(`60`, `NaN`):                                     "r:4: invalid character",
		vllm(`7}`, `7`):                                       "r:4: unexpected EOF",
		vllm(`"mean_tpot_ms": 7`, `"x": 7`):                   "r:1: mean_tpot_ms: found nothing; expected milli",
		x():                                                   "",
		x(`false`, `true`):                                    `r:2: disagg: found "true"; expected false`,
		x(`false`, `false, "framework": "sglang"`):            `r:2: framework: found "sglang"; expected vllm`,
		x(`false`, `false, "spec_decoding": "mtp"`):           `r:2: spec_decoding: found "mtp"; expected none`,
		report():                                             "",
		report("replicas: 1", "replicas: 3"):                 "r:11: scenario.stack[1].standardized.replicas: found 3",
		report("role: replica", "role: decode"):              "found 1 servers, the first of role \"decode\"",
		report("units: s,", "units: h,"):                     `time_to_first_token.units: found "h"; expected ms or s`,
		report("concurrency: .inf", "", "rate_qps: 3.5", ""): "concurrency: found neither",
		`{"load_summary": {"count": 9}, "successes": {}}`:    "r:1: load_summary.requested_rate: found neither",
		`{"a": 1}`:               "r:1: found other fields; expected results of vllm bench",
		"":                       "r: found nothing",
		"a: [":                   "r: yaml:",
		"[]":                     "r: found 0 results",
		strings.Repeat("[", 100): "levels; expected results without the details",
		`{"a": [` + strings.Repeat("[1],", 999) + `0]}`: "r:1: found other fields",
		`{"a": [` + strings.Repeat("[1],", 999) + `]}`:  "r:1: invalid character",
		"a: &a [*a, *a, *a]":                            "levels; expected results without the details",
		strings.Repeat("{}", 1+maxRows):                 "more than 10000 results",
		"a: " + strings.Repeat("x", 5<<20):              "at most 4194304 are read",
	} {
		by := d
		if strings.HasPrefix(text, "model,") {
			by = Defaults{}
		}
		_, err := Read("r", []byte(text), by)
		if got := errorText(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%.300s:\nfound %s; expected %s", text, got, want)
		}
	}
	_, err := Read("r", []byte(vllm()), Defaults{})
	if want := "--accelerator"; !strings.Contains(errorText(err), want) {
		t.Error(err, "does not name", want)
	}
	_, err = Read("r", []byte(vllm()), Defaults{Accelerator: "h100"})
	if want := "r:1: tensor parallel size (--tensor-parallel-size): found 0"; !strings.Contains(errorText(err), want) {
		t.Error(err, "does not name", want)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Any file is read or refused, and what is read is possible.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/results/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := Read("r", data, defaults)
		if err != nil {
			if len(rows) > 0 || !strings.HasPrefix(err.Error(), "r:") {
				t.Fatal(rows, err)
			}
			return
		}
		for _, r := range rows {
			again := r
			if again.Check() != nil || again != r || r.TokensPerGPU(r.TTFT.Value(), r.TPOT.Value()) <= 0 ||
				!slices.Contains(Precisions(), r.Precision) {
				t.Fatalf("%+v", r)
			}
		}
	})
}
