package config_test

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
)

func TestErrorsNameLineAndField(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "the configuration is empty"},
		{"a: [b", "line 1: did not find expected ',' or ']'"},
		{"plugins:\n- {type: queue-scorer}\nfoo: bar", `line 3: foo: unknown field "foo"`},
		{"apiVersion: foo/v1\nkind: EndpointPickerConfig", `line 1: apiVersion: no kind "EndpointPickerConfig" is registered for version "foo/v1"`},
		{"plugins:\n- {name: x}", "line 2: plugins[0]: plugin 'x' is missing a type"},
		{"featureGates: ['flowControl=maybe']", "featureGates[0]: maybe is not a valid value for the feature gate flowControl"},
		{"flowControl:\n  maxBytes: 5X", `line 2: flowControl.maxBytes: "5X" is not a quantity`},
		{"flowControl: {defaultRequestTTL: abc}", `flowControl.defaultRequestTTL: time: invalid duration "abc"`},
		{"schedulingProfiles:\n- name: a\n  plugins: [{pluginRef: nope}]", "schedulingProfiles[a].plugins[0]: references undefined plugin 'nope'"},
		{"plugins:\n- {type: queue-scorer}\nschedulingProfiles:\n- name: a\n  plugins: [{pluginRef: queue-scorer, weight: x}]", `line 5: schedulingProfiles[0].plugins[0].weight: cannot read string "x" as a number`},
		{"plugins:\n- type: load-aware-scorer\n  parameters:\n    threshold: x", `line 4: plugins[0].parameters.threshold: cannot read string "x" as a whole number`},
		{"plugins:\n- type: max-score-picker\n  parameters: {foo: 1}", `line 3: plugins[0].parameters.foo: unknown field "foo"; expected one of: maxNumOfEndpoints`},
		{"plugins: [{type: a-b}]", "plugin type 'a-b' not found in registry"},
		{"flowControl: {noEndpointRequestTTL: 1s}", "it exists from llm-d.ai/v1 on"},
	} {
		cfg, err := config.Read([]byte(c.text))
		if err == nil {
			_, err = picker.New(cfg, plugins.Builtin(), picker.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

// Every version of the format means the same.
func TestVersions(t *testing.T) {
	for _, v := range []string{"", "llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1"} {
		cfg, err := config.Read([]byte("apiVersion: " + v + "\nplugins: [{type: queue-scorer}]"))
		if err == nil {
			_, err = picker.New(cfg, plugins.Builtin(), picker.Options{})
		}
		if err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
	cfg, err := config.Read([]byte("apiVersion: llm-d.ai/v1\ndataLayer: {discovery: {endpoints: {pluginRef: disc}}}"))
	if err != nil || cfg.DiscoveryRef() != "disc" {
		t.Errorf("got %v %v", cfg, err)
	}
}

func TestQuantities(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "1k": 1000, "1Gi": 1 << 30, "1.5G": 1_500_000_000, "100m": 1, "1e3": 1000, ".5k": 500} {
		var q config.Quantity
		if err := q.FromScalar(text); err != nil || int64(q) != want {
			t.Errorf("%s: got %d %v, want %d", text, q, err, want)
		}
	}
	for _, text := range []string{"", "5X", "1e999", "9E9E", "--1", "16Ei"} {
		var q config.Quantity
		if err := q.FromScalar(text); err == nil {
			t.Errorf("%s: accepted as %d", text, q)
		}
	}
}

// Any bytes: an error or a picker, no panic.
func FuzzRead(f *testing.F) {
	f.Add([]byte("plugins: [{type: queue-scorer}, {type: disagg-profile-handler, parameters: {deciders: {prefill: x}}}]\nflowControl: {maxBytes: 1Gi, priorityBands: [{priority: 1}]}"))
	f.Add([]byte("profiles: [{name: a, plugins: {filter: {enabled: [{name: DecodeFilter}]}, scrape: {enabled: [{name: VLLMMetricScraper, interval: 5s}]}}}]\npluginConfig: [{name: DecodeFilter, args: {a: b}}]"))
	f.Add([]byte("kind: ConfigMap\ndata: {config.yaml: 'plugins: []'}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := config.Read(text)
		if err != nil {
			return
		}
		p, err := picker.New(cfg, plugins.Builtin(), picker.Options{AllowExperimental: true})
		if err == nil {
			_, _ = plugins.FlowControl(p)
		}
	})
}
