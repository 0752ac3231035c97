// Package imports converts configurations of other load generators to scenarios: inference-perf, GuideLLM, vLLM's
// benchmark, AIPerf and the priority mix of llm-d-benchmark. Notes (Scenario.Notes) report what a scenario cannot
// express in the same way, and what it leaves out. Begin to read at Read.
package imports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// The formats.
const (
	InferencePerf = "inference-perf" // github.com/kubernetes-sigs/inference-perf, at 7de5ef2
	GuideLLM      = "guidellm"       // github.com/vllm-project/guidellm, at ee7a774
	PriorityMix   = "priority-mix"   // github.com/llm-d/llm-d-benchmark, at 8bc9f1d
	VLLMBench     = "vllm-bench"     // github.com/vllm-project/vllm, benchmarks/serve.py at 009e6d4
	AIPerf        = "aiperf"         // github.com/ai-dynamo/aiperf, at db4f639
)

// Formats returns the names of all formats.
func Formats() []string {
	return []string{InferencePerf, GuideLLM, PriorityMix, VLLMBench, AIPerf}
}

// Scenario is the converted configuration.
type Scenario struct {
	Text  []byte
	Notes []string // a sentence each
	// Trace is the file with its requests, relative to the scenario's own directory; "" for generated requests.
	Trace string
}

// Read converts a configuration. If the format's tool plays several loads one after the other, load is the number of
// the load to convert, from 1; 0 is the first one.
func Read(format string, text []byte, load int) (*Scenario, error) {
	from := map[string]func(*maker, *node){InferencePerf: inferencePerf, GuideLLM: guideLLM, PriorityMix: priorityMix,
		VLLMBench: vllmBench, AIPerf: aiPerf}[format]
	if from == nil {
		return nil, fmt.Errorf("no format %q; expected one of %s", format, strings.Join(Formats(), ", "))
	}
	all := map[string]any{}
	arguments := format == VLLMBench || format == AIPerf
	if !arguments || !commandLine(string(text), all) {
		if err := yaml.Unmarshal(text, &all); err != nil {
			return nil, fmt.Errorf("%w; expected a configuration of %s", err, format)
		}
	}
	if arguments {
		all = dashed(all)
	}
	m := &maker{load: load}
	root := &node{value: all}
	from(m, root)
	if m.err != nil {
		return nil, m.err
	}
	if m.load > 1 || m.load < 0 {
		return nil, fmt.Errorf("found load %d, and the configuration has one load; expected 1, or nothing", load)
	}
	if left := root.left(); len(left) > 0 {
		m.note("left out: %s", strings.Join(left, ", "))
	}
	return m.scenario("configuration of " + format), nil
}

// maker collects the fields of a scenario.
type maker struct {
	workload   []field
	adapters   []string
	objectives []string // of the pool, as YAML
	notes      []string
	err        error
	trace      string // the file of the requests
	manifests  string // the file of the pools, "" for one pool
	load       int    // the number of the load to convert; 0 once it is chosen
}

// one returns the index of the load to convert, of several.
func (m *maker) one(n *node, loads int) int {
	asked := m.load
	m.load = 0
	switch {
	case asked > loads || asked < 0:
		m.fail(n, fmt.Sprintf("found load %d, and there are %d", asked, loads), fmt.Sprintf("1 to %d", loads))
		return 0
	case asked == 0 && loads > 1:
		m.note("the scenario has the first of %d consecutive loads: scenario import --load 2 converts the second",
			loads)
	}
	return max(asked, 1) - 1
}

// field is a field of workload with its value as YAML.
type field struct{ name, value string }

func (m *maker) set(name, format string, args ...any) {
	m.workload = append(m.workload, field{name, fmt.Sprintf(format, args...)})
}

// take sets a field to a number of the configuration, if it is given, and reports whether it is.
func (m *maker) take(name string, n *node, write func(float64) string) bool {
	if n.given() {
		m.set(name, "%s", write(n.number(m, 1)))
	}
	return n.given()
}

func (m *maker) api(chat bool) {
	m.set("api", "%s", map[bool]string{true: "chat", false: "completions"}[chat])
}

// charactersPerToken converts the lengths of shared beginnings, which scenarios have in characters.
const charactersPerToken = 4

// prompt sets the prompts: their own tokens behind one of groups shared beginnings of common tokens each.
func (m *maker) prompt(tokens string, groups, common float64) {
	if common <= 0 {
		m.set("prompt", "{tokens: %s}", tokens)
		return
	}
	m.set("prompt", "\n    tokens: %s\n    shared: {groups: %s, characters: %s}", tokens, whole(groups),
		whole(charactersPerToken*common))
}

// conversations sets the number of turns, and the pauses between them if think is not empty.
func (m *maker) conversations(turns, think string) {
	if think != "" {
		think = ", thinkTime: " + think
	}
	m.set("conversations", "{turns: %s%s}", turns, think)
}

// read sets a file of requests. more are further fields of the trace.
func (m *maker) read(file *node, format, whatItIs string, more ...string) {
	if m.trace = file.text(""); m.trace == "" {
		m.fail(file, "missing", whatItIs)
	}
	m.set("trace", "{file: %q, format: %s%s}", m.trace, format, strings.Join(more, ""))
	m.note("the path %s is relative to the scenario's own directory", m.trace)
}

// headers sets the headers of all requests; n is an object with their values.
func (m *maker) headers(n *node) {
	h, _ := n.value.(map[string]any)
	var list []string
	for _, name := range sortedNames(h) {
		list = append(list, fmt.Sprintf("{name: %q, value: %q}", name, n.at(name).text("")))
	}
	switch {
	case list == nil:
	case m.trace != "":
		m.note("the requests of a trace have no headers here")
	default:
		m.set("headers", "[%s]", strings.Join(list, ", "))
	}
}

