// Package config reads the endpoint picker's configuration:
// EndpointPickerConfig of llm-d.ai/v1alpha1, of the newer llm-d.ai/v1 and of
// the older inference.networking.x-k8s.io/v1alpha1, and document 003's form
// with profiles and pluginConfig. All become one Config.
//
// Reading is strict: what is unknown or of the wrong type is an error with its
// line and field. Names of plug-ins are not checked here but when a picker is
// built, since a program may add its own types.
package config

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/strict"
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

// Plugin declares one plug-in instance.
type Plugin struct {
	Name       string     `json:"name"`
	Type       string     `json:"type"`
	Parameters *yaml.Node `json:"parameters"`
	Line       int        `json:"-"`
	// Field is where the parameters stand, for errors; "" is the usual place.
	Field string `json:"-"`
}

// Ref points at a declared plug-in by name.
type Ref struct {
	PluginRef string `json:"pluginRef"`
}

// ProfilePlugin is a plug-in's place in a profile. Weight counts for scorers
// and is nil when it was not given.
type ProfilePlugin struct {
	PluginRef string   `json:"pluginRef"`
	Weight    *float64 `json:"weight"`
}

// Profile is one scheduling profile.
type Profile struct {
	Name    string          `json:"name"`
	Plugins []ProfilePlugin `json:"plugins"`
}

// Source is a data source with the extractors that read it.
type Source struct {
	PluginRef  string `json:"pluginRef"`
	Extractors []Ref  `json:"extractors"`
}

// Discovery names the plug-in that finds the endpoints. v1 nests it.
type Discovery struct {
	PluginRef string `json:"pluginRef"`
	Endpoints *Ref   `json:"endpoints"`
	Peers     *Ref   `json:"peers"`
}

// CrossReplica is v1's way to synchronise several pickers.
type CrossReplica struct {
	SyncerPluginRef string   `json:"syncerPluginRef"`
	SyncInterval    Duration `json:"syncInterval"`
	PublishTimeout  Duration `json:"publishTimeout"`
}

// DataLayer says where endpoints and their figures come from.
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
	Priority          int       `json:"priority"`
	MaxBytes          *Quantity `json:"maxBytes"`
	MaxRequests       *Quantity `json:"maxRequests"`
	FairnessPolicyRef string    `json:"fairnessPolicyRef"`
	OrderingPolicyRef string    `json:"orderingPolicyRef"`
	// DefaultRequestTTL per band is v1 only.
	DefaultRequestTTL *Duration `json:"defaultRequestTTL"`
}

// FlowControl configures the queue in front of scheduling. It acts only with
// the feature gate flowControl, except for SaturationDetector.
type FlowControl struct {
	MaxBytes                    *Quantity `json:"maxBytes"`
	MaxRequests                 *Quantity `json:"maxRequests"`
	DefaultRequestTTL           *Duration `json:"defaultRequestTTL"`
	NoEndpointRequestTTL        *Duration `json:"noEndpointRequestTTL"` // v1 only
	DefaultPriorityBand         *Band     `json:"defaultPriorityBand"`
	DefaultNegativePriorityBand *Band     `json:"defaultNegativePriorityBand"`
	PriorityBands               []Band    `json:"priorityBands"`
	UsageLimitPolicyPluginRef   string    `json:"usageLimitPolicyPluginRef"`
	SaturationDetector          *Ref      `json:"saturationDetector"`
	EnableEviction              bool      `json:"enableEviction"`
}

// RequestHandler names the request parsers.
type RequestHandler struct {
	Parsers           []Ref `json:"parsers"`
	PropagatePriority bool  `json:"propagatePriority"` // v1 only
}

// Config is EndpointPickerConfig as it was written; Defaulted completes it.
type Config struct {
	APIVersion         string          `json:"apiVersion"`
	Kind               string          `json:"kind"`
	FeatureGates       []string        `json:"featureGates"`
	Plugins            []Plugin        `json:"plugins"`
	SchedulingProfiles []Profile       `json:"schedulingProfiles"`
	DataLayer          *DataLayer      `json:"dataLayer"`
	FlowControl        *FlowControl    `json:"flowControl"`
	RequestHandler     *RequestHandler `json:"requestHandler"`
	SaturationDetector *Ref            `json:"saturationDetector"` // deprecated
	Parser             *Ref            `json:"parser"`             // deprecated

	// FlowControlOn is the feature gate flowControl.
	FlowControlOn bool `json:"-"`
	// Warnings are deprecations and settings without effect, for the log.
	Warnings []string `json:"-"`
}

