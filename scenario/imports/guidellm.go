package imports

import (
	"fmt"
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
	backend := s.at("backend")
	backend.leave("kind", "target", "model")
	format := backend.at("request_format").text(n.at("data_request_formatter").text("chat_completions"))
	if strings.Contains(format, "chat") {
		m.set("api", "chat")
	} else {
		m.set("api", "completions")
	}
	m.set("stream", "true")
	m.guideLLMProfile(s, n.at("benchmarks").items())
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
	m.guideLLMData(s.at("data"))
}

// guideLLMProfile reads how requests come. Of several loads, which the tool plays
// one after the other, the first is taken.
func (m *maker) guideLLMProfile(s *node, benchmarks []*node) {
	p := s.at("profile")
	kind, rate, streams := p.at("kind"), p.at("rate"), p.at("streams")
	if _, older := p.value.(string); older {
		kind, rate, streams = p, s.at("rate"), s.at("rate")
	}
	first := func(n *node, name string) float64 {
		loads := n.items()
		for _, b := range benchmarks {
			if l := b.at("profile." + name); l.given() {
				loads = append(loads, l)
			}
		}
		if len(loads) > 1 {
			m.note("of %d loads that are played one after the other the first is taken: windtunnel sweep --set workload.%s=… plays the others", len(loads), map[string]string{"rate": "rate", "streams": "concurrency"}[name])
		}
		if len(loads) == 0 {
			m.fail(n, "missing", "a number")
			return 1
		}
		return loads[0].number(m, 1)
	}
	switch k := kind.one(m, "poisson", "constant", "async", "concurrent", "synchronous", "throughput"); k {
	case "poisson", "constant", "async":
		m.set("rate", "%s", number(first(rate, "rate")))
		if k != "poisson" {
			m.set("arrivals", "constant")
		}
		if c := p.at("max_concurrency"); c.given() {
			m.set("concurrency", "%s", whole(c.number(m, 1)))
		}
	case "concurrent":
		m.set("concurrency", "%s", whole(first(streams, "streams")))
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
		return m.tokens(what, d.at(name).number(m, 1), d.at(name+"_stdev").number(m, 0), d.at(name+"_min").number(m, 1), d.at(name+"_max").number(m, 0))
	}
	prompt := "\n    tokens: " + length("the prompts' length", "prompt_tokens")
	if buckets := d.at("prefix_buckets").items(); len(buckets) > 0 {
		if len(buckets) > 1 {
			m.note("of %d prefix_buckets the first is taken", len(buckets))
		}
		b := buckets[0]
		b.leave("bucket_weight")
		prompt += fmt.Sprintf("\n    shared: {groups: %s, characters: %s}", whole(b.at("prefix_count").number(m, 1)), whole(4*b.at("prefix_tokens").number(m, 1)))
	}
	m.set("prompt", "%s", prompt)
	m.set("outputTokens", "%s", length("the answers' length", "output_tokens"))
	if turns := d.at("turns").number(m, 1); turns > 1 {
		think := ""
		if delay := d.at("delay"); delay.given() {
			think = ", thinkTime: " + seconds(delay.number(m, 0))
		}
		m.set("conversations", "{turns: %s%s}", whole(turns), think)
	}
}
