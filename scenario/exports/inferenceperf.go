package exports

import (
	"math"

	"github.com/windtunnel/windtunnel/core/latency/dist"
	"github.com/windtunnel/windtunnel/scenario"
)

func (w *writer) inferencePerf() map[string]any {
	x := w.w
	api := map[string]any{"type": map[bool]string{true: "chat", false: "completion"}[x.API == scenario.ChatAPI], "streaming": x.Stream}
	headers := map[string]string{}
	for _, h := range x.Headers {
		headers[h.Name] = h.Value
		if h.Share > 0 && h.Share < 1 {
			w.lose("all requests have the header %s, and not a part of them", h.Name)
		}
	}
	if len(headers) > 0 {
		api["headers"] = headers
	}
	out := map[string]any{
		"api":    api,
		"server": map[string]any{"type": "vllm", "model_name": w.model(), "base_url": w.base, "ignore_eos": x.OutputTokens.Quantile(1) > 0},
		"load":   w.inferencePerfLoad(),
		"data":   w.inferencePerfData(),
		"report": map[string]any{"request_lifecycle": map[string]any{"summary": true, "per_stage": true, "per_request": true}},
	}
	constraints := map[string]any{}
	for name, most := range map[string]float64{"ttft": x.SLO.TTFT.Seconds(), "tpot": x.SLO.TPOT.Seconds(), "request_latency": x.SLO.E2E.Seconds()} {
		if most > 0 {
			constraints[name] = number(most)
		}
	}
	if len(constraints) > 0 {
		out["report"].(map[string]any)["goodput"] = map[string]any{"constraints": constraints}
	}
	return out
}

func (w *writer) inferencePerfLoad() map[string]any {
	x := w.w
	load := map[string]any{"request_timeout": number(x.Timeout.Seconds())}
	var list []any
	switch {
	case x.Trace.File != "" && x.Trace.Format == scenario.AzureTrace:
		load["type"], load["trace"] = "trace_replay", map[string]any{"file": x.Trace.File, "format": "AzurePublicDataset"}
		if x.Trace.Speedup != 1 || x.Trace.From > 0 || x.Duration > 0 {
			w.lose("all of the trace is sent, at its own pace")
		}
		return load
	case x.Trace.File != "":
		w.fail("trace", "a trace of the format "+string(x.Trace.Format), "azure: scenario export --to azure writes this one so, for its trace_replay")
	case x.Rate > 0 || len(x.Stages) > 0:
		load["type"] = "poisson"
		if x.Arrivals == scenario.ConstantArrivals {
			w.lose("arrivals are poisson and not constant: what the tool calls constant is random, too")
		}
		open := w.open()
		for i, rate := range open.rates {
			list = append(list, map[string]any{"rate": number(rate), "duration": w.seconds("a stage", open.durations[i])})
		}
		load["interval"] = number(open.pause.Seconds())
		if x.Concurrency > 1 {
			load["num_workers"], load["worker_max_concurrency"] = 1, x.Concurrency
		}
	default:
		load["type"] = "concurrent"
		list = append(list, map[string]any{"num_requests": x.Requests, "concurrency_level": x.Concurrency})
		if x.Duration > 0 {
			w.lose("the load ends after %d requests, and not after %s", x.Requests, x.Duration)
		}
	}
	load["stages"] = list
	if len(x.LoRAAdapters) > 0 {
		rest, split := 1.0, []any{}
		for _, a := range x.LoRAAdapters {
			rest -= float64(a.Share)
			split = append(split, map[string]any{"name": a.Name, "split": number(float64(a.Share))})
		}
		if rest > 1e-9 {
			split = append(split, map[string]any{"name": w.model(), "split": number(rest)})
		}
		load["lora_traffic_split"] = split
	}
	return load
}

func (w *writer) inferencePerfData() map[string]any {
	x := w.w
	groups, beginning := w.beginning()
	switch {
	case x.Trace.File != "":
		return map[string]any{"type": "random"}
	case x.Conversations.Turns.Quantile(1) > 1:
		c := map[string]any{"shared_system_prompt_len": 0,
			"turns_per_conversation": w.distribution("the number of turns", of(&x.Conversations.Turns, 1)),
			"input_tokens_per_turn":  w.distribution("the prompts' length", w.prompt()), "output_tokens_per_turn": w.distribution("the answers' length", w.answer())}
		switch {
		case groups == 1:
			c["shared_system_prompt_len"] = whole(w.mean("the beginning's length", beginning))
		case groups > 1:
			c["num_conversations"], c["dynamic_system_prompt_len"] = groups, w.distribution("the beginnings' length", beginning)
		}
		if think := &x.Conversations.ThinkTime; think.Quantile(1) > 0 {
			c["tool_call_latency_sec"] = w.distribution("the pause between turns", of(think, 1e9))
		}
		return map[string]any{"type": "conversation_replay", "conversation_replay": c}
	case groups > 0:
		perGroup := 10
		if x.Requests > 0 && x.Requests < 1_000_000 {
			perGroup = max(1, (x.Requests+groups-1)/groups)
		}
		w.lose("%d prompts of each beginning are made, and come again where more are sent", perGroup)
		return map[string]any{"type": "shared_prefix", "shared_prefix": map[string]any{"num_groups": groups, "num_prompts_per_group": perGroup, "system_prompt_len": whole(w.mean("the beginnings' length", beginning)),
			"question_len": w.scalar("the prompts' length", w.prompt()), "output_len": w.scalar("the answers' length", w.answer())}}
	}
	return map[string]any{"type": "random", "input_distribution": w.distribution("the prompts' length", w.prompt()), "output_distribution": w.distribution("the answers' length", w.answer())}
}

// mean is a length's mean, where no distribution can stand.
func (w *writer) mean(what string, l length) float64 {
	if l.low != l.high {
		w.lose("%s is its mean, %g tokens, always", what, math.Round(l.mean))
	}
	return l.mean
}

// scalar is a number, or a distribution.
func (w *writer) scalar(what string, l length) any {
	if l.low == l.high {
		return whole(l.mean)
	}
	return w.distribution(what, l)
}

func (w *writer) distribution(what string, l length) map[string]any {
	kind := "lognormal"
	switch l.family {
	case dist.FamilyConstant:
		kind = "fixed"
	case dist.FamilyUniform:
		kind = "uniform"
	case dist.FamilyNormal:
		kind = "normal"
	case dist.FamilyLognormal:
	default:
		w.lose("%s is lognormal, of the same mean and deviation, and not %s", what, l.family)
	}
	return map[string]any{"type": kind, "min": int64(math.Floor(l.low)), "max": int64(math.Ceil(l.high)), "mean": number(l.mean), "std_dev": number(l.deviation)}
}