// goodput sets the objectives of a good request, each by the format's name and by ours.
func (m *maker) goodput(n *node, unit string, names [][2]string) {
	var slo []string
	for _, x := range names {
		if v := n.at(x[0]); v.given() {
			slo = append(slo, fmt.Sprintf("%s: %s%s", x[1], number(v.number(m, 0)), unit))
		}
	}
	if slo != nil {
		m.set("slo", "{%s}", strings.Join(slo, ", "))
	}
}

func (m *maker) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// fail reports a mistake. Only the first one counts.
func (m *maker) fail(n *node, found, expected string) {
	m.err = cmp.Or(m.err, fmt.Errorf("%s: %s; expected %s", n.path, found, expected))
}

func (m *maker) scenario(of string) *Scenario {
	var b strings.Builder
	fmt.Fprintf(&b, "# The requests of a %s.\n", of)
	for _, n := range m.notes {
		fmt.Fprintf(&b, "# - %s\n", n)
	}
	server := "batching: continuous"
	if len(m.adapters) > 0 {
		server += ", loraAdapters: [" + strings.Join(m.adapters, ", ") + "]"
	}
	b.WriteString("apiVersion: windtunnel/v1alpha1\nkind: Scenario\n")
	if m.manifests != "" {
		fmt.Fprintf(&b, "manifests: %q\n", m.manifests)
	} else {
		fmt.Fprintf(&b, "pools:\n  - name: default\n    flow: plain\n    modelServer: {%s}\n", server)
	}
	if len(m.objectives) > 0 {
		fmt.Fprintf(&b, "    epp:\n      objectives:\n        - %s\n", strings.Join(m.objectives, "\n        - "))
	}
	b.WriteString("workload:\n")
	for _, f := range m.workload {
		fmt.Fprintf(&b, "  %s: %s\n", f.name, f.value)
	}
	return &Scenario{Text: []byte(b.String()), Notes: m.notes, Trace: m.trace}
}

// lengths returns a distribution whose values are the given ones times unit, between least and most if these are not 0.
// If much of a normal distribution is outside, a lognormal one replaces it, which is never below zero.
func (m *maker) lengths(what string, mean, deviation, least, most, unit float64, write func(float64) string) string {
	mean, deviation, least, most = mean*unit, deviation*unit, least*unit, most*unit
	if deviation <= 0 || least == most && least > 0 {
		return write(mean)
	}
	name := "normal"
	if mean-2*deviation < max(unit, least) || most > 0 && mean+2*deviation > most {
		name = "lognormal"
		m.note("%s is a lognormal distribution of the same mean and deviation, which draws values outside its bounds "+
			"again: the configuration's tool cuts values off at the bounds", what)
	}
	out := fmt.Sprintf("%s(%s, %s, min=%s", name, write(mean), write(deviation), write(max(unit, least)))
	if most > 0 {
		out += ", max=" + write(most)
	}
	return strconv.Quote(out + ")")
}

func whole(v float64) string {
	return strconv.FormatFloat(math.Round(math.Max(1, v)), 'f', -1, 64)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func seconds(v float64) string { return number(v) + "s" }

// node is a value in a configuration. It records which of its fields were read.
type node struct {
	path  string
	value any
	used  map[string]*node
}

// at returns the node of a field. A missing field has no value.
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

// items returns the items of a list. Any other value is the only item.
func (n *node) items() []*node {
	list, ok := n.value.([]any)
	if !ok && n.given() {
		return []*node{n}
	}
	if n.used == nil {
		n.used = map[string]*node{}
	}
	var out []*node
	for i, v := range list {
		name := fmt.Sprintf("[%d]", i)
		n.used[name] = cmp.Or(n.used[name], &node{path: n.path + name, value: v})
		out = append(out, n.used[name])
	}
	return out
}

// leave marks fields as read that do not matter to a simulator.
func (n *node) leave(names ...string) {
	for _, name := range names {
		if c := n.at(name); c.given() {
			c.value, c.used = nil, nil
		}
	}
}

// text returns the value as text, or otherwise.
func (n *node) text(otherwise string) string {
	if !n.given() {
		return otherwise
	}
	return fmt.Sprint(n.value)
}

// number returns a number, or otherwise.
func (n *node) number(m *maker, otherwise float64) float64 {
	if !n.given() {
		return otherwise
	}
	v, err := strconv.ParseFloat(n.text(""), 64)
	switch {
	case err != nil:
		m.fail(n, fmt.Sprintf("found %.80q", n.text("")), "a number")
		return otherwise
	case !(v >= 0 && v <= 1e12):
		m.fail(n, fmt.Sprintf("found %v", v), "a number from 0 on")
		return otherwise
	}
	return v
}

// integer returns a whole number, which may be negative, as text.
func (n *node) integer(m *maker) string {
	v, err := strconv.ParseInt(n.text("0"), 10, 32)
	if err != nil {
		m.fail(n, fmt.Sprintf("found %.80q", n.text("")), "a whole number")
	}
	return strconv.FormatInt(v, 10)
}

// one returns the value, which must be one of several, or the first of them.
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

// left returns the paths of the fields that were not read.
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
	for name, v := range fields {
		switch c := n.used[name]; {
		case v == nil: // as if it were not there
		case c == nil:
			out = append(out, strings.TrimPrefix(n.path+"."+name, "."))
		default:
			out = append(out, c.left()...)
		}
	}
	slices.Sort(out)
	return out
}
