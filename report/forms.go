package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/report/gaps"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Form names the report format of another tool.
type Form string

// The formats: inference-perf's summary_lifecycle_metrics.json, and llm-d-benchmark's report version 0.2.
const (
	InferencePerf   Form = "inference-perf"
	LLMDBenchmark   Form = "llm-d-benchmark"
	benchmarkReport      = "0.2"
)

// percentiles are those that both formats have.
var percentiles = []float64{0.1, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9}

// spread is the distribution of a set of values.
type spread struct {
	mean, least, most float64
	at                []float64 // of percentiles
}

// spreadOf returns the distribution of some values as both tools compute it, with percentiles interpolated between
// neighbours. It returns nil without values.
func spreadOf(values []float64) *spread {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	x := &spread{least: values[0], most: values[len(values)-1]}
	for _, v := range values {
		x.mean += v
	}
	x.mean /= float64(len(values))
	for _, p := range percentiles {
		place := float64(p/100) * float64(len(values)-1)
		i := int(place)
		v := values[i]
		if i+1 < len(values) {
			v += float64((values[i+1] - v) * (place - float64(i)))
		}
		x.at = append(x.at, v)
	}
	return x
}

// spreadOfGaps returns the distribution of all gaps between tokens, in seconds.
func spreadOfGaps(c *gaps.Counts) *spread {
	if c.Total <= 0 {
		return nil
	}
	x := &spread{least: c.Quantile(0), most: c.Quantile(1), mean: c.Mean()}
	for _, p := range percentiles {
		x.at = append(x.at, c.Quantile(p/100))
	}
	return x
}

// named returns the distribution by a tool's names, which are p and the percentile unless there is another name.
func (x *spread) named(others map[float64]string) map[string]any {
	if x == nil {
		return nil
	}
	out := map[string]any{"mean": Digits(x.mean), "min": Digits(x.least), "max": Digits(x.most)}
	for i, p := range percentiles {
		out[cmp.Or(others[p], "p"+strconv.FormatFloat(p, 'g', -1, 64))] = Digits(x.at[i])
	}
	return out
}

// perf returns the distribution by inference-perf's names.
func (x *spread) perf() map[string]any { return x.named(map[float64]string{50: "median"}) }

// bench returns the distribution by llm-d-benchmark's names.
func (x *spread) bench(units string) map[string]any {
	out := x.named(map[float64]string{0.1: "p0p1", 99.9: "p99p9"})
	out["units"] = units
	return out
}

// metrics are the values that both formats report, of all requests that were kept.
type metrics struct {
	sum                                     Summary
	list                                    []Ended
	each                                    float64
	slo                                     record.SLO
	first, end, sent                        machine.Time
	e2e, ntpot, tpot, ttft, itl             *spread
	prompt, output, failed                  *spread
	completed, good, input, cached, answers float64
	goodTokens                              float64
	judged                                  bool // some request has an SLO
	whyNot                                  map[record.Outcome]counts[string]
}

func metricsOf(sum Summary, list []Ended, each int, between *gaps.Gaps,
	whyNot map[record.Outcome]counts[string]) *metrics {
	f := &metrics{sum: sum, whyNot: whyNot, list: list, each: float64(each), slo: sum.SLO.SLO()}
	var e2e, ntpot, tpot, ttft, prompt, output, failed []float64
	for i := range list {
		e := &list[i]
		if i == 0 || e.Sent < f.first {
			f.first = e.Sent
		}
		f.sent, f.end = max(f.sent, e.Sent), max(f.end, e.ends())
		took := e.E2E.Seconds()
		if !e.Completed {
			failed = append(failed, took)
			continue
		}
		f.completed++
		f.input, f.cached, f.answers = f.input+float64(e.Prompt), f.cached+float64(e.Cached),
			f.answers+float64(e.Tokens)
		f.judged = f.judged || f.slo.Given() || e.Judged
		if e.Judged && e.Good || !e.Judged && e.good(f.slo) {
			f.good++
			f.goodTokens += float64(e.Prompt) + float64(e.Tokens)
		}
		e2e, prompt, output = append(e2e, took), append(prompt, float64(e.Prompt)), append(output, float64(e.Tokens))
		if e.Tokens > 0 {
			ntpot = append(ntpot, took/float64(e.Tokens))
		}
		if e.TTFT > 0 {
			ttft = append(ttft, e.TTFT.Seconds())
			if v, ok := e.TPOT(); ok {
				tpot = append(tpot, v)
			}
		}
	}
	f.e2e, f.ntpot, f.tpot, f.ttft = spreadOf(e2e), spreadOf(ntpot), spreadOf(tpot), spreadOf(ttft)
	f.prompt, f.output, f.failed = spreadOf(prompt), spreadOf(output), spreadOf(failed)
	f.itl = spreadOfGaps(between.Between(0, machine.Never/4))
	return f
}

