package imports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// priorityMix reads a profile of llm-d-benchmark's harness of that name: classes of
// traffic with priorities.
func priorityMix(m *maker, n *node) {
	n.leave("endpoint_url", "model")
	api := n.at("api")
	api.leave("path")
	if api.at("type").one(m, "chat", "completion") == "chat" {
		m.set("api", "chat")
	} else {
		m.set("api", "completions")
	}
	load := n.at("load")
	load.leave("fail_on_error")
	m.set("duration", "%s", seconds(load.at("duration_seconds").number(m, 60)))
	m.set("rate", "%s", number(load.at("rate_per_second").number(m, 1)))
	m.set("concurrency", "%s", whole(load.at("max_in_flight").number(m, 1000000)))
	m.set("arrivals", "constant")
	m.set("timeout", "%s", seconds(load.at("request_timeout_seconds").number(m, 120)))
	all := n.at("request")
	m.set("stream", "%t", all.at("stream").text("true") == "true")
	classes := n.at("trafficClasses").items()
	if len(classes) == 0 {
		m.fail(n.at("trafficClasses"), "missing", "a list of classes")
		return
	}
	sum := 0.0
	for _, c := range classes {
		sum += c.at("weight").number(m, 1)
	}
	var list []string
	for _, c := range classes {
		own := c.at("request")
		x := fmt.Sprintf("{name: %q, share: %s%%, maxTokens: %s", c.at("name").text(""), number(100*c.at("weight").number(m, 1)/sum), whole(own.at("max_tokens").number(m, all.at("max_tokens").number(m, 16))))
		for _, f := range []string{"objective", "fairnessID"} {
			if v := c.at(f); v.given() {
				x += fmt.Sprintf(", %s: %q", f, v.text(""))
			}
		}
		if p := c.at("priority"); p.given() {
			m.note("class %s has the priority %s by its objective %s: an InferenceObjective of that name in the pool's epp.objects gives it", c.at("name").text(""), p.text(""), c.at("objective").text(""))
		}
		template, repeat := own.at("promptTemplate").text(all.at("prompt").text("")), own.at("promptRepeat").number(m, 1)
		list = append(list, x+fmt.Sprintf(", prompt: {characters: %s}}", whole(float64(len(template))*repeat)))
	}
	all.leave("prompt", "promptTemplate", "promptRepeat")
	m.set("classes", "\n    - %s", strings.Join(list, "\n    - "))
	m.note("prompts have the lengths of the templates, and other words, all different")
}

func sortedNames(of map[string]any) []string { return slices.Sorted(maps.Keys(of)) }
