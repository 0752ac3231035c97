package silicon

import (
	"fmt"
	"strconv"
	"strings"
)

// engine holds the fields of a model server that llm-d-benchmark's reports 0.1 and 0.2 have under different names.
type engine struct{ role, model, accelerator, parallelism, version *value }

// report01 reads llm-d-benchmark's report 0.1 (github.com/llm-d/llm-d-benchmark, schema_v0_1.py at 8bc9f1d). It has the
// load as the arguments of the harness.
func (r *reader) report01(v *value) Row {
	s := v.at("scenario")
	var all []engine
	for i := range max(1, len(s.at("host.type").items)) {
		n := strconv.Itoa(i)
		a := s.at("host.accelerator." + n)
		all = append(all, engine{s.at("host.type." + n), s.at("model.name"), a.at("model"), a.at("parallelism"),
			s.at("platform.engine." + n + ".version")})
	}
	args := s.at("load.args")
	stage := strconv.Itoa(r.whole(s.at("load.metadata.stage")))
	profile := args.first("spec.profile", "profile")
	concurrency := args.first("max_concurrency", "loadgen.concurrency", "load.stages."+stage+".concurrency_level")
	rate := args.first("request_rate", "loadgen.request_rate", "load.stages."+stage+".rate")
	switch kind := profile.first("kind").text + profile.text; {
	case kind == "concurrent":
		concurrency = args.first("spec.profile.streams."+stage, "spec.profile.rate."+stage, "rate."+stage)
	case kind == "synchronous":
		concurrency = &value{line: profile.line, text: "1"}
	case kind != "":
		rate = args.first("spec.profile.rate."+stage, "rate."+stage)
	}
	return r.report(v, all, s.at("load.name").text, concurrency, rate, v.at("metrics"))
}

// report02 reads llm-d-benchmark's report 0.2 and 0.2.1 (schema_v0_2.py at 8bc9f1d).
func (r *reader) report02(v *value) Row {
	var all []engine
	for _, c := range v.at("scenario.stack").items {
		s := c.at("standardized")
		if s.at("kind").text != "inference_engine" {
			continue
		}
		if n := r.number(s.at("replicas")); n > 1 {
			r.fail(s.at("replicas"), fmt.Sprint(n), "1: windtunnel compares single servers")
		}
		a := s.at("accelerator")
		all = append(all, engine{s.at("role"), s.at("model.name"), a.at("model"), a.at("parallelism"),
			s.at("tool_version")})
	}
	load := v.at("scenario.load.standardized")
	return r.report(v, all, load.at("tool").text, load.at("concurrency"), load.at("rate_qps"),
		v.at("results.request_performance.aggregate"))
}

func (r *reader) report(v *value, all []engine, tool string, concurrency, rate, results *value) Row {
	x := r.row(v)
	if len(all) > 1 || len(all) == 1 && all[0].role.given() && all[0].role.text != "replica" {
		r.fail(all[0].role, fmt.Sprintf("%d servers, the first of role %.40q", len(all), all[0].role.text),
			"one of role replica: windtunnel compares single servers")
	}
	if len(all) == 1 {
		e := all[0]
		x.Model, x.Accelerator = e.model.text, e.accelerator.text
		p := e.parallelism
		if pp := r.number(p.at("pp")); pp > 1 {
			r.fail(p.at("pp"), fmt.Sprint(pp), "1")
		}
		x.TensorParallel, x.DataParallel = r.whole(p.at("tp")), r.whole(p.at("dp"))
		x.ExpertParallel = r.whole(p.at("ep"))
		x.Version = e.version.text
		if i := strings.LastIndexByte(x.Version, ':'); i >= 0 {
			x.Version = strings.TrimPrefix(x.Version[i+1:], "v")
		}
	}
	x.Requests = r.whole(results.at("requests.total"))
	if tool == "inference-perf" && concurrency.given() && !infinite(concurrency) {
		rate = &value{} // of a closed loop, it is the number of requests
	}
	r.load(&x, concurrency, rate)
	x.InputTokens = rounded(r.need(results.at("requests.input_length.mean"), "tokens"))
	x.OutputTokens = rounded(r.need(results.at("requests.output_length.mean"), "tokens"))
	latency := results.at("latency")
	tpot := latency.first("time_per_output_token", "inter_token_latency")
	if tool == "guidellm" { // its time per output token includes the first one
		tpot = latency.at("inter_token_latency")
	}
	x.TTFT = r.statistics(latency.at("time_to_first_token"), "units", "mean")
	x.TPOT = r.statistics(tpot, "units", "mean")
	if whole := latency.at("request_latency"); tool == "inference-perf" && whole.given() {
		x.countOnce(r.statistics(whole, "units", "mean").Mean)
	}
	return x
}
