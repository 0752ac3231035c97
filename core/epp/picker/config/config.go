// Package config reads the endpoint picker's configuration: EndpointPickerConfig of llm-d.ai/v1alpha1, of the newer
// llm-d.ai/v1 and of the older inference.networking.x-k8s.io/v1alpha1, and document 003's form with profiles and
// pluginConfig. All become one Config. Begin with Read.
//
// Reading is strict: unknown fields and wrong types are mistakes. Config.Problems keeps them until a picker is built.
// Plug-ins and their parameters are checked then, and all mistakes are reported together.
package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Feature gates that v0.10 knows.
const (
	gateFlowControl = "flowControl"
	gateNonLeader   = "haPopulateNonLeaderDatastore"
)

// API versions of EndpointPickerConfig.
const (
	V1Alpha1    = "llm-d.ai/v1alpha1"
	V1          = "llm-d.ai/v1"
	V1Alpha1Old = "inference.networking.x-k8s.io/v1alpha1" // deprecated
	Kind        = "EndpointPickerConfig"
)

// Plugin declares one plug-in instance. In all types here, At is the place in the file; it is zero without a file.
type Plugin struct {
	At         strictyaml.Value `json:"."`
	Name       string           `json:"name"`
	Type       string           `json:"type"`
	Parameters strictyaml.Value `json:"parameters"`
}

// Ref points at a declared plug-in by name.
type Ref struct {
	At        strictyaml.Value `json:"."`
	PluginRef string           `json:"pluginRef"`
}

// ProfilePlugin is a plug-in's entry in a profile. Weight is for scorers; nil if it was not given.
type ProfilePlugin struct {
	At        strictyaml.Value `json:"."`
	PluginRef string           `json:"pluginRef"`
	Weight    *float64         `json:"weight"`
	// Kind is "filter" or "scorer" in document 003's form, else "".
	Kind string `json:"-"`
}

type Profile struct {
	At      strictyaml.Value `json:"."`
	Name    string           `json:"name"`
	Plugins []ProfilePlugin  `json:"plugins"`
}

// Source is a data source with the extractors that read it.
type Source struct {
	At         strictyaml.Value `json:"."`
	PluginRef  string           `json:"pluginRef"`
	Extractors []Ref            `json:"extractors"`
}

// Discovery names the plug-in that finds the endpoints. v1 nests it.
type Discovery struct {
	At        strictyaml.Value `json:"."`
	PluginRef string           `json:"pluginRef"`
	Endpoints *Ref             `json:"endpoints"`
	Peers     *Ref             `json:"peers"`
}

// CrossReplica is v1's configuration for synchronising several pickers.
type CrossReplica struct {
	SyncerPluginRef string   `json:"syncerPluginRef"`
	SyncInterval    Duration `json:"syncInterval"`
	PublishTimeout  Duration `json:"publishTimeout"`
}

// DataLayer configures where endpoints and their metrics come from.
type DataLayer struct {
	InjectDefaults              *bool         `json:"injectDefaults"`
	Sources                     []Source      `json:"sources"`
	Discovery                   *Discovery    `json:"discovery"`
	CrossReplicaSyncerPluginRef string        `json:"crossReplicaSyncerPluginRef"`
	CrossReplicaSyncInterval    *Duration     `json:"crossReplicaSyncInterval"`
	CrossReplica                *CrossReplica `json:"crossReplica"`
}

// Band is one priority band of flow control. Nil limits mean the default.
type Band struct {
	At                strictyaml.Value `json:"."`
	Priority          int              `json:"priority"`
	MaxBytes          *Quantity        `json:"maxBytes"`
	MaxRequests       *Quantity        `json:"maxRequests"`
	FairnessPolicyRef string           `json:"fairnessPolicyRef"`
	OrderingPolicyRef string           `json:"orderingPolicyRef"`
	// DefaultRequestTTL per band exists only in v1.
	DefaultRequestTTL *Duration `json:"defaultRequestTTL"`
}

// FlowControl configures the queue before scheduling. Except for SaturationDetector, it has an effect only with the
// feature gate flowControl.
type FlowControl struct {
	At                          strictyaml.Value `json:"."`
	MaxBytes                    *Quantity        `json:"maxBytes"`
	MaxRequests                 *Quantity        `json:"maxRequests"`
	DefaultRequestTTL           *Duration        `json:"defaultRequestTTL"`
	NoEndpointRequestTTL        *Duration        `json:"noEndpointRequestTTL"` // v1 only
	DefaultPriorityBand         *Band            `json:"defaultPriorityBand"`
	DefaultNegativePriorityBand *Band            `json:"defaultNegativePriorityBand"`
	PriorityBands               []Band           `json:"priorityBands"`
	UsageLimitPolicyPluginRef   string           `json:"usageLimitPolicyPluginRef"`
	SaturationDetector          *Ref             `json:"saturationDetector"`
	EnableEviction              bool             `json:"enableEviction"`
}