// seconds returns the time from the run's first request to its last answer.
func (f *metrics) seconds() float64 { return (f.end - f.first).Seconds() }

// rate returns a count per second of the run.
func (f *metrics) rate(n float64) float64 {
	if s := f.seconds(); s > 0 {
		return Digits(n * f.each / s)
	}
	return 0
}

// inferencePerf returns the run in the form of inference-perf's summary_lifecycle_metrics.json.
func (f *metrics) inferencePerf() any {
	count := func(n float64) int { return int(n * f.each) }
	tokens := func(total, cached float64, x *spread, prompt bool) map[string]any {
		out := x.perf()
		if out == nil {
			out = map[string]any{}
		}
		if out["total"] = total * f.each; prompt {
			out["cached"], out["uncached"] = cached*f.each, (total-cached)*f.each
		}
		return out
	}
	successes := map[string]any{
		"count": count(f.completed),
		"latency": map[string]any{"request_latency": f.e2e.perf(), "normalized_time_per_output_token": f.ntpot.perf(),
			"time_per_output_token": f.tpot.perf(),
			"time_to_first_token":   f.ttft.perf(), "inter_token_latency": f.itl.perf()},
		"throughput": map[string]float64{"input_tokens_per_sec": f.rate(f.input),
			"output_tokens_per_sec": f.rate(f.answers),
			"total_tokens_per_sec":  f.rate(f.input + f.answers), "requests_per_sec": f.rate(f.completed)},
		"prompt_len": f.prompt.perf(), "output_len": f.output.perf(),
		"prompt_tokens": tokens(f.input, f.cached, f.prompt, true),
		"output_tokens": tokens(f.answers, 0, f.output, false),
	}
	if f.judged && f.completed > 0 {
		successes["goodput_metrics"] = map[string]any{"good_requests": count(f.good),
			"total_requests":     count(f.completed),
			"goodput_percentage": Digits(100 * f.good / f.completed), "request_goodput": f.rate(f.good),
			"token_goodput": f.rate(f.goodTokens)}
	}
	load := map[string]any{"count": count(float64(len(f.list)))}
	if d := (f.sent - f.first).Seconds(); d > 0 {
		load["send_duration"], load["achieved_rate"] = Digits(d), Digits(float64(len(f.list))*f.each/d)
	}
	labels := map[string]any{}
	for o, n := range f.sum.Outcomes {
		if o != record.Completed {
			messages := []any{}
			for _, reason := range slices.Sorted(maps.Keys(f.whyNot[o])) {
				messages = append(messages, map[string]any{"message": terminal.Printable(reason)})
			}
			labels[terminal.Printable(string(o))] = map[string]any{"count": n, "messages": messages}
		}
	}
	return map[string]any{"benchmark_time_seconds": Digits(f.seconds()), "load_summary": load, "successes": successes,
		"failures": map[string]any{"count": count(float64(len(f.list)) - f.completed),
			"request_latency": f.failed.perf(), "by_label": labels}}
}

