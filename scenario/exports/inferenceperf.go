package exports

import (
	"math"
	"math/big"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/scenario"
)

func (w *writer) inferencePerf() map[string]any {
	x := w.w
	api := map[string]any{"type": w.inferencePerfAPI(), "streaming": x.Stream}
	if headers := w.headers(); len(headers) > 0 {
		api["headers"] = headers
	}
	out := map[string]any{
		"api": api,
		"server": map[string]any{"type": "vllm", "model_name": w.model(), "base_url": w.base,
			"ignore_eos": x.OutputTokens.Quantile(1) > 0},
		"load": w.inferencePerfLoad(),
		"data": w.inferencePerfData(),
		"report": map[string]any{
			"request_lifecycle": map[string]any{"summary": true, "per_stage": true, "per_request": true}},
	}
	if own := w.s.Pools[0].ModelServer.Tokenizer; own != "" {
		out["tokenizer"] = map[string]any{"pretrained_model_name_or_path": own}
	} else {
		w.lose("the tool makes prompts with the tokenizer of the model's name: if that is not a repository of " +
			"Hugging Face, set tokenizer.pretrained_model_name_or_path")
	}
	if constraints := w.objectives(
		map[string]time.Duration{"ttft": x.SLO.TTFT, "tpot": x.SLO.TPOT, "request_latency": x.SLO.E2E},
		time.Second); len(constraints) > 0 {
		out["report"].(map[string]any)["goodput"] = map[string]any{"constraints": constraints}
	}
	return out
}

// inferencePerfAPI returns chat if the tool makes chats: of its generators, shared_prefix does (0.7.0,
// get_supported_apis of each), and random and conversation_replay do not.
func (w *writer) inferencePerfAPI() string {
	x := w.w
	switch {
	case x.API != scenario.ChatAPI:
		return "completion"
	case x.Trace.File != "":
		w.lose("requests use completion and not chat: the tool's trace_replay has no chat")
		return "completion"
	case x.Conversations.Turns.Quantile(1) > 1:
		w.lose("requests use completion and not chat, with the whole conversation in the prompt: the tool's " +
			"conversation_replay has no chat")
		return "completion"
	}
	return "chat"
}

func (w *writer) inferencePerfLoad() map[string]any {
	x := w.w
	load := map[string]any{"request_timeout": number(x.Timeout.Seconds())}
	var list []any
	switch {
	case x.Trace.File != "" && x.Trace.Format == scenario.AzureTrace:
		load["type"], load["trace"] = "trace_replay",
			map[string]any{"file": x.Trace.File, "format": "AzurePublicDataset"}
		// The tool needs a stage, and reads the number of requests and their times from the trace.
		load["stages"] = []any{map[string]any{"rate": 1, "duration": 1}}
		if x.Trace.Speedup != 1 || x.Trace.From > 0 || x.Duration > 0 {
			w.lose("the tool sends the whole trace, at its own speed")
		}
		return load
	case x.Trace.File != "":
		w.fail("trace", "a trace of the format "+string(x.Trace.Format),
			"azure: scenario export --to azure writes this one so, for its trace_replay")
	case x.Rate > 0 || len(x.Stages) > 0:
		load["type"] = "poisson"
		if x.Arrivals == scenario.ConstantArrivals {
			w.lose("arrivals are poisson and not constant: the tool's constant arrivals are random, too")
		}
		open := w.open()
		for i, rate := range open.rates {
			list = append(list, map[string]any{"rate": number(rate),
				"duration": w.seconds("a stage", open.durations[i])})
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
		load["lora_traffic_split"] = w.inferencePerfSplit()
	}
	return load
}

// inferencePerfSplit returns the shares of the adapters and of the model alone. The tool rounds the sum of the shares
// once and refuses any other than 1, so the last share is the rest.
func (w *writer) inferencePerfSplit() (split []any) {
	rest := big.NewRat(1, 1)
	for i, a := range w.w.LoRAAdapters {
		share, _ := rest.Float64()
		if left := share - float64(a.Share); i+1 < len(w.w.LoRAAdapters) || left > 1e-9 {
			share = math.Round(float64(a.Share)*1e9) / 1e9
		}
		split = append(split, map[string]any{"name": a.Name, "split": share})
		rest.Sub(rest, new(big.Rat).SetFloat64(share))
	}
	if share, _ := rest.Float64(); share > 1e-9 {
		split = append(split, map[string]any{"name": w.model(), "split": share})
	}
	return split
}

func (w *writer) inferencePerfData() map[string]any {
	x := w.w
	groups, beginning := w.beginning()
	switch {
	case x.Trace.File != "":
		return map[string]any{"type": "random",
			"trace": map[string]any{"file": x.Trace.File, "format": "AzurePublicDataset"}}
	case x.Conversations.Turns.Quantile(1) > 1:
		c := map[string]any{"shared_system_prompt_len": 0,
			"turns_per_conversation": w.distribution("the number of turns", of(&x.Conversations.Turns, 1)),
			"input_tokens_per_turn":  w.distribution("the prompts' length", w.prompt()),
			"output_tokens_per_turn": w.distribution("the answers' length", w.answer())}
		switch {
		case groups == 1:
			c["shared_system_prompt_len"] = whole(w.mean("the beginning's length", beginning))
		case groups > 1:
			c["num_conversations"], c["dynamic_system_prompt_len"] = groups,
				w.distribution("the beginnings' length", beginning)
		}
		if think := &x.Conversations.ThinkTime; think.Quantile(1) > 0 {
			c["tool_call_latency_sec"] = w.distribution("the pause between turns", of(think, 1e9))
		}
		return map[string]any{"type": "conversation_replay", "conversation_replay": c}
	case groups > 0 || x.API == scenario.ChatAPI:
		perGroup, common := w.perGroup(max(1, groups)), int64(0)
		if groups > 0 {
			common = whole(w.mean("the beginnings' length", beginning))
		}
		return map[string]any{"type": "shared_prefix",
			"shared_prefix": map[string]any{"num_groups": max(1, groups), "num_prompts_per_group": perGroup,
				"system_prompt_len": common,
				"question_len":      w.scalar("the prompts' length", w.prompt()),
				"output_len":        w.scalar("the answers' length", w.answer())}}
	}
	return map[string]any{"type": "random", "input_distribution": w.distribution("the prompts' length", w.prompt()),
		"output_distribution": w.distribution("the answers' length", w.answer())}
}

// mostPrompts bounds the prompts that inference-perf makes before its first request.
const mostPrompts = 100_000

// perGroup returns the number of prompts for each beginning, so that no prompt repeats within mostPrompts.
func (w *writer) perGroup(groups int) int {
	sent := float64(w.w.Requests)
	if w.w.Rate > 0 || len(w.w.Stages) > 0 {
		sent = 0
		open := w.open()
		for i, rate := range open.rates {
			sent += rate * open.durations[i].Seconds()
		}
	}
	if sent > mostPrompts {
		w.lose("about %.0f requests share %d prompts, which repeat", sent, mostPrompts)
		sent = mostPrompts
	}
	return max(1, int(math.Ceil(sent/float64(groups))))
}

// mean returns a length's mean, for fields that take no distribution.
func (w *writer) mean(what string, l length) float64 {
	if l.low != l.high {
		w.lose("%s is always its mean, %g tokens", what, math.Round(l.mean))
	}
	return l.mean
}

// scalar returns a number, or a distribution.
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
	return map[string]any{"type": kind, "min": int64(math.Floor(l.low)), "max": int64(math.Ceil(l.high)),
		"mean": number(l.mean), "std_dev": number(l.deviation)}
}
