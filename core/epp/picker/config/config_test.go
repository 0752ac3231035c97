package config_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
)

func TestErrorsNameLineAndField(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "the configuration is empty"},
		{"a: [b", "epp.yaml:1:1: not YAML: did not find expected ',' or ']'"},
		{"plugins:\n- {type: queue-scorer}\nfoo: bar",
			`epp.yaml:3:1: foo: unknown field; expected one of apiVersion, `},
		{"apiVersion: foo/v1\nkind: EndpointPickerConfig",
			`epp.yaml:1:13: apiVersion: no kind "EndpointPickerConfig" is registered for version "foo/v1"`},
		{"apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools: []",
			`epp.yaml:2:7: kind: found a windtunnel scenario; expected EndpointPickerConfig; windtunnel config ` +
				`SCENARIO --picker prints the one of its endpoint picker`},
		{"plugins:\n- {type: weighted-load-scorer, parameters: {threshold: 10, maxQueueLength: 5}}",
			`epp.yaml:2:56: plugins[0].parameters.threshold: expected either it or maxQueueLength`},
		{"plugins:\n- {name: x}", "epp.yaml:2:3: plugins[0].type: missing; expected the plug-in's type"},
		{"featureGates: ['flowControl=maybe']",
			"featureGates[0]: maybe is not a valid value for the feature gate flowControl"},
		{"flowControl:\n  maxBytes: 5X",
			`epp.yaml:2:13: flowControl.maxBytes: found "5X"; expected a number with an optional suffix`},
		{"flowControl: {defaultRequestTTL: abc}",
			`flowControl.defaultRequestTTL: found "abc"; expected a duration such as 500ms`},
		{"schedulingProfiles:\n- name: a\n  plugins: [{pluginRef: nope}]",
			"schedulingProfiles[0].plugins[0].pluginRef: references undefined plugin 'nope'"},
		{"plugins:\n- {type: queue-scorer}\nschedulingProfiles:\n- name: a\n  plugins: [{pluginRef: queue-scorer, " +
			"weight: x}]", `epp.yaml:5:47: schedulingProfiles[0].plugins[0].weight: found "x"; expected a number`},
		{"plugins:\n- type: load-aware-scorer\n  parameters:\n    threshold: x",
			`epp.yaml:4:16: plugins[0].parameters.threshold: found "x"; expected a whole number`},
		{"plugins:\n- type: max-score-picker\n  parameters: {foo: 1}",
			`epp.yaml:3:16: plugins[0].parameters.foo: unknown field; expected one of maxNumOfEndpoints`},
		{"plugins: [{type: a-b}]", "plugin type 'a-b' not found in registry"},
		{"flowControl: {noEndpointRequestTTL: 1s}", "it exists from llm-d.ai/v1 on"},
	} {
		cfg, err := config.Read("epp.yaml", []byte(c.text))
		if err == nil {
			_, err = picker.New(cfg, plugins.Builtin(), picker.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

type (
	// almostScorer has a Score of another shape than picker.Scorer.
	almostScorer struct{ picker.Base }
	// halfScorer is a good scorer with a Commit of another shape than picker.Committer, and keeper with a SaveState.
	halfScorer struct{ picker.Base }
	keeper     struct{ halfScorer }
	nothing    struct{ picker.Base }
	quiet      struct{ picker.Base }
)

func (almostScorer) Score(c *picker.Cycle, endpoints []int32) []float64 { return nil }

func (halfScorer) Score(*picker.Cycle, []int32, []float64) {}
func (halfScorer) Commit(*picker.Decision)                 {}

func (keeper) Commit(machine.Time, *picker.Decision) {}
func (keeper) SaveState() []byte                     { return nil }
func (keeper) LoadState([]byte) error                { return nil }

func odd(p picker.Plugin, kind string) picker.Registration {
	return picker.Registration{Kind: kind,
		New: func(*picker.Builder, string, picker.Params) (picker.Plugin, error) { return p, nil }}
}

// What is said about a configuration: all mistakes at once, or the warnings.
func TestScripts(t *testing.T) {
	reg := plugins.Builtin()
	reg["almost-scorer"], reg["nothing"], reg["quiet"] = odd(&almostScorer{}, ""), odd(&nothing{}, ""),
		odd(&quiet{}, "oracle")
	reg["half-scorer"], reg["keeper"] = odd(&halfScorer{}, ""), odd(&keeper{}, "")
	reg["panics"] = picker.Registration{
		New: func(*picker.Builder, string, picker.Params) (picker.Plugin, error) { panic("no weights") }}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(_ *testing.T, d *datadriven.TestData) string {
			cfg, err := config.Read("epp.yaml", []byte(d.Input))
			if err != nil {
				return err.Error() + "\n"
			}
			p, err := picker.New(cfg, reg, picker.Options{AllowExperimental: d.HasArg("alpha")})
			if err != nil {
				return err.Error() + "\n"
			}
			return strings.Join(append([]string{"fine"}, p.Warnings...), "\n") + "\n"
		})
	})
}

