package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// PickerReplicas returns how many endpoint pickers a pool has, and among how many Envoy may choose. With leader
// election one leads, and the others wait.
func (s *Set) PickerReplicas(b *Backend) (all, asked int) {
	w, c := s.PickerOf(b)
	switch {
	case c == nil && b.Supplied:
		return 1, 1
	case c == nil:
		return 0, 0
	}
	if v, given := c.Flag("ha-enable-leader-election"); given && v != "false" {
		return w.Replicas, min(w.Replicas, 1)
	}
	return w.Replicas, w.Replicas
}

// PickerConfig returns the EndpointPickerConfig of a pool and its place; nil is the default one. It takes the
// configuration of the Deployment behind the pool's Service. Without one it takes that in a ConfigMap beside the pool,
// and otherwise one made from the pool's routingPolicy. The note says what PickerConfig assumed, or is "".
func (s *Set) PickerConfig(b *Backend) (text []byte, from, note string, err error) {
	p := b.Pool
	near := []string{p.Namespace}
	if b.Picker != nil {
		near = append(near, b.Picker.Namespace)
	}
	if w, c := s.PickerOf(b); c != nil {
		if text, from, err = pickerFlags(s, w, c); err != nil || text != nil {
			return text, from, besides(p, from), err
		}
		if c.Lightweight() {
			return []byte(lightweight), w.Where(c), "", nil
		}
	}
	type found struct{ text, from string }
	var all []found
	for i := range s.ConfigMaps {
		m := &s.ConfigMaps[i]
		for _, name := range slices.Sorted(maps.Keys(m.Data)) {
			if slices.Contains(near, m.Namespace) && isPickerConfig(m.Data[name]) {
				all = append(all, found{m.Data[name],
					fmt.Sprintf("%s:%d: ConfigMap %s/%s: %s", m.File, m.Line, m.Namespace, m.Name, name)})
			}
		}
	}
	switch len(all) {
	case 0:
		if !p.KServe.Routing() {
			return nil, "", "", nil
		}
		from = fmt.Sprintf("%s:%d: InferencePool %s/%s: routingPolicy", p.File, p.Line, p.Namespace, p.Name)
		return routed(p.KServe), from, from + " is its endpoint picker's configuration", nil
	case 1:
		note := fmt.Sprintf("%s is the configuration of InferencePool %s/%s: no other is near it", all[0].from,
			p.Namespace, p.Name)
		if more := besides(p, all[0].from); more != "" {
			note += "; " + more
		}
		return []byte(all[0].text), all[0].from, note, nil
	}
	return nil, "", fmt.Sprintf(
		"%s:%d: InferencePool %s/%s: %d ConfigMaps hold an EndpointPickerConfig and none is mounted by the picker's "+
			"Deployment; the default one counts", p.File, p.Line, p.Namespace, p.Name, len(all)), nil
}

// lightweight configures a picker that decides like the one of the Gateway API Inference Extension, which has no
// configuration.
const lightweight = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: header-based-testing-filter, parameters: {optional: true}}
- {type: destination-endpoint-served-verifier}
- {type: round-robin-picker}
- {type: passthrough-parser}
requestHandler: {parsers: [{pluginRef: passthrough-parser}]}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: header-based-testing-filter}, {pluginRef: round-robin-picker}]}
`

// Where returns the place of one of its containers, for messages.
func (w *Workload) Where(c *Container) string {
	return fmt.Sprintf("%s:%d: %s %s/%s: container %s", w.File, c.At.Line(), w.Kind, w.Namespace, w.Name, c.Name)
}

// besides returns the note that a pool's routingPolicy has no effect beside a configuration.
func besides(p *objects.Pool, from string) string {
	if !p.KServe.Routing() {
		return ""
	}
	return fmt.Sprintf("%s:%d: InferencePool %s/%s: routingPolicy: no effect here, the EndpointPickerConfig says it "+
		"(%s)", p.File, p.Line, p.Namespace, p.Name, from)
}

// routed returns the EndpointPickerConfig for document 003's routingPolicy. Its weights are those of dynamic-routing's
// score. For a disaggregated pool it has a profile for each role.
func routed(k *objects.KServe) []byte {
	picker := objects.Pickers[k.Algorithm]
	picker = cmp.Or(picker, "max-score-picker")
	weights := ""
	if len(k.Weights) > 0 {
		weights = fmt.Sprintf(", parameters: {weights: {cacheHit: %v, load: %v, latency: %v}}", k.Weights["cache_hit"],
			k.Weights["load"], k.Weights["latency"])
	}
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: approx-prefix-cache-producer, parameters: {autoTune: false, blockSizeTokens: 16, lruCapacityPerServer: 31250}}
- {type: vllm-metric-scraper}
- {type: dynamic-routing%s}
- {type: %s}
`, weights, picker)
	scorer := "  - {pluginRef: dynamic-routing, weight: 1}\n"
	if picker == objects.Pickers["round_robin"] { // round robin over the best: over all, without a score
		scorer = ""
	}
	profile := func(name, filter string) {
		fmt.Fprintf(&b, "- name: %s\n  plugins:\n%s%s  - {pluginRef: %s}\n", name, filter, scorer, picker)
	}
	if !k.Disaggregation.Enabled {
		b.WriteString("schedulingProfiles:\n")
		profile(cmp.Or(k.SchedulerProfile, "default"), "")
		return []byte(b.String())
	}
	b.WriteString(`- {type: prefill-filter}
- {type: decode-filter}
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 10}}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
schedulingProfiles:
`)
	profile("prefill", "  - {pluginRef: prefill-filter}\n")
	profile("decode", "  - {pluginRef: decode-filter}\n")
	return []byte(b.String())
}

// isPickerConfig reports whether a text is an EndpointPickerConfig, in today's form or document 003's.
func isPickerConfig(text string) bool {
	return strings.Contains(text, "kind: EndpointPickerConfig") ||
		strings.HasPrefix(strings.TrimSpace(text), "profiles:") && strings.Contains(text, "plugins:")
}

// pickerFlags returns the configuration in the flags of a picker's container.
func pickerFlags(s *Set, w *Workload, c *Container) ([]byte, string, error) {
	if text, ok := c.Flag("config-text"); ok {
		return []byte(text), w.Where(c) + ": --config-text", nil
	}
	path, ok := c.Flag("config-file")
	if !ok {
		return nil, "", nil
	}
	text, from, found := s.Mounted(w, c, path)
	if !found {
		return nil, "", fmt.Errorf(
			"%s: --config-file %s is in no ConfigMap that is mounted; expected a volume with a ConfigMap among the "+
				"objects", w.Where(c), path)
	}
	return []byte(text), from, nil
}