// Read parses a configuration. An empty document is an error here; a picker
// without a configuration file uses Default.
func Read(data []byte) (*Config, error) {
	root, err := strict.Parse(data)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, &strict.Error{Msg: "the configuration is empty; expected an " + Kind + " (leave the file out for the default configuration)"}
	}
	if inner := unwrap(root); inner != nil {
		if inner.Kind == yaml.ScalarNode {
			return Read(inPlace(inner))
		}
		root = inner
	}
	if root.Kind == yaml.MappingNode && isDocument003(root) {
		return readDocument003(root)
	}
	var c Config
	if err := strict.Decode(root, "", &c); err != nil {
		return nil, err
	}
	version := lookup(root, "apiVersion")
	switch c.APIVersion {
	case "", V1Alpha1, V1:
	case V1Alpha1Old:
		c.Warnings = append(c.Warnings, "apiVersion "+V1Alpha1Old+" is deprecated, use "+V1Alpha1)
	default:
		return nil, strict.At(version, "apiVersion", "no kind %q is registered for version %q; expected %s, %s or %s",
			c.Kind, c.APIVersion, V1Alpha1, V1, V1Alpha1Old)
	}
	if c.Kind != "" && c.Kind != Kind {
		return nil, strict.At(lookup(root, "kind"), "kind", "no kind %q is registered for version %q; expected %s", c.Kind, c.APIVersion, Kind)
	}
	if c.APIVersion != V1 {
		if err := c.onlyV1(root); err != nil {
			return nil, err
		}
	}
	if nodes := lookup(root, "plugins"); nodes != nil && nodes.Kind == yaml.SequenceNode {
		for i := range c.Plugins {
			c.Plugins[i].Line = nodes.Content[i].Line
		}
	}
	if err := c.gates(root); err != nil {
		return nil, err
	}
	return &c, c.check()
}

// inPlace is the text of a scalar at the line where it stands in its document,
// so that mistakes in it are told with the document's lines.
func inPlace(n *yaml.Node) []byte {
	above := n.Line - 1
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		above++ // the text begins below the key
	}
	return append(bytes.Repeat([]byte{'\n'}, max(0, above)), n.Value...)
}

// onlyV1 refuses fields that came with llm-d.ai/v1 in older versions.
func (c *Config) onlyV1(root *yaml.Node) error {
	refuse := func(field string) error {
		return strict.At(root, field, "unknown field in %s; it exists from %s on", c.APIVersion, V1)
	}
	if c.RequestHandler != nil && c.RequestHandler.PropagatePriority {
		return refuse("requestHandler.propagatePriority")
	}
	if f := c.FlowControl; f != nil {
		if f.NoEndpointRequestTTL != nil {
			return refuse("flowControl.noEndpointRequestTTL")
		}
		for i := range f.PriorityBands {
			if f.PriorityBands[i].DefaultRequestTTL != nil {
				return refuse(fmt.Sprintf("flowControl.priorityBands[%d].defaultRequestTTL", i))
			}
		}
	}
	if d := c.DataLayer; d != nil {
		if d.CrossReplica != nil {
			return refuse("dataLayer.crossReplica")
		}
		if d.Discovery != nil && (d.Discovery.Endpoints != nil || d.Discovery.Peers != nil) {
			return refuse("dataLayer.discovery.endpoints")
		}
	}
	return nil
}

// gates reads "name", "name=true" and "name=false"; of several the last counts.
func (c *Config) gates(root *yaml.Node) error {
	for i, g := range c.FeatureGates {
		parts := strings.Split(g, "=") // of "name=true=x" the real one reads two parts
		name, on := parts[0], true
		if name != gateFlowControl && name != gateNonLeader {
			return strict.At(lookup(root, "featureGates"), fmt.Sprintf("featureGates[%d]", i),
				"feature gate '%s' is unknown or unregistered; expected %s or %s", name, gateFlowControl, gateNonLeader)
		}
		if len(parts) > 1 {
			var err error
			if on, err = strconv.ParseBool(strings.ToLower(strings.TrimSpace(parts[1]))); err != nil {
				return strict.At(lookup(root, "featureGates"), fmt.Sprintf("featureGates[%d]", i),
					"%s is not a valid value for the feature gate %s; expected true or false", parts[1], name)
			}
		}
		if name == gateFlowControl {
			c.FlowControlOn = on
		} else {
			c.Warnings = append(c.Warnings, "feature gate "+name+" has no effect here")
		}
	}
	return nil
}

