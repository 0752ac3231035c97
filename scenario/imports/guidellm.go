package imports

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// guideLLM reads a configuration of GuideLLM: a specification, or the older form
// whose fields are arguments of its command.
func guideLLM(m *maker, n *node) {
	n.leave("metadata", "target", "model", "processor", "outputs", "output_path")
	s := n
	if n.at("spec").given() {
		s = n.at("spec")
	}
	if all := n.at("benchmarks").items(); len(all) > 0 {
		m.overlay(s, all[m.one(n.at("benchmarks"), len(all))])
		n.leave("benchmarks")
	}
	backend := s.at("backend")
	backend.leave("kind", "target", "model")
	s.leave("tokenizer", "outputs", "seed")
	format := backend.at("request_format").text(n.at("data_request_formatter").text("chat_completions"))
	if strings.Contains(format, "chat") {
		m.set("api", "chat")
	} else {
		m.set("api", "completions")
	}
	m.set("stream", "%t", backend.at("stream").text("true") == "true")
	metrics := s.at("metrics")
	metrics.leave("kind", "sample_size", "prefer_response_metrics", "confidence")
	m.goodput(metrics.at("slo"), "ms", [][2]string{{"ttft_ms", "ttft"}, {"tpot_ms", "tpot"}, {"e2el_ms", "e2e"}})
	trace := s.at("profile").at("kind").text("") == "replay"
	if !trace {
		m.guideLLMProfile(s)
	}
	for _, c := range s.at("constraints").items() {
		switch c.at("kind").text("") {
		case "max_duration":
			m.set("duration", "%s", seconds(c.at("seconds").number(m, 60)))
		case "max_requests":
			count := c.at("count")
			if !count.given() {
				count = c.at("num")
			}
			m.set("requests", "%s", whole(count.number(m, 1)))
		}
	}
	if t := s.at("max_seconds"); t.given() {
		m.set("duration", "%s", seconds(t.number(m, 60)))
	}
	if t := s.at("max_requests"); t.given() {
		m.set("requests", "%s", whole(t.number(m, 1)))
	}
	if trace {
		m.guideLLMTrace(s.at("profile"), s.at("data"))
	} else {
		m.guideLLMData(s.at("data"))
	}
	m.headers(backend.at("extras").at("headers"))
}

// guideLLMTrace reads the replay of a trace of Mooncake's.
func (m *maker) guideLLMTrace(profile, data *node) {
	profile.leave("schedule_turn")
	list := data.items()
	if len(list) != 1 {
		m.fail(data, fmt.Sprintf("%d sources", len(list)), "one source of kind mooncake")
		return
	}
	d := list[0]
	d.at("kind").one(m, "mooncake")
	d.at("source").leave("kind")
	more := fmt.Sprintf(", blockSize: %s", whole(d.at("hash_id_block_size").number(m, 512)))
	// The tool takes the times for seconds, and they are milliseconds.
	if scale := 1000 * profile.at("time_scale").number(m, 1) * d.at("time_scale").number(m, 1); scale > 0 &&
		math.Abs(scale-1) > 1e-9 {
		more += fmt.Sprintf(", speedup: %s", number(1/scale))
		m.note("the configuration's tool takes a trace's times for seconds: times of milliseconds want a time_scale " +
			"of 0.001")
	}
	m.read(d.at("source").at("path"), "mooncake", "the file of a trace", more)
}

// overlay sets what one of several benchmarks has in place of the specification's, by
// paths such as constraints[0].count.
func (m *maker) overlay(s, benchmark *node) {
	fields, _ := benchmark.value.(map[string]any)
	for _, path := range sortedNames(fields) {
		at, last := s.value, ""
		for step := range strings.SplitSeq(strings.NewReplacer("[", ".", "]", "").Replace(path), ".") {
			at, last = into(at, last), step
		}
		if in, ok := at.(map[string]any); ok {
			in[last] = fields[path]
		} else {
			m.fail(benchmark.at(path), "there is no such field in spec", "the path of one, such as profile.rate")
		}
	}
}

// into is a field of an object, or an entry of a list by its number; "" is the value itself.
func into(v any, step string) any {
	switch x := v.(type) {
	case map[string]any:
		if step == "" {
			return x
		}
		return x[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(x) {
			return x[i]
		}
	}
	return nil
}

// guideLLMProfile reads how requests come.
func (m *maker) guideLLMProfile(s *node) {
	p := s.at("profile")
	kind, rate, streams := p.at("kind"), p.at("rate"), p.at("streams")
	if _, older := p.value.(string); older {
		kind, rate, streams = p, s.at("rate"), s.at("rate")
	}
	load := func(n *node) float64 {
		loads := n.items()
		if len(loads) == 0 {
			m.fail(n, "missing", "a number")
			return 1
		}
		return loads[m.one(n, len(loads))].number(m, 1)
	}
	switch k := kind.one(m, "poisson", "constant", "async", "concurrent", "synchronous", "throughput"); k {
	case "poisson", "constant", "async":
		m.set("rate", "%s", number(load(rate)))
		if k != "poisson" {
			m.set("arrivals", "constant")
		}
		if c := p.at("max_concurrency"); c.given() {
			m.set("concurrency", "%s", whole(c.number(m, 1)))
		}
	case "concurrent":
		m.set("concurrency", "%s", whole(load(streams)))
	case "synchronous":
		m.set("concurrency", "1")
	case "throughput":
		m.set("concurrency", "%s", whole(p.at("max_concurrency").number(m, 512)))
	}
}

func (m *maker) guideLLMData(data *node) {
	list := data.items()
	if len(list) != 1 {
		m.fail(data, fmt.Sprintf("%d sources", len(list)), "one source of kind synthetic_text")
		return
	}
	d := list[0]
	d.at("kind").one(m, "synthetic_text")
	length := func(what, name string) string {
		return m.tokens(what, d.at(name).number(m, 1), d.at(name+"_stdev").number(m, 0), d.at(name+"_min").number(m, 1),
			d.at(name+"_max").number(m, 0))
	}
	prompt := "\n    tokens: " + length("the prompts' length", "prompt_tokens")
	if buckets := d.at("prefix_buckets").items(); len(buckets) > 0 {
		if len(buckets) > 1 {
			m.note("of %d prefix_buckets the first is taken", len(buckets))
		}
		b := buckets[0]
		b.leave("bucket_weight")
		prompt += fmt.Sprintf("\n    shared: {groups: %s, characters: %s}", whole(b.at("prefix_count").number(m, 1)),
			whole(4*b.at("prefix_tokens").number(m, 1)))
	}
	m.set("prompt", "%s", prompt)
	m.set("outputTokens", "%s", length("the answers' length", "output_tokens"))
	if turns := d.at("turns").number(m, 1); turns > 1 {
		think := ""
		if d.at("delay").given() {
			think = ", thinkTime: " + m.guideLLMDelay(d)
		}
		m.set("conversations", "{turns: %s%s}", whole(turns), think)
	}
}

// guideLLMDelay returns the pause between turns, in seconds.
func (m *maker) guideLLMDelay(d *node) string {
	at := func(name string) float64 { return 1000 * d.at(name).number(m, 0) }
	return m.lengths("the pause between turns", at("delay"), at("delay_stdev"), at("delay_min"), at("delay_max"), 1,
		func(v float64) string { return number(v) + "ms" })
}
