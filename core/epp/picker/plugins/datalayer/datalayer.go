package datalayer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// idlePlugin is a type that is accepted and does nothing here.
type idlePlugin struct{ named }

// NewIdle makes a plug-in that does nothing.
var NewIdle = picker.Plain[idlePlugin]()

// NewModelsSource is models-data-source: nothing here reads its metrics, but its parameters are checked like those of a
// source that is scraped.
func NewModelsSource(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	t := target{Scheme: "http", Path: "/v1/models"}
	return &idlePlugin{}, t.read(p, &t)
}

// NewNotificationSource is k8s-notification-source: it watches one kind of
// Kubernetes object, for which there is no API server here.
func NewNotificationSource(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	var ps struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	}
	if err := p.Decode(&ps); err != nil {
		return nil, err
	}
	for field, value := range map[string]string{"version": ps.Version, "kind": ps.Kind} {
		if value == "" {
			return nil, p.At(field).Expected("the " + field + " of the objects to watch")
		}
	}
	return &idlePlugin{}, nil
}

// target is the place from which a source of metrics scrapes each endpoint.
type target struct {
	Scheme   string `json:"scheme" oneof:"http,https"`
	Path     string `json:"path"`
	Insecure *bool  `json:"insecureSkipVerify"`
	CA       string `json:"caCertPath"`
	Cert     string `json:"clientCertPath"`
	Key      string `json:"clientKeyPath"`
	Interval string `json:"interval"` // "" is every tick

	every config.Duration
}

// read fills a struct that t is part of.
func (t *target) read(p picker.Params, into any) error {
	if err := p.Decode(into); err != nil {
		return err
	}
	if t.Interval != "" {
		if err := t.every.UnmarshalText([]byte(t.Interval)); err != nil {
			return p.At("interval").Expected(t.every.Expected())
		}
	}
	if t.every < 0 {
		return p.At("interval").Expected("a duration that is not negative")
	}
	return nil
}

// metricsSource is metrics-data-source: where the model servers' pages are.
type metricsSource struct {
	named
	target
	Port *int `json:"port" min:"1" max:"65535"` // of every endpoint; nil is the endpoint's own
}

// NewMetricsSource makes a metrics-data-source.
func NewMetricsSource(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &metricsSource{target: target{Scheme: "http", Path: "/metrics"}}
	return s, s.read(p, s)
}

// Scrape returns how to fetch.
func (s *metricsSource) Scrape() picker.ScrapeSpec {
	spec := picker.ScrapeSpec{Scheme: s.Scheme, Path: s.Path, Interval: s.every.Time(),
		InsecureSkipVerify: s.Insecure == nil || *s.Insecure}
	if s.Port != nil {
		spec.Port = strconv.Itoa(*s.Port)
	}
	return spec
}

// extractor is core-metrics-extractor: which series mean what, per engine.
type extractor struct {
	named
	LabelKey string         `json:"engineLabelKey"`
	Default  string         `json:"defaultEngine"`
	Configs  []engineConfig `json:"engineConfigs"`

	engines map[string]*mapping
}

type engineConfig struct {
	Name    string `json:"name"`
	Queued  string `json:"queuedRequestsSpec"`
	Running string `json:"runningRequestsSpec"`
	KV      string `json:"kvUsageSpec"`
	LoRA    string `json:"loraSpec"`
	Cache   string `json:"cacheInfoSpec"`
	// Labels of Cache, and series that say the same as values.
	BlockSizeLabel string `json:"cacheBlockSizeLabelName"`
	BlocksLabel    string `json:"cacheNumBlocksLabelName"`
	BlockSize      string `json:"cacheBlockSizeSpec"`
	Blocks         string `json:"cacheNumBlocksSpec"`
	Custom         []struct {
		Key  string `json:"attributeKey"`
		Spec string `json:"metricSpec"`
	} `json:"customMetrics"`
}