// check refuses what is wrong whatever plug-ins exist.
func (c *Config) check() error {
	names := map[string]bool{}
	for i := range c.Plugins {
		p := &c.Plugins[i]
		field := fmt.Sprintf("plugins[%d]", i)
		if p.Type == "" {
			return &strict.Error{Line: p.Line, Field: field, Msg: fmt.Sprintf("plugin '%s' is missing a type", p.Name)}
		}
		if p.Name == "" {
			p.Name = p.Type
		}
		if names[p.Name] {
			return &strict.Error{Line: p.Line, Field: field, Msg: fmt.Sprintf("plugin name '%s' is used twice; give one of them another name", p.Name)}
		}
		names[p.Name] = true
	}
	profiles := map[string]bool{}
	for i, pr := range c.SchedulingProfiles {
		field := fmt.Sprintf("schedulingProfiles[%d]", i)
		switch {
		case pr.Name == "":
			return &strict.Error{Field: field, Msg: "is missing a name"}
		case profiles[pr.Name]:
			return &strict.Error{Field: field, Msg: fmt.Sprintf("has duplicate name '%s'", pr.Name)}
		}
		profiles[pr.Name] = true
		for j, p := range pr.Plugins {
			if p.PluginRef == "" {
				return &strict.Error{Field: fmt.Sprintf("schedulingProfiles[%s].plugins[%d]", pr.Name, j), Msg: "is missing a 'pluginRef'"}
			}
		}
	}
	if c.FlowControl != nil && c.FlowControlOn {
		seen := map[int]bool{}
		for i, b := range c.FlowControl.PriorityBands {
			if seen[b.Priority] {
				return &strict.Error{Field: fmt.Sprintf("flowControl.priorityBands[%d]", i), Msg: fmt.Sprintf("duplicate priority level %d", b.Priority)}
			}
			seen[b.Priority] = true
		}
	}
	if c.FlowControl != nil && !c.FlowControlOn {
		c.Warnings = append(c.Warnings, "flowControl is set but the feature gate flowControl is off; only its saturationDetector counts")
	}
	if c.SaturationDetector != nil {
		c.Warnings = append(c.Warnings, "top-level saturationDetector is deprecated, use flowControl.saturationDetector; if both are set, that counts")
	}
	if c.Parser != nil {
		c.Warnings = append(c.Warnings, "top-level parser is deprecated, use requestHandler.parsers; if both are set, that counts")
	}
	return nil
}

// Plugin finds a declared plug-in by name, nil when there is none.
func (c *Config) Plugin(name string) *Plugin {
	for i := range c.Plugins {
		if c.Plugins[i].Name == name {
			return &c.Plugins[i]
		}
	}
	return nil
}

// DiscoveryRef is the name of the discovery plug-in, "" when endpoints come
// from elsewhere.
func (c *Config) DiscoveryRef() string {
	if c.DataLayer == nil || c.DataLayer.Discovery == nil {
		return ""
	}
	if e := c.DataLayer.Discovery.Endpoints; e != nil {
		return e.PluginRef
	}
	return c.DataLayer.Discovery.PluginRef
}

// DetectorRef is the name of the saturation detector, "" for the default.
func (c *Config) DetectorRef() string {
	if c.FlowControl != nil && c.FlowControl.SaturationDetector != nil {
		return c.FlowControl.SaturationDetector.PluginRef
	}
	if c.SaturationDetector != nil {
		return c.SaturationDetector.PluginRef
	}
	return ""
}

// ParserRefs are the names of the request parsers, empty for the default.
func (c *Config) ParserRefs() []string {
	var out []string
	if c.RequestHandler != nil {
		for _, p := range c.RequestHandler.Parsers {
			out = append(out, p.PluginRef)
		}
	}
	if len(out) == 0 && c.Parser != nil {
		out = []string{c.Parser.PluginRef}
	}
	return out
}

// RoundRobin is the configuration of a pool that has none: the endpoints in
// turn, but for those that say three times in a row that they are not ready.
const RoundRobin = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: health-data-source
- type: round-robin-picker
dataLayer:
  sources:
  - pluginRef: health-data-source
`

// Default is the configuration of a picker that has no configuration file:
// queue 2, KV-cache utilisation 2, prefix cache 3.
func Default() *Config {
	weight := func(w float64) *float64 { return &w }
	return &Config{
		APIVersion: V1Alpha1, Kind: Kind,
		Plugins: []Plugin{
			{Name: "queue-scorer", Type: "queue-scorer"},
			{Name: "kv-cache-utilization-scorer", Type: "kv-cache-utilization-scorer"},
			{Name: "prefix-cache-scorer", Type: "prefix-cache-scorer"},
		},
		SchedulingProfiles: []Profile{{Name: "default", Plugins: []ProfilePlugin{
			{PluginRef: "queue-scorer", Weight: weight(2)},
			{PluginRef: "kv-cache-utilization-scorer", Weight: weight(2)},
			{PluginRef: "prefix-cache-scorer", Weight: weight(3)},
		}}},
	}
}

func lookup(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// Duration is a span of time written as "60s"; "0s" switches something off.
type Duration machine.Time