// RequestHandler names the request parsers.
type RequestHandler struct {
	Parsers           []Ref `json:"parsers"`
	PropagatePriority bool  `json:"propagatePriority"` // v1 only
}

// Config is EndpointPickerConfig as it was written.
type Config struct {
	At                 strictyaml.Value `json:"."`
	APIVersion         string           `json:"apiVersion"`
	Kind               string           `json:"kind"`
	FeatureGates       []string         `json:"featureGates"`
	Plugins            []Plugin         `json:"plugins"`
	SchedulingProfiles []Profile        `json:"schedulingProfiles"`
	DataLayer          *DataLayer       `json:"dataLayer"`
	FlowControl        *FlowControl     `json:"flowControl"`
	RequestHandler     *RequestHandler  `json:"requestHandler"`
	SaturationDetector *Ref             `json:"saturationDetector"` // deprecated
	Parser             *Ref             `json:"parser"`             // deprecated

	// FlowControlOn is the feature gate flowControl.
	FlowControlOn bool `json:"-"`
	// Problems are the configuration's mistakes. A Config with problems makes no picker.
	Problems strictyaml.Problems `json:"-"`
	// Warnings are deprecations and settings without effect, for the log.
	Warnings []string `json:"-"`
}

// Read parses a configuration; file is its name in messages. It returns an error if the text is not YAML, or empty: a
// picker without a configuration file uses Default.
func Read(file string, text []byte) (*Config, error) {
	doc, err := strictyaml.Parse(text, strictyaml.Options{File: file, Kubernetes: true})
	if err != nil {
		return nil, err
	}
	root := doc.Root()
	if !root.Given() {
		return nil, strictyaml.Problems{
			root.Problem("the configuration is empty", "an "+Kind, "leave the file out for the default configuration")}
	}
	// the real EPP reads a text with this beginning as JSON
	if start := bytes.TrimLeft(text, " \t\r\n"); start[0] == '{' && !json.Valid(start) {
		return nil, strictyaml.Problems{
			root.Problem("text after {", "JSON as a whole, where a document begins with {", "")}
	}
	c, err := From(root)
	if err == nil {
		c.Warnings = append(c.Warnings, doc.Warnings()...)
	}
	return c, err
}

// From reads a configuration at the place of root in a file.
func From(root strictyaml.Value) (*Config, error) {
	if inner := unwrap(root); inner.Scalar() != "" {
		return Read(root.File(), inner.Excerpt())
	} else if inner.Given() {
		root = inner
	}
	if root.Get("profiles").Given() {
		return readDocument003(root), nil
	}
	c := &Config{}
	if kind := root.Get("kind"); kind.Scalar() == "Scenario" {
		c.refuse(kind, "found a windtunnel scenario", Kind,
			"windtunnel config SCENARIO --picker prints the one of its endpoint picker")
		return c, nil
	}
	c.Problems = root.Decode(c)
	Modernize(c.Problems)
	switch c.APIVersion {
	case "", V1Alpha1, V1:
	case V1Alpha1Old:
		c.Warnings = append(c.Warnings, "apiVersion "+V1Alpha1Old+" is deprecated, use "+V1Alpha1)
	default:
		versions := []string{V1Alpha1, V1, V1Alpha1Old}
		c.refuse(root.Get("apiVersion"), fmt.Sprintf("no kind %q is registered for version %q", c.Kind, c.APIVersion),
			strictyaml.Words(versions), strictyaml.DidYouMean(c.APIVersion, versions))
	}
	if c.Kind != "" && c.Kind != Kind {
		c.refuse(root.Get("kind"), fmt.Sprintf("no kind %q is registered for version %q", c.Kind, c.APIVersion), Kind,
			"")
	}
	if c.APIVersion != V1 {
		c.onlyV1()
	}
	c.gates()
	c.check()
	return c, nil
}

func (c *Config) refuse(at strictyaml.Value, found, expected, hint string) {
	c.Problems = append(c.Problems, at.Problem(found, expected, hint))
}

func (c *Config) warn(at strictyaml.Value, found, expected, hint string) {
	c.Warnings = append(c.Warnings, at.Problem(found, expected, hint).Error())
}

// onlyV1 refuses fields of llm-d.ai/v1 in older versions.
func (c *Config) onlyV1() {
	fields := []string{"requestHandler.propagatePriority", "flowControl.noEndpointRequestTTL", "dataLayer.crossReplica",
		"dataLayer.discovery.endpoints", "dataLayer.discovery.peers"}
	if c.FlowControl != nil {
		for i := range c.FlowControl.PriorityBands {
			fields = append(fields, fmt.Sprintf("flowControl.priorityBands[%d].defaultRequestTTL", i))
		}
	}
	for _, field := range fields {
		if v := c.At.At(field); v.Given() {
			c.refuse(v, "unknown field in "+c.APIVersion, "", "it exists from "+V1+" on")
		}
	}
}

