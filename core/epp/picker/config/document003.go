package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Document 003 (docs/documents.md) writes the picker's configuration as profiles with
// plugins/{filter,score,scrape}/enabled, CamelCase names, and pluginConfig. It becomes an ordinary Config with today's
// plug-ins.

type document003 struct {
	Profiles []struct {
		At      strictyaml.Value `json:"."`
		Name    string           `json:"name"`
		Plugins struct {
			Filter struct {
				Enabled []enabledPlugin `json:"enabled"`
			} `json:"filter"`
			Score struct {
				Enabled []enabledPlugin `json:"enabled"`
			} `json:"score"`
			Scrape struct {
				Enabled []enabledPlugin `json:"enabled"`
			} `json:"scrape"`
		} `json:"plugins"`
	} `json:"profiles"`
	PluginConfig []enabledPlugin `json:"pluginConfig"`
	// The dataLayer may configure the source of endpoints, since the document only has Kubernetes.
	Plugins   []Plugin   `json:"plugins"`
	DataLayer *DataLayer `json:"dataLayer"`
}

// enabledPlugin is a filter, a scorer or a scraper. A scraper's interval may be beside its args. A filter's weight has
// no effect; the document writes 0.
type enabledPlugin struct {
	At       strictyaml.Value `json:"."`
	Name     string           `json:"name"`
	Weight   *float64         `json:"weight"`
	Interval strictyaml.Value `json:"interval"`
	Args     strictyaml.Value `json:"args"`
}

// document003Types maps the document's names to types.
var document003Types = map[string]string{
	"DecodeFilter": "decode-filter", "PrefillFilter": "prefill-filter", "ByLabelSelector": "by-label-selector",
	"ReadyFilter":              "ready-filter",
	"PrecisePrefixCacheScorer": "threshold-prefix-scorer", "PrefixCacheScorer": "prefix-cache-scorer",
	"LoadAwareScorer":     "weighted-load-scorer",
	"ActiveRequestScorer": "active-request-scorer", "SessionAffinity": "session-sticky-scorer",
	"SessionAffinityScorer": "session-sticky-scorer",
	"KVCacheManagerScorer":  "kv-cache-manager-scorer", "VLLMMetricScraper": "vllm-metric-scraper",
	"KVCacheMetricScraper": "kv-cache-metric-scraper", "GenericPrometheusScraper": "generic-prometheus-scraper",
}

// unwrap returns config.yaml from the ConfigMap in which the document puts it.
func unwrap(root strictyaml.Value) strictyaml.Value {
	if root.Get("kind").Scalar() != "ConfigMap" {
		return strictyaml.Value{}
	}
	data := root.Get("data")
	if c := data.Get("config.yaml"); c.Given() || !data.IsMapping() {
		return c
	}
	for _, p := range data.Pairs() {
		return p.Value
	}
	return strictyaml.Value{}
}

// converter makes a Config from document 003's form.
type converter struct {
	*Config
	configured map[string]enabledPlugin // pluginConfig by name
	used       map[string]bool
}

