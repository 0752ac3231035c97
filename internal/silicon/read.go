package silicon

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"
)

const formats = "vllm bench serve --save-result, GuideLLM, inference-perf (one stage), AIPerf, " +
	"InferenceMAX/InferenceX, llm-d-benchmark's report 0.1 or 0.2, or a CSV file with windtunnel's columns"

// Defaults fill what a format does not carry. Model and Accelerator also replace names that no catalogue has: served
// names, and names of clusters.
type Defaults struct {
	Model, Accelerator, Precision string
	TensorParallel, DataParallel  int
	Version                       string // of vLLM
}

func (d *Defaults) fill(r *Row) {
	if _, err := modelshape.Named(r.Model); err != nil && d.Model != "" {
		r.Model = d.Model
	}
	if _, err := hardware.AcceleratorNamed(r.Accelerator); err != nil && d.Accelerator != "" {
		r.Accelerator = d.Accelerator
	}
	r.Precision, r.Version = cmp.Or(r.Precision, d.Precision), cmp.Or(r.Version, d.Version)
	r.TensorParallel = cmp.Or(r.TensorParallel, d.TensorParallel)
	r.DataParallel = cmp.Or(r.DataParallel, d.DataParallel)
}

// Read reads the results of one file: of any tool that formats names, recognized by its fields. An error names file,
// line and field.
func Read(file string, data []byte, d Defaults) ([]Row, error) {
	documents, err := parse(file, data)
	if err != nil {
		return nil, err
	}
	r := &reader{file: file}
	var rows []Row
	for _, v := range documents {
		results := v.items
		if results == nil {
			results = []*value{v}
		}
		for _, v := range results {
			rows = append(rows, r.results(v)...)
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	if len(rows) == 0 || len(rows) > maxRows {
		return nil, fmt.Errorf("%s: found %d results; expected 1 to %d", file, len(rows), maxRows)
	}
	for i := range rows {
		d.fill(&rows[i])
		if err := rows[i].Check(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// results returns the rows of one document.
func (r *reader) results(v *value) []Row {
	has := func(path string) bool { return v.at(path).given() }
	one := r.vllm
	switch {
	case has("ttft_ms"):
		one = r.csv
	case has("benchmarks") && (has("metadata") || has("config") || has("args")):
		var rows []Row
		for _, b := range v.at("benchmarks").items {
			rows = append(rows, r.guideLLM(v, b))
		}
		return rows
	case has("successes") && has("load_summary"):
		one = r.inferencePerf
	case has("version") && has("scenario.load") && has("metrics.latency"):
		one = r.report01
	case has("version") && has("results.request_performance"):
		one = r.report02
	case has("time_to_first_token.unit"):
		one = r.aiPerf
	case has("conc") && (has("hw") || has("hardware")):
		one = r.inferenceX
	case has("max_concurrency") || has("request_rate") || has("mean_ttft_ms"):
	default:
		r.fail(v, "other fields", "results of "+formats)
		return nil
	}
	return []Row{one(v)}
}

// row returns a row at a value's line.
func (r *reader) row(v *value) Row { return Row{File: r.file, Line: v.line} }

// load sets the concurrency or the rate of requests. A benchmark with neither limit sends all requests at once.
func (r *reader) load(x *Row, concurrency, rate *value) {
	if !infinite(concurrency) {
		x.Concurrency = r.whole(concurrency)
	}
	if !infinite(rate) {
		x.RequestRate = r.number(rate)
	}
	switch {
	case x.Concurrency > 0 && x.RequestRate > 0:
		r.fail(rate, fmt.Sprintf("%v with a concurrency of %d", x.RequestRate, x.Concurrency), "one of the two")
	case x.Concurrency > 0 || x.RequestRate > 0:
	case infinite(rate) && x.Requests > 0:
		x.Concurrency = x.Requests
	default:
		r.fail(concurrency, "neither a concurrency nor a request rate", "the load of the benchmark, without which its "+
			"times mean nothing")
	}
}

func (r *reader) csv(v *value) Row {
	x := r.row(v)
	x.Model, x.Accelerator, x.Precision = v.at("model").text, v.at("accelerator").text, v.at("precision").text
	// tensor_parallel counts GPUs; where data_parallel does not divide it, it counts those of one rank.
	gpus, ranks := r.whole(v.at("tensor_parallel")), max(1, r.whole(v.at("data_parallel")))
	if x.TensorParallel = gpus; gpus%ranks == 0 {
		x.TensorParallel = gpus / ranks
	}
	if v.at("data_parallel").given() {
		x.DataParallel = ranks
	}
	if r.whole(v.at("expert_parallel")) > 1 {
		x.ExpertParallel = gpus
	}
	x.InputTokens, x.OutputTokens = r.whole(v.at("input_tokens")), r.whole(v.at("output_tokens"))
	if low, ok := strings.CutSuffix(v.at("lengths").text, "..1"); ok {
		x.Low = r.number(&value{line: v.line, up: v, name: "lengths", text: low})
	} else if low != "" && low != "fixed" {
		r.fail(v.at("lengths"), fmt.Sprintf("%.40q", low), "fixed, or 0.8..1 for 80 to 100 %")
	}
	x.Requests = r.whole(v.at("requests"))
	r.load(&x, v.at("concurrency"), v.at("request_rate"))
	x.Version = v.at("vllm_versions").text
	x.TTFT = Time{r.need(v.at("ttft_ms"), "milliseconds"), r.number(v.at("median_ttft_ms"))}
	x.TPOT = Time{r.need(v.at("tpot_ms"), "milliseconds"), r.number(v.at("median_tpot_ms"))}
	x.KVCacheDType, x.Batched = v.at("kv_cache_dtype").text, r.whole(v.at("max_num_batched_tokens"))
	r.assume(&x)
	return x
}

// assume sets what the columns of silicon.csv do not say about the servers of that sample, but their times do
// (docs/silicon.md).
func (r *reader) assume(x *Row) {
	a, err := hardware.AcceleratorNamed(x.Accelerator)
	if err == nil && a.FP4TFLOPS > 0 && x.KVCacheDType == "" {
		x.KVCacheDType = "fp8"
	}
	if x.Version == "?" {
		x.Version = "0.11.0"
	}
	if x.Bench = x.Low > 0; !x.Bench && x.TTFT.Median == 0 {
		x.TTFT, x.TPOT = Time{Median: x.TTFT.Mean}, Time{Median: x.TPOT.Mean}
		x.Batched = cmp.Or(x.Batched, 2048)
	}
	// Where the weights fill the GPUs, the sample has the tensor parallel size of attention alone.
	for ranks := max(1, x.DataParallel); ranks <= 64; ranks *= 2 {
		y := *x
		y.DataParallel = ranks
		if _, err := NewServer(&y); err == nil {
			x.DataParallel = ranks
			return
		}
	}
}

// vllm reads what vllm bench serve writes (github.com/vllm-project/vllm, vllm/benchmarks/serve.py at 009e6d4). Its
// --metadata may have the fields that it does not write itself.
func (r *reader) vllm(v *value) Row {
	x := r.row(v)
	x.Model, x.Accelerator, x.Precision = v.at("model_id").text, v.at("accelerator").text, v.at("precision").text
	x.TensorParallel, x.DataParallel = r.whole(v.at("tensor_parallel_size")), r.whole(v.at("data_parallel_size"))
	x.Version, x.Bench = v.at("vllm_version").text, true
	x.Requests = r.whole(v.at("num_prompts"))
	r.load(&x, v.at("max_concurrency"), v.at("request_rate"))
	completed := r.need(v.at("completed"), "the number of completed requests")
	if completed == 0 {
		r.fail(v.at("completed"), "no completed request", "some")
		return x
	}
	x.InputTokens = rounded(r.need(v.at("total_input_tokens"), "tokens") / completed)
	x.OutputTokens = rounded(r.need(v.at("total_output_tokens"), "tokens") / completed)
	x.TTFT = Time{r.need(v.at("mean_ttft_ms"), "milliseconds"), r.number(v.at("median_ttft_ms"))}
	x.TPOT = Time{r.need(v.at("mean_tpot_ms"), "milliseconds"), r.number(v.at("median_tpot_ms"))}
	return x
}

// guideLLM reads one benchmark of GuideLLM's report, schema 1 or 2 (github.com/vllm-project/guidellm at ee7a774). What
// it calls inter-token latency is the TPOT of a request; its time per output token includes the first.
func (r *reader) guideLLM(report, v *value) Row {
	x := r.row(v)
	x.Model = cmp.Or(v.at("config.backend.model").text, report.first("config.spec.backend.model", "args.model").text)
	x.Requests = r.whole(v.at("metrics.request_totals.total"))
	switch s := v.first("config.strategy", "args.strategy"); s.at("type_").text {
	case "synchronous":
		x.Concurrency = 1
	case "concurrent":
		r.load(&x, s.first("streams", "max_concurrency"), &value{})
	case "throughput":
		r.load(&x, s.at("max_concurrency"), &value{})
	case "constant", "poisson", "async":
		r.load(&x, &value{}, s.at("rate"))
	default:
		r.fail(s.at("type_"), fmt.Sprintf("%.40q", s.at("type_").text),
			"synchronous, concurrent, throughput, constant or poisson")
	}
	mean := func(name, which string) float64 {
		return r.need(v.at("metrics."+name+".successful."+which), "a number")
	}
	x.InputTokens = rounded(mean("prompt_token_count", "mean"))
	x.OutputTokens = rounded(mean("output_token_count", "mean"))
	x.TTFT = Time{mean("time_to_first_token_ms", "mean"), mean("time_to_first_token_ms", "median")}
	x.TPOT = Time{mean("inter_token_latency_ms", "mean"), mean("inter_token_latency_ms", "median")}
	return x
}

// inferencePerf reads a stage's lifecycle metrics (github.com/kubernetes-sigs/inference-perf at 7de5ef2). Times are in
// seconds. The summary of several stages has no load of its own.
func (r *reader) inferencePerf(v *value) Row {
	x := r.row(v)
	load := v.at("load_summary")
	x.Requests = r.whole(load.at("count"))
	if load.at("concurrency").given() {
		r.load(&x, load.at("concurrency"), &value{})
	} else if !load.at("requested_rate").given() {
		r.fail(load.at("requested_rate"), "neither it nor a concurrency, as in a summary of stages",
			"stage_N_lifecycle_metrics.json of one stage")
	} else {
		r.load(&x, &value{}, load.at("requested_rate"))
	}
	ok := v.at("successes")
	x.InputTokens = rounded(r.need(ok.first("prompt_len.mean", "prompt_tokens.mean"), "tokens"))
	x.OutputTokens = rounded(r.need(ok.first("output_len.mean", "output_tokens.mean"), "tokens"))
	seconds := func(name string) Time {
		t := ok.at("latency." + name)
		return Time{1000 * r.need(t.at("mean"), "seconds of a streaming benchmark"), 1000 * r.number(t.at("median"))}
	}
	x.TTFT, x.TPOT = seconds("time_to_first_token"), seconds("time_per_output_token")
	x.countOnce(1000 * r.number(ok.at("latency.request_latency.mean")))
	return x
}

// countOnce replaces a TPOT that the mean latency of requests, in milliseconds, contradicts. Older versions of
// inference-perf count each token twice and report half of the TPOT.
func (r *Row) countOnce(latency float64) {
	if tpot := (latency - r.TTFT.Mean) / float64(r.OutputTokens-1); r.OutputTokens > 1 && r.TPOT.Mean < 0.8*tpot {
		r.TPOT = Time{Mean: math.Round(1e6*tpot) / 1e6}
	}
}

// aiPerf reads profile_export_aiperf.json (github.com/ai-dynamo/aiperf at db4f639). Its inter-token latency is the TPOT
// of a request.
func (r *reader) aiPerf(v *value) Row {
	x := r.row(v)
	x.Model = v.at("input_config.endpoint.model_names.0").text
	load := v.at("input_config.loadgen")
	x.Requests = rounded(r.number(v.at("request_count.avg")))
	r.load(&x, load.at("concurrency"), load.at("request_rate"))
	x.InputTokens = rounded(r.need(v.at("input_sequence_length.avg"), "tokens"))
	x.OutputTokens = rounded(r.need(v.at("output_sequence_length.avg"), "tokens"))
	x.TTFT = r.statistics(v.at("time_to_first_token"), "unit", "avg")
	x.TPOT = r.statistics(v.at("inter_token_latency"), "unit", "avg")
	return x
}

// statistics reads a distribution with its unit.
func (r *reader) statistics(v *value, unit, mean string) Time {
	scale, known := map[string]float64{"s": 1e3, "ms": 1, "us": 1e-3, "ns": 1e-6}[strings.TrimSuffix(v.at(unit).text,
		"/token")]
	if !known {
		r.fail(v.at(unit), fmt.Sprintf("%.40q", v.at(unit).text), "ms or s")
	}
	return Time{scale * r.need(v.at(mean), "the mean"), scale * r.number(v.at("p50"))}
}

// inferenceX reads one row: as InferenceMAX and InferenceX aggregate their runs, or as its web site serves them
// (github.com/SemiAnalysisAI/InferenceX, utils/process_result.py at 77f3e68). Times are in seconds, and lengths are
// uniform from 80 to 100 %.
func (r *reader) inferenceX(v *value) Row {
	x := r.row(v)
	x.Model, x.Precision, x.Low, x.Bench = v.at("model").text, strings.ToLower(v.at("precision").text), 0.8, true
	x.Accelerator = v.first("hw", "hardware").text
	if _, err := hardware.AcceleratorNamed(x.Accelerator); err != nil {
		x.Accelerator, _, _ = strings.Cut(x.Accelerator, "-") // the runner: h200-nb
	}
	for _, f := range []struct{ name, expected string }{{"disagg", "false"}, {"is_multinode", "false"},
		{"spec_decoding", "none"}, {"spec_method", "none"}, {"mtp", "off"}, {"pp", "1"}, {"dcp_size", "1"},
		{"pcp_size", "1"}} {
		if got := v.at(f.name); got.given() && !strings.EqualFold(got.text, f.expected) {
			r.fail(got, fmt.Sprintf("%.40q", got.text), f.expected+": windtunnel compares single servers of "+
				"tensor, data and expert parallelism, without speculative decoding")
		}
	}
	if f := v.at("framework"); f.given() && !strings.EqualFold(f.text, "vllm") {
		r.fail(f, fmt.Sprintf("%.40q", f.text), "vllm")
	}
	if _, tag, ok := strings.Cut(v.at("image").text, ":"); ok {
		x.Version = strings.TrimPrefix(tag, "v")
	}
	x.TensorParallel, x.DataParallel = r.whole(v.first("tp", "decode_tp")), 1
	if strings.EqualFold(v.first("dp_attention", "decode_dp_attention").text, "true") {
		x.TensorParallel, x.DataParallel = 1, x.TensorParallel
	}
	x.ExpertParallel = r.whole(v.first("ep", "decode_ep"))
	x.InputTokens, x.OutputTokens = r.whole(v.at("isl")), r.whole(v.at("osl"))
	r.load(&x, v.at("conc"), &value{})
	seconds := func(name string) Time {
		return Time{1000 * r.number(v.first("mean_"+name, "metrics.mean_"+name)),
			1000 * r.number(v.first("median_"+name, "metrics.median_"+name))}
	}
	x.TTFT, x.TPOT = seconds("ttft"), seconds("tpot")
	return x
}
