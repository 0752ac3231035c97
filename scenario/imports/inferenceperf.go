package imports

import (
	"fmt"
	"math"
	"strings"
)

// inferencePerf reads a configuration of inference-perf.
func inferencePerf(m *maker, n *node) {
	n.leave("server", "tokenizer", "storage", "metrics")
	api := n.at("api")
	kind := api.at("type").one(m, "completion", "chat")
	data := n.at("data")
	several := data.at("type").text("") == "conversation_replay" ||
		data.at("shared_prefix").at("enable_multi_turn_chat").text("false") == "true"
	chat := several || data.at("type").text("") == "shareGPT"
	if chat && kind == "completion" {
		m.note("conversations use chat and not completion: the messages hold the earlier turns")
	}
	m.api(chat || kind == "chat")
	m.set("stream", "%t", api.at("streaming").text("false") == "true")
	m.inferencePerfLoad(n.at("load"))
	if m.trace == "" {
		m.inferencePerfData(data)
	} else if n.leave("data"); !data.at("trace").given() {
		m.note("prompts and answers also have the lengths of the trace, and not those of data, which need data.trace")
	}
	m.headers(api.at("headers"))
	report := n.at("report")
	report.leave("request_lifecycle", "prometheus")
	m.goodput(report.at("goodput").at("constraints"), "s",
		[][2]string{{"ttft", "ttft"}, {"tpot", "tpot"}, {"request_latency", "e2e"}})
}

func (m *maker) inferencePerfLoad(load *node) {
	load.leave("num_workers", "worker_max_concurrency", "worker_max_tcp_connections", "base_seed")
	m.take("timeout", load.at("request_timeout"), seconds)
	kind, stages := load.at("type"), load.at("stages").items()
	pause := load.at("interval").number(m, 1)
	if len(stages) == 0 && kind.text("") != "trace_replay" {
		m.fail(load.at("stages"), "missing", "one stage or several")
		return
	}
	switch k := kind.one(m, "constant", "poisson", "concurrent", "trace_replay"); k {
	case "trace_replay":
		load.leave("stages", "interval")
		load.at("trace").at("format").one(m, "AzurePublicDataset")
		m.read(load.at("trace").at("file"), "azure", "the file of a trace")
	case "concurrent":
		s := stages[m.one(load.at("stages"), len(stages))]
		load.leave("stages", "interval")
		m.set("concurrency", "%s", whole(s.at("concurrency_level").number(m, 1)))
		m.set("requests", "%s", whole(s.at("num_requests").number(m, 1)))
	default:
		if k == "constant" {
			m.note("the configuration's tool calls Poisson arrivals constant, and moves them so that each stage has " +
				"its number of them: in the scenario, the rate holds on average")
		}
		var list []string
		for i, s := range stages {
			if i > 0 && pause > 0 {
				list = append(list, fmt.Sprintf("{duration: %s, rate: 0}", seconds(pause)))
			}
			list = append(list, fmt.Sprintf("{duration: %s, rate: %s}", seconds(s.at("duration").number(m, 1)),
				number(s.at("rate").number(m, 1))))
		}
		m.set("stages", "\n    - %s", strings.Join(list, "\n    - "))
	}
	var shares []string
	for _, a := range load.at("lora_traffic_split").items() {
		name := a.at("name").text("")
		shares = append(shares, fmt.Sprintf("{name: %q, share: %s%%}", name, number(100*a.at("split").number(m, 0))))
		m.adapters = append(m.adapters, fmt.Sprintf("%q", name))
	}
	if shares != nil {
		m.set("loraAdapters", "[%s]", strings.Join(shares, ", "))
	}
}

func (m *maker) inferencePerfData(data *node) {
	data.leave("use_chat_template")
	switch data.at("type").one(m, "random", "synthetic", "shared_prefix", "shareGPT", "conversation_replay", "mock") {
	case "shareGPT":
		data.leave("input_distribution", "output_distribution")
		m.read(data.at("path"), "sharegpt",
			"the file of ShareGPT's conversations: the configuration's tool downloads one by itself")
		m.note("the client sends conversations of any length, in the file's order")
	case "conversation_replay":
		m.inferencePerfConversations(data.at("conversation_replay"))
	case "random", "synthetic":
		m.prompt(m.inferencePerfLength("the prompts' length", data.at("input_distribution")), 0, 0)
		m.set("outputTokens", "%s", m.inferencePerfLength("the answers' length", data.at("output_distribution")))
	case "shared_prefix":
		p := data.at("shared_prefix")
		groups := p.first("num_groups", "num_unique_system_prompts")
		p.leave("num_prompts_per_group", "num_users_per_system_prompt", "seed")
		m.note("all questions of a group differ; num_prompts_per_group has no effect")
		beginning := p.at("system_prompt_len")
		if beginning.at("mean").given() {
			beginning.leave("type", "min", "max", "std_dev", "variance", "skew", "total_count")
			m.note("all beginnings have the mean of their lengths")
			beginning = beginning.at("mean")
		}
		m.prompt(m.inferencePerfScalar("the questions' length", p.at("question_len"), 50), groups.number(m, 10),
			beginning.number(m, 100))
		m.set("outputTokens", "%s", m.inferencePerfScalar("the answers' length", p.at("output_len"), 50))
		if p.at("enable_multi_turn_chat").text("false") == "true" {
			m.conversations("10", "")
			m.note("a conversation has 10 turns: the configuration has no number of turns")
		}
	}
}

