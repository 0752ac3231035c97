package exports

import (
	"cmp"
	"fmt"
	"time"

	"github.com/windtunnel/windtunnel/core/load/workload/trace"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/scenario"
)

func (w *writer) guideLLM() map[string]any {
	x := w.w
	if x.Trace.File != "" && x.Trace.Format != scenario.MooncakeTrace {
		w.fail("trace", "a trace of the format "+string(x.Trace.Format),
			"mooncake: scenario export --to mooncake writes this one so, for its replay")
	}
	if len(x.LoRAAdapters) > 0 {
		w.lose("workload.loraAdapters: the format cannot express it")
	}
	format := "/v1/completions"
	if x.API == scenario.ChatAPI {
		format = "/v1/chat/completions"
	}
	backend := map[string]any{"kind": "openai_http", "target": w.base, "model": w.model(), "request_format": format,
		"stream": x.Stream}
	if headers := w.headers(); len(headers) > 0 {
		backend["extras"] = map[string]any{"headers": headers}
	}
	spec := map[string]any{"backend": backend}
	w.guideLLMTokenizer(spec)
	if slo := w.objectives(map[string]time.Duration{"ttft_ms": x.SLO.TTFT, "tpot_ms": x.SLO.TPOT, "e2el_ms": x.SLO.E2E},
		time.Millisecond); len(slo) > 0 {
		spec["metrics"] = map[string]any{"kind": "generative", "slo": slo}
	}
	if x.Trace.File != "" {
		w.guideLLMTrace(spec)
		return map[string]any{"spec": spec}
	}
	profile, constraints := map[string]any{"kind": "concurrent", "streams": x.Concurrency}, w.guideLLMLimits()
	if x.Rate > 0 || len(x.Stages) > 0 {
		profile, constraints = w.guideLLMOpen()
	}
	data := map[string]any{"kind": "synthetic_text"}
	w.guideLLMLength(data, "prompt_tokens", "the prompts' length", w.prompt())
	w.guideLLMLength(data, "output_tokens", "the answers' length", w.answer())
	if groups, beginning := w.beginning(); groups > 0 {
		data["prefix_buckets"] = []any{
			map[string]any{"bucket_weight": 100, "prefix_count": groups,
				"prefix_tokens": whole(w.mean("the beginnings' length", beginning))}}
	}
	if turns := &x.Conversations.Turns; turns.Quantile(1) > 1 {
		data["turns"] = whole(w.mean("the number of turns", of(turns, 1)))
		if think := &x.Conversations.ThinkTime; think.Quantile(1) > 0 {
			w.guideLLMSpread(data, "delay", "the pause between turns", of(think, 1e9), number)
		}
	}
	spec["profile"], spec["data"], spec["constraints"] = profile, []any{data}, constraints
	return map[string]any{"spec": spec}
}

// guideLLMLimits returns the constraints by the number of requests and by the duration.
func (w *writer) guideLLMLimits() (out []any) {
	if w.w.Requests > 0 {
		out = append(out, map[string]any{"kind": "max_requests", "count": w.w.Requests})
	}
	if w.w.Duration > 0 {
		out = append(out, maxDuration(w.w.Duration))
	}
	return out
}

func maxDuration(d time.Duration) any {
	return map[string]any{"kind": "max_duration", "seconds": number(d.Seconds())}
}

// guideLLMTokenizer sets the tokenizer for the tool's prompts.
func (w *writer) guideLLMTokenizer(spec map[string]any) {
	if own := w.s.Pools[0].ModelServer.Tokenizer; own != "" {
		spec["tokenizer"] = map[string]any{"kind": "huggingface_auto", "model": own}
		return
	}
	w.lose("the tool makes prompts with the tokenizer of the model's name: if that is not a repository of Hugging " +
		"Face, set spec.tokenizer.model")
}

// guideLLMTrace replays a trace in Mooncake's format. The tool reads its milliseconds as seconds.
func (w *writer) guideLLMTrace(spec map[string]any) {
	x := w.w
	spec["profile"] = map[string]any{"kind": "replay", "time_scale": number(1e-3 / x.Trace.Speedup)}
	spec["data"] = []any{map[string]any{"kind": "mooncake",
		"hash_id_block_size": cmp.Or(x.Trace.BlockSize, trace.MooncakeBlock),
		"source":             map[string]any{"kind": "json_file", "path": x.Trace.File}}}
	if x.Trace.From > 0 || x.Trace.Spread > 0 {
		w.lose("the tool sends the trace from its beginning, at its own times, without workload.trace.from and spread")
	}
	if constraints := w.guideLLMLimits(); constraints != nil {
		spec["constraints"] = constraints
	}
}

// guideLLMOpen returns an open loop: consecutive rates of one duration each.
func (w *writer) guideLLMOpen() (profile map[string]any, constraints []any) {
	x, open := w.w, w.open()
	kind := "poisson"
	if x.Arrivals == scenario.ConstantArrivals {
		kind = "constant"
	}
	profile = map[string]any{"kind": kind}
	if x.Concurrency > 1 {
		profile["max_concurrency"] = x.Concurrency
	}
	if len(open.rates) == 1 {
		profile["rate"] = number(open.rates[0])
	} else {
		var rates []any
		for i, r := range open.rates {
			rates = append(rates, number(r))
			if open.durations[i] != open.durations[0] {
				w.fail("stages", fmt.Sprintf("stages of %s and of %s", open.durations[0], open.durations[i]),
					"stages of one length")
			}
		}
		profile["rate"] = rates
		w.lose("between its rates, the tool waits until all requests have ended")
	}
	if len(x.Stages) == 0 && x.Duration == 0 {
		return profile, []any{map[string]any{"kind": "max_requests", "count": x.Requests}}
	}
	return profile, []any{maxDuration(open.durations[0])}
}

// guideLLMLength sets a length, in whole tokens.
func (w *writer) guideLLMLength(data map[string]any, name, what string, l length) {
	w.guideLLMSpread(data, name, what, l, func(v float64) any { return whole(v) })
}

// guideLLMSpread sets a distribution, which is normal in the format.
func (w *writer) guideLLMSpread(data map[string]any, name, what string, l length, write func(float64) any) {
	if data[name] = write(l.mean); l.low == l.high {
		return
	}
	if l.family != dist.FamilyNormal {
		w.lose("%s is normal, of the same mean and deviation, and not %s", what, l.family)
	}
	data[name+"_stdev"], data[name+"_min"], data[name+"_max"] = write(l.deviation), write(l.low), write(l.high)
}
