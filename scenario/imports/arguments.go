package imports

import (
	"fmt"
	"strconv"
	"strings"
)

// commandLine reads the words of a command, such as vllm bench serve --num-prompts 100 --seed 1, and reports whether
// the text is a command. A flag without a value is true.
func commandLine(text string, into map[string]any) bool {
	words := strings.Fields(strings.ReplaceAll(text, "\\\n", " "))
	first := 0
	for ; first < len(words) && !strings.HasPrefix(words[first], "--"); first++ {
		if strings.HasSuffix(words[first], ":") || strings.HasPrefix(words[first], "#") {
			return false // a field or a comment of YAML
		}
	}
	name := ""
	for _, w := range words[min(first, len(words)):] {
		flag, is := strings.CutPrefix(w, "--")
		if is {
			name, w, is = strings.Cut(flag, "=")
			if into[name] = true; !is {
				continue
			}
		}
		value := strings.Trim(w, `"'`)
		if before, ok := into[name].(string); ok {
			value = before + " " + value
		}
		into[name] = value
	}
	return len(into) > 0
}

// dashed returns the arguments by their names with dashes. Names may also have underscores.
func dashed(arguments map[string]any) map[string]any {
	out := make(map[string]any, len(arguments))
	for name, v := range arguments {
		out[strings.ReplaceAll(name, "_", "-")] = v
	}
	return out
}

// flag reports whether a flag is given, with true or without a value.
func (n *node) flag() bool {
	v := strings.ToLower(n.text("false"))
	return v != "false" && v != "0"
}

// bounds reads a list such as "ttft:200 e2el:5000", in milliseconds.
func (m *maker) bounds(n *node, names map[string]string) {
	var slo []string
	for _, b := range strings.Fields(strings.NewReplacer(",", " ", "[", " ", "]", " ").Replace(n.text(""))) {
		name, most, _ := strings.Cut(b, ":")
		ms, err := strconv.ParseFloat(most, 64)
		switch own := names[name]; {
		case err != nil || !(ms > 0 && ms < 1e9):
			m.fail(n, fmt.Sprintf("found %.80q", b), "a metric and milliseconds, such as ttft:200")
		case own == "":
			m.note("a scenario has no objective like %s", b)
		default:
			slo = append(slo, fmt.Sprintf("%s: %sms", own, number(ms)))
		}
	}
	if slo != nil {
		m.set("slo", "{%s}", strings.Join(slo, ", "))
	}
}

// vllmBench reads the arguments of vllm bench serve (benchmark_serving.py), as a command
// line or as a file with a field for each.
func vllmBench(m *maker, n *node) {
	n.leave("executable", "model", "served-model-name", "tokenizer", "tokenizer-mode", "trust-remote-code", "base-url",
		"host", "port", "percentile-metrics", "metric-percentiles",
		"result-filename", "result-dir", "save-result", "save-detailed", "append-result", "disable-tqdm", "profile",
		"metadata", "label", "seed", "ready-check-timeout-sec", "num-warmups")
	dataset := n.at("dataset-name").one(m, "random", "sonnet", "prefix_repetition", "sharegpt")
	chat := strings.Contains(n.at("backend").text("openai")+n.at("endpoint-type").text("")+n.at("endpoint").text(""),
		"chat")
	if m.api(chat || dataset == "sharegpt"); dataset == "sharegpt" && !chat {
		m.note("conversations use chat and not completion: the messages hold the earlier turns")
	}
	if n.at("backend").given() && n.at("endpoint").given() {
		n.leave("endpoint-type")
	}
	m.set("stream", "true")
	m.set("requests", "%s", whole(n.at("num-prompts").number(m, 1000)))
	m.vllmArrivals(n)
	m.vllmPrompts(n, dataset)
	if dataset != "sharegpt" && !n.at("ignore-eos").flag() {
		m.note("without ignore-eos, a model may end an answer sooner: in the scenario, all have the requested length")
	}
	m.bounds(n.at("goodput"), map[string]string{"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"})
}

func (m *maker) vllmArrivals(n *node) {
	most := n.at("max-concurrency")
	if rate := n.at("request-rate"); rate.text("inf") != "inf" && rate.text("") != "+Inf" {
		m.set("rate", "%s", number(rate.number(m, 1)))
		m.take("concurrency", most, whole)
		if b := n.at("burstiness").number(m, 1); b != 1 {
			m.set("arrivals", "gamma")
			m.set("burstiness", "%s", number(b))
		}
		m.note("the configuration's tool moves all times so that the last request comes at exactly requests ÷ rate: " +
			"in the scenario, the rate holds on average")
		return
	}
	n.leave("burstiness")
	if !most.given() {
		most = n.at("num-prompts")
	}
	m.set("concurrency", "%s", whole(most.number(m, 1000)))
}

