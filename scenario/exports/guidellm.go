package exports

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/latency/dist"
	"github.com/windtunnel/windtunnel/scenario"
)

func (w *writer) guideLLM() map[string]any {
	x := w.w
	if x.Trace.File != "" {
		w.fail("trace", "a file of requests", "requests that are made up: scenario export --to mooncake writes these for its replay")
	}
	for _, f := range []struct {
		given bool
		what  string
	}{{len(x.Headers) > 0, "workload.headers"}, {len(x.LoRAAdapters) > 0, "workload.loraAdapters"}, {x.SLO != scenario.SLO{}, "workload.slo"}, {!x.Stream, "workload.stream: false"}} {
		if f.given {
			w.lose("%s: there is no like of it", f.what)
		}
	}
	format := "/v1/completions"
	if x.API == scenario.ChatAPI {
		format = "/v1/chat/completions"
	}
	profile, constraints := map[string]any{"kind": "concurrent", "streams": x.Concurrency}, []any{map[string]any{"kind": "max_requests", "count": x.Requests}}
	switch open := x.Rate > 0 || len(x.Stages) > 0; {
	case open:
		profile, constraints = w.guideLLMOpen()
	case x.Duration > 0:
		constraints = append(constraints, map[string]any{"kind": "max_duration", "seconds": number(x.Duration.Seconds())})
	}
	data := map[string]any{"kind": "synthetic_text"}
	w.guideLLMLength(data, "prompt_tokens", "the prompts' length", w.prompt())
	w.guideLLMLength(data, "output_tokens", "the answers' length", w.answer())
	if groups, beginning := w.beginning(); groups > 0 {
		data["prefix_buckets"] = []any{map[string]any{"bucket_weight": 100, "prefix_count": groups, "prefix_tokens": whole(w.mean("the beginnings' length", beginning))}}
	}
	if turns := &x.Conversations.Turns; turns.Quantile(1) > 1 {
		data["turns"] = whole(w.mean("the number of turns", of(turns, 1)))
		if think := &x.Conversations.ThinkTime; think.Quantile(1) > 0 {
			data["delay"] = number(w.mean("the pause between turns", of(think, 1e9)))
		}
	}
	return map[string]any{"spec": map[string]any{
		"backend": map[string]any{"kind": "openai_http", "target": w.base, "model": w.model(), "request_format": format},
		"profile": profile, "data": []any{data}, "constraints": constraints,
	}}
}

// guideLLMOpen is an open loop: rates one after the other, of one duration each.
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
				w.fail("stages", fmt.Sprintf("stages of %s and of %s", open.durations[0], open.durations[i]), "stages of one length")
			}
		}
		profile["rate"] = rates
		w.lose("between its rates the tool waits until all requests have ended")
	}
	if len(x.Stages) == 0 && x.Duration == 0 {
		return profile, []any{map[string]any{"kind": "max_requests", "count": x.Requests}}
	}
	return profile, []any{map[string]any{"kind": "max_duration", "seconds": number(open.durations[0].Seconds())}}
}

// guideLLMLength sets a length, which is normal there.
func (w *writer) guideLLMLength(data map[string]any, name, what string, l length) {
	if data[name] = whole(l.mean); l.low == l.high {
		return
	}
	if l.family != dist.FamilyNormal {
		w.lose("%s is normal, of the same mean and deviation, and not %s", what, l.family)
	}
	data[name+"_stdev"], data[name+"_min"], data[name+"_max"] = whole(l.deviation), whole(l.low), whole(l.high)
}