// inferencePerfConversations reads generated conversations. The beginning that all share and the beginning of each are
// one beginning in the scenario, which has as many of them as conversations.
func (m *maker) inferencePerfConversations(c *node) {
	c.leave("seed")
	if n := c.at("max_model_len"); n.given() {
		m.note("the model servers refuse prompts longer than max_model_len (modelServer.maxModelLen %s)", n.text(""))
		n.value = nil
	}
	count, common := c.at("num_conversations").number(m, 200), c.at("shared_system_prompt_len").number(m, 8359)
	length := func(name, what string, otherwise, unit float64, more float64, write func(float64) string) string {
		d := c.at(name)
		if !d.given() {
			return write(otherwise * unit)
		}
		return m.inferencePerfDistribution(what, d, unit, more, write)
	}
	var beginning string
	if c.at("dynamic_system_prompt_len").given() {
		beginning = fmt.Sprintf("{groups: %s, characters: %s}", whole(count),
			length("dynamic_system_prompt_len", "the system prompts' length", 0, 4, common, whole))
		m.note("each conversation has one of %s beginnings, as long as the common system prompt and its own together: "+
			"conversations with different beginnings share nothing, and several may have the same one", whole(count))
	} else if common > 0 {
		beginning = fmt.Sprintf("{groups: 1, characters: %s}", whole(4*common))
	}
	if prompt := length("input_tokens_per_turn", "the questions' length", 512, 1, 0, whole); beginning != "" {
		m.set("prompt", "\n    tokens: %s\n    shared: %s", prompt, beginning)
	} else {
		m.set("prompt", "{tokens: %s}", prompt)
	}
	m.set("outputTokens", "%s", length("output_tokens_per_turn", "the answers' length", 512, 1, 0, whole))
	think := ""
	if c.at("tool_call_latency_sec").given() {
		think = length("tool_call_latency_sec", "the tools' time", 0, 1, 0, seconds)
	}
	m.conversations(length("turns_per_conversation", "the conversations' number of turns", 1, 1, 0, whole), think)
}

// inferencePerfScalar returns a length that is a number or a distribution.
func (m *maker) inferencePerfScalar(what string, n *node, otherwise float64) string {
	if _, ok := n.value.(map[string]any); ok {
		return m.inferencePerfLength(what, n)
	}
	return whole(n.number(m, otherwise))
}

func (m *maker) inferencePerfLength(what string, n *node) string {
	return m.inferencePerfDistribution(what, n, 1, 0, whole)
}

// inferencePerfDistribution returns a distribution whose values are the given ones plus more, times unit.
func (m *maker) inferencePerfDistribution(what string, n *node, unit, more float64, write func(float64) string) string {
	n.leave("total_count", "skew")
	least, most, mean := n.at("min").number(m, 10), n.at("max").number(m, 1024), n.at("mean").number(m, 512)
	deviation := n.at("std_dev").number(m, 200)
	if v := n.at("variance"); v.given() {
		deviation = math.Sqrt(v.number(m, 0))
	}
	if least > most {
		m.fail(n, fmt.Sprintf("min is %v and max is %v", least, most), "min up to max")
	}
	kind := n.at("type").one(m, "normal", "skew_normal", "lognormal", "uniform", "poisson", "fixed")
	low, middle, high, spread := (least+more)*unit, (mean+more)*unit, (most+more)*unit, deviation*unit
	switch {
	case kind == "fixed":
		return write(middle)
	case least == most:
		return write(low)
	case kind == "uniform":
		return write(low) + ".." + write(max(unit, high))
	case kind == "lognormal":
		return fmt.Sprintf("%q",
			fmt.Sprintf("lognormal(%s, %s, min=%s, max=%s)", write(middle), write(spread), write(max(unit, low)),
				write(high)))
	case kind == "poisson":
		deviation = math.Sqrt(mean)
	case kind == "skew_normal":
		m.note("%s is normal and not skew_normal", what)
	}
	return m.lengths(what, mean+more, deviation, least+more, most+more, unit, write)
}
