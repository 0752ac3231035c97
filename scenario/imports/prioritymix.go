package imports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// priorityMix reads a profile of llm-d-benchmark's harness priority-mix: classes of traffic with priorities.
func priorityMix(m *maker, n *node) {
	n.leave("endpoint_url", "model")
	api := n.at("api")
	api.leave("path")
	m.api(api.at("type").one(m, "chat", "completion") == "chat")
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
	named := map[string]bool{}
	for _, c := range classes {
		own := c.at("request")
		x := fmt.Sprintf("{name: %q, share: %s%%, maxTokens: %s", c.at("name").text(""),
			number(100*c.at("weight").number(m, 1)/sum),
			whole(own.at("max_tokens").number(m, all.at("max_tokens").number(m, 16))))
		for _, f := range []string{"objective", "fairnessID"} {
			if v := c.at(f); v.given() {
				x += fmt.Sprintf(", %s: %q", f, v.text(""))
			}
		}
		switch p, name := c.at("priority"), c.at("objective").text(""); {
		case p.given() && name == "":
			m.note("class %s has the priority %s and no objective for it: the priority is left out",
				c.at("name").text(""), p.text(""))
		case p.given() && !named[name]:
			named[name] = true
			m.objectives = append(m.objectives, fmt.Sprintf("{name: %q, priority: %s}", name, p.integer(m)))
		}
		template := own.first("promptTemplate",
			"prompt_template").text(all.first("promptTemplate", "prompt_template", "prompt").text(""))
		length := max(1, float64(len(template))*own.first("promptRepeat", "prompt_repeat").number(m, 1))
		// The text before the request's number is the same in the whole class.
		common := length - 1
		for _, number := range []string{"{variation}", "{request_index}"} {
			if i := strings.Index(template, number); i >= 0 {
				common = min(common, float64(i))
			}
		}
		shared := ""
		if common > 0 {
			length, shared = length-common, fmt.Sprintf(", shared: {groups: 1, characters: %s}", whole(common))
		}
		list = append(list, x+fmt.Sprintf(", prompt: {characters: %s%s}}", whole(length), shared))
	}
	all.leave("prompt", "promptTemplate", "promptRepeat")
	m.set("classes", "\n    - %s", strings.Join(list, "\n    - "))
	m.note("prompts have the lengths of the templates, and other words; the prompts of a class share the text before " +
		"the request's number ({variation})")
	if len(m.objectives) > 0 {
		m.note("the pool's objectives set the priorities, like InferenceObjectives: an endpoint picker uses them if " +
			"it queues requests (flowControl among its featureGates) or refuses some")
	}
}

func sortedNames(of map[string]any) []string { return slices.Sorted(maps.Keys(of)) }