// gates reads "name", "name=true" and "name=false". The last entry of a name wins.
func (c *Config) gates() {
	known := []string{gateFlowControl, gateNonLeader}
	for i, g := range c.FeatureGates {
		at := c.At.At(fmt.Sprintf("featureGates[%d]", i))
		parts := strings.Split(g, "=") // of "name=true=x" the real EPP reads two parts
		name, on := parts[0], true
		if len(parts) > 1 {
			var err error
			if on, err = strconv.ParseBool(strings.ToLower(strings.TrimSpace(parts[1]))); err != nil {
				c.refuse(at, fmt.Sprintf("%s is not a valid value for the feature gate %s", parts[1], name),
					"true or false", "")
			}
		}
		switch name {
		case gateFlowControl:
			c.FlowControlOn = on
		case gateNonLeader:
			c.Warnings = append(c.Warnings, "feature gate "+name+" has no effect here")
		default:
			c.refuse(at, fmt.Sprintf("feature gate '%s' is unknown or unregistered", name), strictyaml.Words(known),
				cmp.Or(formerly[name+" gate"], strictyaml.DidYouMean(name, known)))
		}
	}
}

// check refuses mistakes that do not depend on plug-ins.
func (c *Config) check() {
	first := map[string]strictyaml.Value{}
	once := func(what, name string, at strictyaml.Value) {
		if twice, is := first[what+name]; is {
			c.refuse(at, fmt.Sprintf("%s %q is given twice, first on line %d", what, name, twice.Line()),
				"another one for each", "")
			return
		}
		first[what+name] = at
	}
	for i := range c.Plugins {
		p := &c.Plugins[i]
		if p.Type == "" {
			c.refuse(p.At.Get("type"), "missing", "the plug-in's type, such as queue-scorer", "")
		}
		p.Name = cmp.Or(p.Name, p.Type)
		if p.Name != "" {
			once("plugin name", p.Name, p.At)
		}
	}
	for _, pr := range c.SchedulingProfiles {
		if pr.Name == "" {
			c.refuse(pr.At.Get("name"), "missing", "a name for the profile", "")
		} else {
			once("profile name", pr.Name, pr.At)
		}
		for _, p := range pr.Plugins {
			if p.PluginRef == "" {
				c.refuse(p.At.Get("pluginRef"), "missing", "the name of a plug-in that is declared under plugins", "")
			}
		}
	}
	if c.FlowControl != nil && c.FlowControlOn {
		for _, b := range c.FlowControl.PriorityBands {
			once("priority", strconv.Itoa(b.Priority), b.At)
		}
	}
	if c.FlowControl != nil && !c.FlowControlOn {
		c.Warnings = append(c.Warnings,
			"flowControl is set but the feature gate flowControl is off; only its saturationDetector counts")
	}
	if c.SaturationDetector != nil {
		c.Warnings = append(c.Warnings,
			"top-level saturationDetector is deprecated, use flowControl.saturationDetector; if both are set, that "+
				"counts")
	}
	if c.Parser != nil {
		c.Warnings = append(c.Warnings,
			"top-level parser is deprecated, use requestHandler.parsers; if both are set, that counts")
	}
}

// Plugin returns a declared plug-in by name, nil if there is none.
func (c *Config) Plugin(name string) *Plugin {
	for i := range c.Plugins {
		if c.Plugins[i].Name == name {
			return &c.Plugins[i]
		}
	}
	return nil
}

// Discovery returns the reference to the discovery plug-in, empty if endpoints come from elsewhere.
func (c *Config) Discovery() Ref {
	if c.DataLayer == nil || c.DataLayer.Discovery == nil {
		return Ref{}
	}
	if e := c.DataLayer.Discovery.Endpoints; e != nil {
		return *e
	}
	return Ref{c.DataLayer.Discovery.At, c.DataLayer.Discovery.PluginRef}
}

// Detector returns the reference to the saturation detector, empty for the default.
func (c *Config) Detector() Ref {
	if c.FlowControl != nil && c.FlowControl.SaturationDetector != nil {
		return *c.FlowControl.SaturationDetector
	}
	if c.SaturationDetector != nil {
		return *c.SaturationDetector
	}
	return Ref{}
}

// DefaultText is the configuration of a picker without one: queue 2, KV-cache utilisation 2, prefix cache 3.
const DefaultText = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
`

// Default returns the configuration of DefaultText.
func Default() *Config {
	c, err := Read("the default configuration", []byte(DefaultText))
	if err != nil {
		panic(err) // the text is valid
	}
	return c
}

// Duration is a span of time written as "60s"; "0s" disables a feature.
type Duration = strictyaml.Duration

// Seconds converts a number of seconds, to 0 if it is not between 0 and a billion.
func Seconds(s float64) machine.Time {
	if !(s > 0 && s < 1e9) {
		return 0
	}
	return machine.Time(s * float64(machine.Second))
}