// Every version of the format means the same.
func TestVersions(t *testing.T) {
	for _, v := range []string{"", "llm-d.ai/v1alpha1", "llm-d.ai/v1", "inference.networking.x-k8s.io/v1alpha1"} {
		cfg, err := config.Read("epp.yaml", []byte("apiVersion: "+v+"\nplugins: [{type: queue-scorer}]"))
		if err == nil {
			_, err = picker.New(cfg, plugins.Builtin(), picker.Options{})
		}
		if err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
	cfg, err := config.Read("epp.yaml",
		[]byte("apiVersion: llm-d.ai/v1\ndataLayer: {discovery: {endpoints: {pluginRef: disc}}}"))
	if err != nil || cfg.Discovery().PluginRef != "disc" {
		t.Errorf("got %v %v", cfg, err)
	}
}

// Quantities read as Kubernetes documents them. resource.Quantity itself
// (apimachinery 0.34.1) makes the same of 500,000 random ones from 0 to 2^63-1; beyond
// and below, its Value breaks its own rule (25E is 0, -1n is 1), and "." is 0.
func TestParseQuantity(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "5000": 5000, "00012": 12, "1G": 1e9, "1Gi": 1 << 30, "1k": 1000, "1.5G": 1.5e9, ".5k": 500,
		".5Ki": 512, "5.": 5, "+7": 7,
		"5E": 5e18, "1e3": 1000, "1E3": 1000, "1e+2": 100, "9E9": 9e9,
		"1.5": 2, "-1.5": -2, "100m": 1, "-100m": -1, "1n": 1, "1u": 1, "1e-3": 1, "1e-1000000": 1, "1.0000000001": 2,
		"1e-99999999999999999999": 1,
		"9223372036854775807":     math.MaxInt64, "16Ei": math.MaxInt64, "-16Ei": -math.MaxInt64,
		"99999999999999999999":   math.MaxInt64,
		"-99999999999999999999E": -math.MaxInt64, "1e1000000": math.MaxInt64, "1e99999999999999999999": math.MaxInt64,
		"0e1000000": 0,
	} {
		var q config.Quantity
		if err := q.UnmarshalText([]byte(text)); err != nil || q.Value() != want {
			t.Errorf("%q is %d (%v), want %d", text, q, err, want)
		}
	}
	for _, text := range []string{"", "5X", "G", "1 G", " 5", "--1", "1-2", "1.2.3", ".", "-", "1Kii", "1ki", "1K",
		"1KiB", "e3", "1E3Ki", "0x10", "1_000", "1e", "9E9E", strings.Repeat("1", 65)} {
		if got, err := config.ParseQuantity(text); err == nil {
			t.Errorf("%q is %d, should be refused", text, got)
		}
	}
}

func FuzzParseQuantity(f *testing.F) {
	for _, seed := range []string{"1G", "1.5Mi", "-3e2", "100m", "1E", "+.5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := config.ParseQuantity(text)
		if err != nil {
			return
		}
		again, err := config.ParseQuantity(strconv.FormatInt(n, 10))
		if err != nil || again != n {
			t.Errorf("%q is %d, which reads as %d (%v)", text, n, again, err)
		}
	})
}

// Any bytes: an error or a picker, no panic.
func FuzzRead(f *testing.F) {
	f.Add([]byte("plugins: [{type: queue-scorer}, {type: disagg-profile-handler, parameters: {deciders: {prefill: " +
		"x}}}]\nflowControl: {maxBytes: 1Gi, priorityBands: [{priority: 1}]}"))
	f.Add([]byte("profiles: [{name: a, plugins: {filter: {enabled: [{name: DecodeFilter}]}, scrape: {enabled: " +
		"[{name: VLLMMetricScraper, interval: 5s}]}}}]\npluginConfig: [{name: DecodeFilter, args: {a: b}}]"))
	f.Add([]byte("kind: ConfigMap\ndata: {config.yaml: 'plugins: []'}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := config.Read("epp.yaml", text)
		if err != nil {
			return
		}
		p, err := picker.New(cfg, plugins.Builtin(), picker.Options{AllowExperimental: true})
		if err != nil || !p.FlowControl() {
			return
		}
		if _, err := plugins.FlowControl(p); err != nil && !strings.Contains(err.Error(), "flowControl") {
			t.Errorf("no field is named: %v", err)
		}
	})
}
