package imports

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// guideLLM reads a configuration of GuideLLM: a specification, or the older form, whose fields are arguments of its
// command.
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
	m.api(strings.Contains(format, "chat"))
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
			m.set("requests", "%s", whole(c.first("count", "num").number(m, 1)))
		}
	}
	m.take("duration", s.at("max_seconds"), seconds)
	m.take("requests", s.at("max_requests"), whole)
	if trace {
		m.guideLLMTrace(s.at("profile"), s.at("data"))
	} else {
		m.guideLLMData(s.at("data"))
	}
	m.headers(backend.at("extras").at("headers"))
}

// guideLLMTrace reads the replay of a trace in Mooncake's format.
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
	// The tool reads the trace's milliseconds as seconds.
	if scale := 1000 * profile.at("time_scale").number(m, 1) * d.at("time_scale").number(m, 1); scale > 0 &&
		math.Abs(scale-1) > 1e-9 {
		more += fmt.Sprintf(", speedup: %s", number(1/scale))
		m.note("the configuration's tool reads a trace's times as seconds: a trace with milliseconds needs a " +
			"time_scale of 0.001")
	}
	m.read(d.at("source").at("path"), "mooncake", "the file of a trace", more)
}

// overlay sets the fields of one of several benchmarks in the specification, by paths such as constraints[0].count.
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

// into returns a field of an object, or an entry of a list by its number; "" is the value itself.
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

// guideLLMProfile reads the arrivals of requests.
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
		m.take("concurrency", p.at("max_concurrency"), whole)
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
		return m.lengths(what, d.at(name).number(m, 1), d.at(name+"_stdev").number(m, 0),
			d.at(name+"_min").number(m, 1), d.at(name+"_max").number(m, 0), 1, whole)
	}
	prompt, groups, common := length("the prompts' length", "prompt_tokens"), 0.0, 0.0
	if buckets := d.at("prefix_buckets").items(); len(buckets) > 0 {
		if len(buckets) > 1 {
			m.note("the scenario has the first of %d prefix_buckets", len(buckets))
		}
		b := buckets[0]
		b.leave("bucket_weight")
		groups, common = b.at("prefix_count").number(m, 1), b.at("prefix_tokens").number(m, 1)
	}
	m.prompt(prompt, groups, common)
	m.set("outputTokens", "%s", length("the answers' length", "output_tokens"))
	if turns := d.at("turns").number(m, 1); turns > 1 {
		think := ""
		if d.at("delay").given() {
			at := func(name string) float64 { return 1000 * d.at(name).number(m, 0) }
			think = m.lengths("the pause between turns", at("delay"), at("delay_stdev"), at("delay_min"),
				at("delay_max"), 1, func(v float64) string { return number(v) + "ms" })
		}
		m.conversations(whole(turns), think)
	}
}
