// Package imports makes scenarios of what other load generators are configured
// with: inference-perf, GuideLLM and the priority mix of llm-d-benchmark. What a
// configuration says in another way than a scenario can, and what of it is not
// taken over, is told (Scenario.Notes).
package imports

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/strictyaml"
)

// The formats.
const (
	InferencePerf = "inference-perf" // github.com/kubernetes-sigs/inference-perf, at 7de5ef2
	GuideLLM      = "guidellm"       // github.com/vllm-project/guidellm, at ee7a774
	PriorityMix   = "priority-mix"   // github.com/llm-d/llm-d-benchmark, at 8bc9f1d
)

// Formats are all of them.
func Formats() []string { return []string{InferencePerf, GuideLLM, PriorityMix} }

// Scenario is what was made.
type Scenario struct {
	Text  []byte
	Notes []string // a sentence each
}

// Read makes a scenario of a configuration.
func Read(format string, text []byte) (*Scenario, error) {
	from := map[string]func(*maker, *node){InferencePerf: inferencePerf, GuideLLM: guideLLM, PriorityMix: priorityMix}[format]
	if from == nil {
		return nil, fmt.Errorf("no format %q; expected one of %s", format, strings.Join(Formats(), ", "))
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%w; expected a configuration of %s", err, format)
	}
	m := &maker{}
	root := &node{value: all}
	from(m, root)
	if m.err != nil {
		return nil, m.err
	}
	if left := root.left(); len(left) > 0 {
		m.note("not taken over: %s", strings.Join(left, ", "))
	}
	return m.scenario(format), nil
}

// maker gathers the fields of a scenario.
type maker struct {
	workload []field
	adapters []string
	notes    []string
	err      error
}

// field is a field of workload, its value as YAML.
type field struct{ name, value string }

func (m *maker) set(name, format string, args ...any) {
	m.workload = append(m.workload, field{name, fmt.Sprintf(format, args...)})
}

func (m *maker) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// fail keeps the first mistake.
func (m *maker) fail(n *node, found, expected string) {
	if m.err == nil {
		m.err = fmt.Errorf("%s: %s; expected %s", n.path, found, expected)
	}
}

func (m *maker) scenario(format string) *Scenario {
	var b strings.Builder
	fmt.Fprintf(&b, "# The requests of a configuration of %s.\n", format)
	for _, n := range m.notes {
		fmt.Fprintf(&b, "# - %s\n", n)
	}
	server := "batching: continuous"
	if len(m.adapters) > 0 {
		server += ", loraAdapters: [" + strings.Join(m.adapters, ", ") + "]"
	}
	fmt.Fprintf(&b, "apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n  - {name: default, flow: plain, modelServer: {%s}}\nworkload:\n", server)
	for _, f := range m.workload {
		fmt.Fprintf(&b, "  %s: %s\n", f.name, f.value)
	}
	return &Scenario{Text: []byte(b.String()), Notes: m.notes}
}

// tokens is a distribution of lengths, cut at least and most where they are given.
// What is left of a normal one when much of it lies outside is not normal any
// more, so a lognormal takes its place there: it is never below zero.
func (m *maker) tokens(what string, mean, deviation, least, most float64) string {
	if deviation <= 0 || least == most && least > 0 {
		return whole(mean)
	}
	name := "normal"
	if mean-2*deviation < max(1, least) || most > 0 && mean+2*deviation > most {
		name = "lognormal"
		m.note("%s is a lognormal distribution of the same mean and deviation, of which what is outside its bounds is drawn again: values are cut off at them in the configuration's tool", what)
	}
	out := fmt.Sprintf("%s(%s, %s, min=%s", name, whole(mean), whole(deviation), whole(max(1, least)))
	if most > 0 {
		out += ", max=" + whole(most)
	}
	return strconv.Quote(out + ")")
}

func whole(v float64) string {
	return strconv.FormatFloat(math.Round(math.Max(1, v)), 'f', -1, 64)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func seconds(v float64) string { return number(v) + "s" }

// node is a place in a configuration, which knows what of it was read.
type node struct {
	path  string
	value any
	used  map[string]*node
}

// at is the node of a field; one that is not there has no value.
func (n *node) at(name string) *node {
	if n.used[name] != nil {
		return n.used[name]
	}
	c := &node{path: strings.TrimPrefix(n.path+"."+name, ".")}
	if fields, ok := n.value.(map[string]any); ok {
		c.value = fields[name]
		if c.value != nil {
			if n.used == nil {
				n.used = map[string]*node{}
			}
			n.used[name] = c
		}
	}
	return c
}

func (n *node) given() bool { return n.value != nil }

// items are those of a list; a value that is none is one of its own.
func (n *node) items() []*node {
	list, ok := n.value.([]any)
	if !ok && n.given() {
		list = []any{n.value}
	}
	if n.used == nil {
		n.used = map[string]*node{}
	}
	var out []*node
	for i, v := range list {
		name := fmt.Sprintf("[%d]", i)
		if n.used[name] == nil {
			n.used[name] = &node{path: n.path + name, value: v}
		}
		out = append(out, n.used[name])
	}
	return out
}

// leave marks fields that mean nothing to a simulator.
func (n *node) leave(names ...string) {
	for _, name := range names {
		if c := n.at(name); c.given() {
			c.value = nil
		}
	}
}

// text is a word, or otherwise.
func (n *node) text(otherwise string) string {
	if !n.given() {
		return otherwise
	}
	return fmt.Sprint(n.value)
}

// number is a number, or otherwise.
func (n *node) number(m *maker, otherwise float64) float64 {
	switch v := n.value.(type) {
	case nil:
		return otherwise
	case float64:
		if v < 0 || v > 1e12 {
			m.fail(n, fmt.Sprintf("found %v", v), "a number from 0 on")
		}
		return v
	case int64:
		return float64(v)
	}
	m.fail(n, fmt.Sprintf("found %.80q", fmt.Sprint(n.value)), "a number")
	return otherwise
}

// one is a word of several, or the first of them.
func (n *node) one(m *maker, of ...string) string {
	v := n.text(of[0])
	if !slices.Contains(of, v) {
		expected := "one of " + strings.Join(of, ", ")
		if guess := strictyaml.DidYouMean(v, of); guess != "" {
			expected += "; " + guess
		}
		m.fail(n, fmt.Sprintf("found %.80q", v), expected)
	}
	return v
}

// left are the paths of what nobody has read.
func (n *node) left() []string {
	var out []string
	fields, ok := n.value.(map[string]any)
	if !ok {
		for _, c := range n.used {
			out = append(out, c.left()...)
		}
		slices.Sort(out)
		return out
	}
	for name := range fields {
		switch c := n.used[name]; {
		case c == nil:
			out = append(out, strings.TrimPrefix(n.path+"."+name, "."))
		default:
			out = append(out, c.left()...)
		}
	}
	slices.Sort(out)
	return out
}
