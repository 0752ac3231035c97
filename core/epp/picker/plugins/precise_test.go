package plugins_test

import (
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

func buildPrecise(parameters string) (*picker.Picker, error) {
	cfg, err := config.Read("epp.yaml",
		[]byte("plugins:\n- type: precise-prefix-cache-producer\n  parameters: "+parameters+
			"\n- type: prefix-cache-scorer\n  parameters: {prefixMatchInfoProducerName: "+
			"precise-prefix-cache-producer}\n"))
	if err != nil {
		return nil, err
	}
	return picker.New(cfg, plugins.Builtin(), picker.Options{})
}

// The index and its sources get the configured parameters; an error names each one that cannot work.
func TestPreciseParameters(t *testing.T) {
	p, err := buildPrecise(`{tokenProcessorConfig: {blockSizeTokens: 64, hashSeed: "7"}, kvEventsConfig: {zmqEndpoint: "tcp://*:5557", discoverPods: false, concurrency: 8},
    indexerConfig: {kvBlockIndexConfig: {inMemoryConfig: {size: 1000}, enableMetrics: true, metricsLoggingInterval: 60000000000}, kvCacheBackendConfigs: [{name: CPU, weight: 0.5}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	s := dataproducer.Precise(p.Plugin("precise-prefix-cache-producer"))
	x, from := s.Index(), s.Sources()
	if x.Hasher.BlockTokens != 64 || x.Hasher.Seed != "7" || x.MaxBlocks != 1000 || x.Weights["cpu"] != .5 ||
		!s.EnableMetrics() {
		t.Errorf("the index is %+v", x)
	}
	if from.Bind != "tcp://*:5557" || from.Discover || from.TopicFilter != "kv@" || from.SocketPort != 5557 ||
		from.Workers != 8 {
		t.Errorf("the sources are %+v", from)
	}
	for parameters, want := range map[string]string{
		`{tokenProcessorConfig: {blockSizeTokens: 0}}`: "tokenProcessorConfig.blockSizeTokens: " +
			"found the number 0; expected a whole number, from 1 to",
		`{kvEventsConfig: {zmqEndpoint: "udp://x"}}`: "expected tcp://",
		`{kvEventsConfig: {engineType: trtllm}}`:     `found "trtllm"; expected vllm or sglang`,
		`{kvEventsConfig: {podDiscoveryConfig: {socketPort: 70000}}}`: "podDiscoveryConfig.socketPort: found " +
			"the number 70000; expected a whole number, from 1 to 65535",
		`{speculativeIndexing: true, speculativeTTL: 0s}`: "speculativeTTL",
		`{kvEventConfig: {}}`:                             `kvEventConfig: unknown field; `,
		`{indexerConfig: {kvBlockIndexConfig: {metricsLoggingInterval: 60s}}}`: "metricsLoggingInterval: found " +
			`"60s"; expected a whole number`,
		`{indexerConfig: {kvCacheBackendConfigs: [{name: x, weight: -1}]}}`: "weight: found the number -1; expected " +
			"a number, 0 or more",
	} {
		if _, err := buildPrecise(parameters); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected %q", parameters, err, want)
		}
	}
	p, err = buildPrecise(`{tokenProcessorConfig: {hashSeed: "9"}, indexerConfig: {prefixStoreConfig: {cacheSize: 500},
    tokenProcessorConfig: {blockSize: 48, hashSeed: "7"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if x := dataproducer.Precise(p.Plugin("precise-prefix-cache-producer")).Index(); x.Hasher.BlockTokens != 48 ||
		x.Hasher.Seed != "9" {
		t.Errorf("with the fields of earlier versions the index is %+v", x)
	}
	p, err = buildPrecise(`{kvEventsConfig: {discoverPods: false}, tokenProcessorConfig: {blockSize: 32}}`)
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(p.Warnings, "\n"); !strings.Contains(all, "no events will ever come") ||
		!strings.Contains(all, "blockSize is deprecated") || !strings.Contains(all, "tokens are estimated") {
		t.Errorf("the warnings are %q", p.Warnings)
	}
}

// The producer dials the endpoints that its source reports, like the real one. If it is to dial endpoints and no source
// reports any, there is a warning.
func TestPreciseDiscoversThroughItsSource(t *testing.T) {
	const wired = "sources: [{pluginRef: heard, extractors: [{pluginRef: precise}]}]"
	for _, test := range []struct {
		events, dataLayer, warning string
		discover                   bool
	}{
		{"{discoverPods: true}", wired, "", true},
		{"{}", wired, "", true},
		{"{discoverPods: false, zmqEndpoint: 'tcp://*:5557'}", wired, "", false},
		{"{discoverPods: true}", "",
			"discoverPods is on, and no source reports the endpoints, so no events will ever come and all scores " +
				"stay 0; declare {type: endpoint-notification-source}", false},
		{"{}", "sources: [{pluginRef: heard}]", "no events will ever come", false},
		{"{discoverPods: true}", "sources: [{pluginRef: models-data-source, extractors: [{pluginRef: precise}]}]",
			"no events will ever come", false},
		{"{discoverPods: true, zmqEndpoint: 'tcp://*:5557'}", "", "so events come only to zmqEndpoint", false},
		{"{zmqEndpoint: 'tcp://*:5557'}", "", "", false}, // by default, and nobody has asked for it
	} {
		cfg, err := config.Read("epp.yaml",
			[]byte("plugins:\n- {type: endpoint-notification-source, name: heard}\n- {type: models-data-source}\n- "+
				"{type: token-producer, parameters: {modelName: m, vllm: {}}}\n"+
				"- {type: precise-prefix-cache-producer, name: precise, parameters: {kvEventsConfig: "+test.events+
				"}}\ndataLayer: {"+test.dataLayer+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := picker.New(cfg, plugins.Builtin(), picker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(p.Warnings, "\n")
		if got := dataproducer.Precise(p.Plugin("precise")).Sources().Discover; got != test.discover ||
			(test.warning == "") == strings.Contains(all, "precise") || !strings.Contains(all, test.warning) {
			t.Errorf("%s, %s: dials %v, warns %q", test.events, test.dataLayer, got, all)
		}
	}
}

// Any parameters give a picker or an error.
func FuzzPreciseParameters(f *testing.F) {
	f.Add(`{tokenProcessorConfig: {blockSizeTokens: 16}, kvEventsConfig: {zmqEndpoint: "tcp://127.0.0.1:5557"}}`)
	f.Add(`{indexerConfig: {kvCacheBackendConfigs: [{name: gpu, weight: 1}]}, speculativeTTL: 1h}`)
	f.Add(`{kvEventsConfig: {podDiscoveryConfig: {socketPort: -1}}}`)
	f.Fuzz(func(t *testing.T, parameters string) {
		if len(parameters) > 1<<12 {
			return
		}
		p, err := buildPrecise(parameters)
		if err != nil {
			return
		}
		if s := dataproducer.Precise(p.Plugin("precise-prefix-cache-producer")); s != nil {
			if x := s.Index(); x.Hasher.Tokens() < 1 || x.MaxBlocks < 0 {
				t.Errorf("the index is %+v", x)
			}
		}
	})
}