// NewExtractor makes a core-metrics-extractor.
var NewExtractor = picker.Of(extractor{Default: "vllm"})

// Configure implements picker.Configurer.
func (x *extractor) Configure(_ *picker.Builder, name string, p picker.Params) error {
	x.engines = engines()
	x.LabelKey, x.Default = cmp.Or(x.LabelKey, picker.LabelEngine), cmp.Or(x.Default, "vllm")
	seen := map[string]bool{}
	for i := range x.Configs {
		e, at := &x.Configs[i], p.At(fmt.Sprintf("engineConfigs[%d]", i))
		switch {
		case e.Name == "" || e.Name == "default":
			return at.At("name").Expected("the engine's name, which is not default")
		case seen[e.Name]:
			return at.At("name").Errorf("engine %q is configured twice", e.Name)
		}
		seen[e.Name] = true
		m, err := e.mapping()
		if err != nil {
			return at.Errorf("%v", err)
		}
		x.engines[e.Name] = m
	}
	if x.engines[x.Default] == nil {
		return p.At("defaultEngine").Expected("one of the engines " +
			strings.Join(slices.Sorted(maps.Keys(x.engines)), ", "))
	}
	return nil
}

func (e *engineConfig) mapping() (*mapping, error) {
	m := &mapping{BlockSizeLabel: e.BlockSizeLabel, BlocksLabel: e.BlocksLabel}
	for _, s := range []struct {
		text string
		to   *metrics.Spec
	}{{e.Queued, &m.Queued}, {e.Running, &m.Running}, {e.KV, &m.KVUsage}, {e.LoRA, &m.LoRA}, {e.Cache, &m.CacheInfo},
		{e.BlockSize, &m.BlockSize}, {e.Blocks, &m.Blocks}} {
		var err error
		if *s.to, err = metrics.ParseSpec(s.text); err != nil {
			return nil, err
		}
	}
	for _, c := range e.Custom {
		spec, err := metrics.ParseSpec(c.Spec)
		if err == nil && (c.Key == "" || c.Spec == "") {
			err = errors.New("one of the two is empty")
		}
		if err == nil && slices.ContainsFunc(m.Custom, func(o customSignal) bool { return o.Key == c.Key }) {
			err = errors.New("the key stands twice")
		}
		if err != nil {
			return nil, fmt.Errorf("customMetrics need attributeKey and metricSpec (%q, %q): %w", c.Key, c.Spec, err)
		}
		m.Custom = append(m.Custom, customSignal{Key: c.Key, Spec: spec})
	}
	return m, nil
}

// Wants reports whether any engine's mapping reads a family.
func (x *extractor) Wants(family string) bool {
	for _, m := range x.engines {
		if m.wants(family) {
			return true
		}
	}
	return false
}

// Extract reads a page by the metrics of the endpoint's engine: the default engine if the endpoint has no label for it,
// or an unknown one.
func (x *extractor) Extract(page metrics.Page, labels map[string]string, into *picker.Metrics) error {
	m := x.engines[cmp.Or(labels[x.LabelKey], labels[picker.LabelEngineOld])]
	if m == nil {
		m = x.engines[x.Default]
	}
	if !m.apply(page, into) {
		return errors.New("the page has none of the engine's metrics")
	}
	return nil
}

// fileDiscovery is file-discovery: endpoints from a file.
type fileDiscovery struct {
	named
	Path  string `json:"path"`
	Watch bool   `json:"watchFile"`
}

// NewFileDiscovery makes a file-discovery.
var NewFileDiscovery = picker.Of(fileDiscovery{})

// Configure implements picker.Configurer.
func (d *fileDiscovery) Configure(_ *picker.Builder, _ string, p picker.Params) error {
	if d.Path == "" {
		return p.At("path").Expected("the file that lists the endpoints")
	}
	return nil
}

// EndpointsFile returns the file.
func (d *fileDiscovery) EndpointsFile() (string, bool) { return d.Path, d.Watch }
