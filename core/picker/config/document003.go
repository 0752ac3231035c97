package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/picker/strict"
)

// Document 003 writes the picker's configuration as profiles with
// plugins/{filter,score,scrape}/enabled, CamelCase names, and pluginConfig.
// It becomes an ordinary Config with today's plug-ins.

type document003 struct {
	Profiles []struct {
		Name    string `json:"name"`
		Plugins struct {
			Filter struct {
				Enabled []enabledPlugin `json:"enabled"`
			} `json:"filter"`
			Score struct {
				Enabled []enabledPlugin `json:"enabled"`
			} `json:"score"`
			Scrape struct {
				Enabled []enabledScraper `json:"enabled"`
			} `json:"scrape"`
		} `json:"plugins"`
	} `json:"profiles"`
	PluginConfig []struct {
		Name string     `json:"name"`
		Args *yaml.Node `json:"args"`
	} `json:"pluginConfig"`
	// The dataLayer may say where the endpoints come from, since the document
	// only has Kubernetes.
	Plugins   []Plugin   `json:"plugins"`
	DataLayer *DataLayer `json:"dataLayer"`
}

// enabledPlugin is a filter or a scorer. A filter's weight has no effect; the
// document writes 0.
type enabledPlugin struct {
	Name   string     `json:"name"`
	Weight *float64   `json:"weight"`
	Args   *yaml.Node `json:"args"`
}

// enabledScraper is a scraper; its interval may stand beside its args.
type enabledScraper struct {
	Name     string     `json:"name"`
	Interval *yaml.Node `json:"interval"`
	Args     *yaml.Node `json:"args"`
}

// document003Types maps the document's names to types.
var document003Types = map[string]string{
	"DecodeFilter": "decode-filter", "PrefillFilter": "prefill-filter", "ByLabelSelector": "by-label-selector", "ReadyFilter": "ready-filter",
	"PrecisePrefixCacheScorer": "threshold-prefix-scorer", "PrefixCacheScorer": "prefix-cache-scorer", "LoadAwareScorer": "weighted-load-scorer",
	"ActiveRequestScorer": "active-request-scorer", "SessionAffinity": "session-sticky-scorer", "SessionAffinityScorer": "session-sticky-scorer",
	"KVCacheManagerScorer": "kv-cache-manager-scorer", "VLLMMetricScraper": "vllm-metric-scraper",
	"KVCacheMetricScraper": "kv-cache-metric-scraper", "GenericPrometheusScraper": "generic-prometheus-scraper",
}

// isDocument003 tells the document's form from EndpointPickerConfig, also
// inside the ConfigMap that the document wraps it in.
func isDocument003(root *yaml.Node) bool { return lookup(root, "profiles") != nil }

// unwrap takes config.yaml out of a ConfigMap.
func unwrap(root *yaml.Node) *yaml.Node {
	if k := lookup(root, "kind"); k == nil || k.Value != "ConfigMap" {
		return nil
	}
	data := lookup(root, "data")
	if data == nil || data.Kind != yaml.MappingNode || len(data.Content) < 2 {
		return nil
	}
	if c := lookup(data, "config.yaml"); c != nil {
		return c
	}
	return data.Content[1]
}