// benchmarkReport returns the run as a report of llm-d-benchmark. The format has no place for intervals and goodput, so
// they are under profiling, whose content is free.
func (f *metrics) benchmarkReport() (any, error) {
	id := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d\x00%v", f.sum.Scenario, f.sum.Seed, f.sum.Requests,
		f.sum.Duration))
	requests := map[string]any{"total": f.sum.Requests, "failures": f.sum.Failed() - f.sum.Unfinished,
		"incomplete": f.sum.Unfinished}
	latency := map[string]any{}
	put := func(in map[string]any, key string, x *spread, units string) {
		if x != nil {
			in[key] = x.bench(units)
		}
	}
	put(requests, "input_length", f.prompt, "count")
	put(requests, "output_length", f.output, "count")
	put(latency, "time_to_first_token", f.ttft, "s")
	put(latency, "normalized_time_per_output_token", f.ntpot, "s/token")
	put(latency, "time_per_output_token", f.tpot, "s/token")
	put(latency, "inter_token_latency", f.itl, "s/token")
	put(latency, "request_latency", f.e2e, "s")
	mean := func(v float64, units string) map[string]any { return map[string]any{"units": units, "mean": v} }
	throughput := map[string]any{"input_token_rate": mean(f.rate(f.input), "tokens/s"),
		"output_token_rate": mean(f.rate(f.answers), "tokens/s"),
		"total_token_rate":  mean(f.rate(f.input+f.answers), "tokens/s"),
		"request_rate":      mean(f.rate(f.completed), "queries/s")}
	profiling := map[string]any{}
	for _, m := range f.sum.Measures {
		v := map[string]any{"unit": string(m.Unit), "value": m.Value}
		if m.Low != nil {
			v["low"], v["high"] = *m.Low, *m.High
		} else {
			v["why"] = m.Why
		}
		profiling[m.Measure] = v
	}
	rest, err := f.rest()
	if err != nil {
		return nil, err
	}
	results := map[string]any{
		"request_performance": map[string]any{
			"aggregate": map[string]any{"requests": requests, "latency": latency, "throughput": throughput}},
		"profiling": map[string]any{"windtunnel": profiling, "windtunnel_summary": rest}}
	var components []any
	one := func(v float64, units string) map[string]any { return map[string]any{"units": units, "mean": Digits(v)} }
	level := func(x LevelSummary, times float64, units string) map[string]any {
		return map[string]any{"units": units, "mean": Digits(times * x.Mean), "max": Digits(times * x.Peak)}
	}
	resources := func(busy map[string]any, kv, running, queue LevelSummary, preemptions uint64) map[string]any {
		return map[string]any{"gpu_utilization": busy, "kv_cache_usage": level(kv, 100, "percent"),
			"running_requests": level(running, 1, "count"),
			"waiting_requests": level(queue, 1, "count"), "preemptions": one(float64(preemptions), "count")}
	}
	for i := range f.sum.Load {
		x := &f.sum.Load[i]
		label := string(x.Role)
		if x.Pool != "" {
			label = x.Pool + " " + label
		}
		label = terminal.Printable(label)
		busy := one(100*x.Busy.Mean, "percent")
		busy["min"], busy["max"] = Digits(100*x.Busy.Least), Digits(100*x.Busy.Most)
		components = append(components,
			map[string]any{"component_label": label,
				"aggregate": resources(busy, x.KV, x.Running, x.Queue, x.Preemptions)})
		for j := range x.Each {
			e := &x.Each[j]
			components = append(components,
				map[string]any{"component_label": label, "replica_id": terminal.Printable(cmp.Or(e.Name, e.Endpoint)),
					"aggregate": resources(one(100*e.Busy, "percent"), e.KV, e.Running, e.Queue, e.Preemptions)})
		}
	}
	if len(components) > 0 {
		results["observability"] = map[string]any{"components": components}
	}
	description := "windtunnel"
	if f.sum.Scenario != "" {
		description += ": " + terminal.Printable(f.sum.Scenario)
	}
	return map[string]any{"version": benchmarkReport, "results": results,
		"run": map[string]any{"uid": fmt.Sprintf("%x", id[:16]), "description": description,
			"time": map[string]any{"duration": "PT" + strconv.FormatFloat(math.Max(f.sum.Duration, 0), 'f', -1, 64) +
				"S"}}}, nil
}

// rest returns the parts of the summary that llm-d-benchmark's format has no place for, by their JSON names.
func (f *metrics) rest() (any, error) {
	x := f.sum.printable()
	text, err := json.Marshal(
		Summary{Seed: x.Seed, Duration: x.Duration, Requests: x.Requests, Unfinished: x.Unfinished,
			Interrupted: x.Interrupted, Outcomes: x.Outcomes, Hops: x.Hops, Endpoints: x.Endpoints,
			PrefillServers: x.PrefillServers, Refusals: x.Refusals, Incidents: x.Incidents,
			Spans: x.Spans, WarmUp: x.WarmUp, SLO: x.SLO, PrefixCache: x.PrefixCache, Transfers: x.Transfers,
			Predictions: x.Predictions, Classes: x.Classes, Cost: x.Cost, Expectations: x.Expectations})
	if err != nil {
		return nil, err
	}
	var rest any // JSON is YAML, and YAML keeps whole numbers whole
	if err := yaml.Unmarshal(text, &rest); err != nil {
		return nil, err
	}
	return rest, nil
}

// write writes the metrics in a format.
func (f *metrics) write(w io.Writer, form Form) error {
	if form == InferencePerf {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(f.inferencePerf())
	}
	x, err := f.benchmarkReport()
	if err != nil {
		return err
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(x); err != nil {
		return err
	}
	return enc.Close()
}