func (m *maker) vllmPrompts(n *node, dataset string) {
	at := func(name string, otherwise float64) float64 { return n.at(name).number(m, otherwise) }
	switch dataset {
	case "sharegpt":
		m.read(n.at("dataset-path"), "sharegpt", "the file of ShareGPT's conversations")
		m.note("every answer in the file is a request, in its order: the configuration's tool uses the first answers " +
			"of some conversations")
		if own := n.at("sharegpt-output-len"); own.given() {
			m.note("answers have the lengths of the file's, and not sharegpt-output-len %s", own.text(""))
		}
	case "sonnet":
		prefix := at("sonnet-prefix-len", 200)
		n.leave("dataset-path")
		m.prompt(whole(at("sonnet-input-len", 550)-prefix), 1, prefix)
		m.set("outputTokens", "%s", whole(at("sonnet-output-len", 150)))
	case "prefix_repetition":
		m.prompt(whole(at("prefix-repetition-suffix-len", 256)), at("prefix-repetition-num-prefixes", 10),
			at("prefix-repetition-prefix-len", 256))
		m.set("outputTokens", "%s", whole(at("prefix-repetition-output-len", 128)))
	default:
		within := at("random-range-ratio", 0)
		length := func(mean float64) string {
			if within <= 0 {
				return whole(mean)
			}
			return whole(mean*(1-within)) + ".." + whole(mean*(1+within))
		}
		m.prompt(length(at("random-input-len", 1024)), 1, at("random-prefix-len", 0))
		m.set("outputTokens", "%s", length(at("random-output-len", 128)))
	}
}

// aiPerf reads the arguments of aiperf profile, as a command line or as a file with a
// field for each.
func aiPerf(m *maker, n *node) {
	n.leave("model", "url", "tokenizer", "tokenizer-trust-remote-code", "no-server-metrics", "use-server-token-count",
		"random-seed", "workers-max", "ui", "artifact-dir", "profile-export-file", "export-level", "extra-inputs",
		"warmup-request-count", "request-timeout-seconds", "endpoint", "verbose")
	m.api(n.at("endpoint-type").one(m, "chat", "completions") != "completions")
	m.set("stream", "%t", n.at("streaming").flag())
	if n.at("input-file").given() {
		n.at("custom-dataset-type").one(m, "mooncake_trace")
		n.leave("concurrency", "fixed-schedule", "custom-dataset-type")
		m.read(n.at("input-file"), "mooncake", "the file of a trace")
		m.note("the trace's requests come at its times, without a limit of concurrency")
		m.take("requests", n.at("request-count"), whole)
		return
	}
	most := n.at("concurrency")
	rate := n.at("request-rate")
	if m.take("rate", rate, number) {
		switch n.first("arrival-pattern", "request-rate-mode").one(m, "poisson", "constant", "gamma") {
		case "constant":
			m.set("arrivals", "constant")
		case "gamma":
			m.set("arrivals", "gamma")
			m.set("burstiness", "%s", number(n.at("arrival-smoothness").number(m, 1)))
		}
	}
	if most.given() || !rate.given() {
		m.set("concurrency", "%s", whole(most.number(m, 1)))
	}
	turns, count := n.first("conversation-turn-mean", "num-turns"), n.at("request-count")
	switch duration := n.at("benchmark-duration"); {
	case count.given():
		m.set("requests", "%s", whole(count.number(m, 10)))
	case n.at("conversation-num").given() || n.at("num-conversations").given():
		m.set("requests", "%s", whole(n.first("conversation-num", "num-conversations").number(m, 1)*turns.number(m, 1)))
	case !duration.given():
		m.set("requests", "%s", whole(max(10, 2*most.number(m, 1))))
		m.note("without request-count, there are twice as many requests as the concurrency, and at least 10")
	}
	m.take("duration", n.at("benchmark-duration"), seconds)
	length := func(what string, mean, deviation *node, otherwise float64) string {
		return m.lengths(what, mean.number(m, otherwise), deviation.number(m, 0), 1, 0, 1, whole)
	}
	prompt := length("the prompts' length", n.first("isl", "synthetic-input-tokens-mean", "prompt-input-tokens-mean"),
		n.first("isl-stddev", "synthetic-input-tokens-stddev", "prompt-input-tokens-stddev"), 550)
	m.prompt(prompt, n.first("num-prefix-prompts", "prefix-prompt-pool-size", "prompt-prefix-pool-size").number(m, 1),
		n.first("prefix-prompt-length", "prompt-prefix-length").number(m, 0))
	if answer := n.first("osl", "output-tokens-mean", "prompt-output-tokens-mean"); answer.given() {
		m.set("outputTokens", "%s",
			length("the answers' length", answer,
				n.first("osl-stddev", "output-tokens-stddev", "prompt-output-tokens-stddev"), 1))
	}
	if t := turns.number(m, 1); t > 1 {
		think := ""
		if d := n.at("conversation-turn-delay-mean"); d.given() {
			think = number(d.number(m, 0)) + "ms"
		}
		m.conversations(whole(t), think)
	}
	m.bounds(n.at("goodput"),
		map[string]string{"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e"})
}

// first returns the first of several fields that is given. The names are synonyms.
func (n *node) first(names ...string) *node {
	for _, name := range names {
		if c := n.at(name); c.given() {
			return c
		}
	}
	return n.at(names[0])
}