func readDocument003(root *yaml.Node) (*Config, error) {
	var d document003
	if err := strict.Decode(root, "", &d); err != nil {
		return nil, err
	}
	if len(d.Profiles) == 0 {
		return nil, strict.At(root, "profiles", "there are no profiles")
	}
	c := &Config{APIVersion: V1Alpha1, Kind: Kind, Plugins: d.Plugins, DataLayer: d.DataLayer,
		Warnings: []string{"the configuration has the form of document 003; it is read as an EndpointPickerConfig"}}
	args, from := map[string]*yaml.Node{}, map[string]string{}
	for i, p := range d.PluginConfig {
		field := fmt.Sprintf("pluginConfig[%d]", i)
		at := find(root, "pluginConfig", i)
		if p.Name == "" {
			return nil, strict.At(at, field, "is missing a name")
		}
		if from[p.Name] != "" {
			return nil, strict.At(at, field, "%s is configured twice, here and in %s", p.Name, from[p.Name])
		}
		args[p.Name], from[p.Name] = p.Args, field
	}
	used := map[string]bool{}
	declare := func(name string, own, interval *yaml.Node, i int, point string, j int) error {
		at := find(root, "profiles", i, "plugins", point, "enabled", j)
		field := fmt.Sprintf("profiles[%d].plugins.%s.enabled[%d]", i, point, j)
		if name == "" {
			return strict.At(at, field, "is missing a name")
		}
		typ := document003Types[name]
		if typ == "" {
			typ = kebab(name)
		}
		parameters := merge(args[name], own)
		if interval != nil {
			parameters = merge(parameters, mapping("interval", interval))
		}
		used[name] = true
		if p := c.Plugin(name); p != nil {
			if own != nil {
				return strict.At(own, field, "%s is enabled before with other args; one plug-in has one set of args, put them under pluginConfig", name)
			}
			return nil
		}
		pl := Plugin{Name: name, Type: typ, Parameters: parameters, Line: at.Line, Field: field + ".args"}
		if own == nil && from[name] != "" {
			pl.Field = from[name] + ".args"
		}
		c.Plugins = append(c.Plugins, pl)
		return nil
	}
	for i, p := range d.Profiles {
		if p.Name == "" {
			return nil, strict.At(find(root, "profiles", i), fmt.Sprintf("profiles[%d]", i), "is missing a name")
		}
		decode := Profile{Name: p.Name}
		var roles [2]bool // decode, prefill
		var rest []ProfilePlugin
		for j, f := range p.Plugins.Filter.Enabled {
			if err := declare(f.Name, f.Args, nil, i, "filter", j); err != nil {
				return nil, err
			}
			if f.Weight != nil && *f.Weight != 0 {
				c.Warnings = append(c.Warnings, fmt.Sprintf("profiles[%d].plugins.filter.enabled[%d]: the weight of filter %s has no effect", i, j, f.Name))
			}
			switch f.Name {
			case "DecodeFilter":
				roles[0] = true
			case "PrefillFilter":
				roles[1] = true
			default:
				rest = append(rest, ProfilePlugin{PluginRef: f.Name})
			}
		}
		for j, s := range p.Plugins.Score.Enabled {
			if err := declare(s.Name, s.Args, nil, i, "score", j); err != nil {
				return nil, err
			}
			rest = append(rest, ProfilePlugin{PluginRef: s.Name, Weight: s.Weight})
		}
		for j, s := range p.Plugins.Scrape.Enabled {
			if err := declare(s.Name, s.Args, s.Interval, i, "scrape", j); err != nil {
				return nil, err
			}
			if c.DataLayer == nil {
				c.DataLayer = &DataLayer{}
			}
			c.DataLayer.InjectDefaults = new(bool) // these scrapers, and no others
			c.DataLayer.Sources = append(c.DataLayer.Sources, Source{PluginRef: s.Name, Extractors: []Ref{{s.Name}}})
		}
		switch {
		case roles[0] && roles[1]:
			if len(d.Profiles) > 1 {
				return nil, strict.At(find(root, "profiles", i), fmt.Sprintf("profiles[%d]", i),
					"enables DecodeFilter and PrefillFilter, which makes a decode and a prefill profile of it; it must be the only one")
			}
			// Both filters in a row would leave only endpoints with both
			// roles; what is meant is one profile for each, and the handler
			// with the document's threshold of ten new tokens.
			decode.Name = "decode"
			decode.Plugins = append([]ProfilePlugin{{PluginRef: "DecodeFilter"}}, rest...)
			prefill := Profile{Name: "prefill", Plugins: append([]ProfilePlugin{{PluginRef: "PrefillFilter"}}, rest...)}
			c.SchedulingProfiles = append(c.SchedulingProfiles, decode, prefill)
			c.Plugins = append(c.Plugins, Plugin{Name: "new-token-pd-decider", Type: "new-token-pd-decider"},
				Plugin{Name: "disagg-profile-handler", Type: "disagg-profile-handler", Parameters: mapping("deciders", mapping("prefill", scalar("new-token-pd-decider")))})
		case roles[0]:
			decode.Plugins = append([]ProfilePlugin{{PluginRef: "DecodeFilter"}}, rest...)
			c.SchedulingProfiles = append(c.SchedulingProfiles, decode)
		case roles[1]:
			decode.Plugins = append([]ProfilePlugin{{PluginRef: "PrefillFilter"}}, rest...)
			c.SchedulingProfiles = append(c.SchedulingProfiles, decode)
		default:
			decode.Plugins = rest
			c.SchedulingProfiles = append(c.SchedulingProfiles, decode)
		}
	}
	for i, p := range d.PluginConfig {
		if !used[p.Name] {
			return nil, strict.At(find(root, "pluginConfig", i), fmt.Sprintf("pluginConfig[%d]", i), "%s is configured but no profile enables it", p.Name)
		}
	}
	return c, c.check()
}

// find is the node at a path of keys and indexes, or the last one on the way
// that exists.
func find(n *yaml.Node, path ...any) *yaml.Node {
	for _, step := range path {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		switch step := step.(type) {
		case string:
			v := lookup(n, step)
			if v == nil {
				return n
			}
			n = v
		case int:
			if n.Kind != yaml.SequenceNode || step >= len(n.Content) {
				return n
			}
			n = n.Content[step]
		}
	}
	return n
}

// kebab turns QueueScorer into queue-scorer, for types that the document does
// not name.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('-')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func scalar(v string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v} }

func mapping(key string, v *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: v.Line, Content: []*yaml.Node{scalar(key), v}}
}

// merge joins two mappings; the second's keys win.
func merge(a, b *yaml.Node) *yaml.Node {
	if a == nil || b == nil || a.Kind != yaml.MappingNode || b.Kind != yaml.MappingNode {
		if b != nil {
			return b
		}
		return a
	}
	out := *a
	out.Content = append([]*yaml.Node(nil), a.Content...)
next:
	for i := 0; i+1 < len(b.Content); i += 2 {
		for j := 0; j+1 < len(out.Content); j += 2 {
			if out.Content[j].Value == b.Content[i].Value {
				out.Content[j+1] = b.Content[i+1]
				continue next
			}
		}
		out.Content = append(out.Content, b.Content[i], b.Content[i+1])
	}
	return &out
}