func readDocument003(root strictyaml.Value) *Config {
	var d document003
	c := converter{&Config{At: root, APIVersion: V1Alpha1, Kind: Kind}, map[string]enabledPlugin{}, map[string]bool{}}
	c.Problems = root.Decode(&d)
	c.Plugins, c.DataLayer = d.Plugins, d.DataLayer
	c.Warnings = []string{"the configuration has the form of document 003; it is read as an EndpointPickerConfig"}
	if len(d.Profiles) == 0 {
		c.refuse(root.Get("profiles"), "there are none", "a list of profiles", "")
	}
	for _, p := range d.PluginConfig {
		first, twice := c.configured[p.Name]
		switch {
		case p.Name == "":
			c.refuse(p.At.Get("name"), "missing", "the plug-in's name", "")
		case twice:
			c.refuse(p.At, fmt.Sprintf("%s is configured twice, first on line %d", p.Name, first.At.Line()),
				"each plug-in once", "")
		default:
			c.configured[p.Name] = p
		}
	}
	for _, p := range d.Profiles {
		profile := Profile{At: p.At, Name: p.Name}
		roles := map[string]*ProfilePlugin{} // the two filters that give a profile its role
		for _, f := range p.Plugins.Filter.Enabled {
			if !c.declare(&f) {
				continue
			}
			if f.Weight != nil && *f.Weight != 0 {
				c.warn(f.At.Get("weight"), fmt.Sprintf("the weight of filter %s has no effect", f.Name), "", "")
			}
			ref := ProfilePlugin{At: f.At, PluginRef: f.Name, Kind: "filter"}
			if f.Name == "DecodeFilter" || f.Name == "PrefillFilter" {
				roles[f.Name] = &ref
			} else {
				profile.Plugins = append(profile.Plugins, ref)
			}
		}
		for _, s := range p.Plugins.Score.Enabled {
			if c.declare(&s) {
				profile.Plugins = append(profile.Plugins,
					ProfilePlugin{At: s.At, PluginRef: s.Name, Weight: s.Weight, Kind: "scorer"})
			}
		}
		for _, s := range p.Plugins.Scrape.Enabled {
			if !c.declare(&s) {
				continue
			}
			c.DataLayer = cmp.Or(c.DataLayer, &DataLayer{})
			c.DataLayer.InjectDefaults = new(bool) // only these scrapers
			c.DataLayer.Sources = append(c.DataLayer.Sources,
				Source{At: s.At, PluginRef: s.Name, Extractors: []Ref{{s.At, s.Name}}})
		}
		c.add(profile, roles["DecodeFilter"], roles["PrefillFilter"], len(d.Profiles))
	}
	for _, p := range d.PluginConfig {
		if p.Name != "" && !c.used[p.Name] {
			c.refuse(p.At, p.Name+" is configured but no profile enables it", "",
				strictyaml.DidYouMean(p.Name, slices.Collect(maps.Keys(c.used))))
		}
	}
	c.check()
	return c.Config
}

// declare declares a named plug-in that a profile enables. Its own args take precedence over those in pluginConfig.
func (c converter) declare(e *enabledPlugin) bool {
	if e.Name == "" {
		c.refuse(e.At.Get("name"), "missing", "the plug-in's name", "")
		return false
	}
	c.used[e.Name] = true
	if c.Plugin(e.Name) != nil {
		if e.Args.Given() {
			c.refuse(e.Args, e.Name+" is enabled before with other args", "one set of args for each plug-in",
				"put them under pluginConfig")
		}
		return true
	}
	typ := cmp.Or(document003Types[e.Name], kebab(e.Name))
	args := e.Args
	switch shared := c.configured[e.Name].Args; {
	case !shared.Given():
	case !args.Given():
		args = shared
	default:
		args = shared.Named(args.Path()).With(args.Pairs()...)
	}
	if e.Interval.Given() {
		if !args.Given() {
			args = e.At.Get("args")
		}
		args = args.With(strictyaml.Pair{Name: "interval", Key: e.Interval, Value: e.Interval})
	}
	c.Plugins = append(c.Plugins, Plugin{At: e.At, Name: e.Name, Type: typ, Parameters: args})
	return true
}

// add adds a profile. Both role filters in a row would leave only endpoints with both roles; the document means one
// profile for each, and the handler with its threshold of ten new tokens.
func (c converter) add(p Profile, decode, prefill *ProfilePlugin, profiles int) {
	with := func(name string, first *ProfilePlugin) {
		c.SchedulingProfiles = append(c.SchedulingProfiles,
			Profile{p.At, name, append([]ProfilePlugin{*first}, p.Plugins...)})
	}
	switch {
	case decode != nil && prefill != nil && profiles > 1:
		c.refuse(p.At, "enables DecodeFilter and PrefillFilter, which makes a decode and a prefill profile of it",
			"no profile beside it", "")
	case decode != nil && prefill != nil:
		with("decode", decode)
		with("prefill", prefill)
		decider := strictyaml.Text("new-token-pd-decider")
		c.Plugins = append(c.Plugins, Plugin{Name: "new-token-pd-decider", Type: "new-token-pd-decider"},
			Plugin{Name: "disagg-profile-handler", Type: "disagg-profile-handler", Parameters: strictyaml.Value{}.With(
				strictyaml.Pair{Name: "deciders",
					Value: strictyaml.Value{}.With(strictyaml.Pair{Name: "prefill", Value: decider})})})
	case decode != nil:
		with(p.Name, decode)
	case prefill != nil:
		with(p.Name, prefill)
	default:
		c.SchedulingProfiles = append(c.SchedulingProfiles, p)
	}
}

// kebab turns QueueScorer into queue-scorer, for types that the document does not name.
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
