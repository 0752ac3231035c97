package dataproducer

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
)

// preciseConfig are the parameters of precise-prefix-cache-producer. What is
// accepted and has no meaning here (pools of workers, tokenizers, other
// backends than memory) is named where it is given.
type preciseConfig struct {
	TokenProcessor tokenProcessor `json:"tokenProcessorConfig"`
	IndexerConfig  struct {
		BlockIndex struct {
			InMemory *struct {
				Size         int `json:"size"` // blocks
				PodCacheSize int `json:"podCacheSize"`
			} `json:"inMemoryConfig"`
			CostAware       any  `json:"costAwareMemoryConfig"`
			Redis           any  `json:"redisConfig"`
			Valkey          any  `json:"valkeyConfig"`
			EnableMetrics   bool `json:"enableMetrics"`
			LoggingInterval int  `json:"metricsLoggingInterval"` // nanoseconds
			EnableTracing   bool `json:"enableTracing"`
		} `json:"kvBlockIndexConfig"`
		Backends []struct {
			Name   string  `json:"name"`
			Weight float64 `json:"weight" min:"0"`
		} `json:"kvCacheBackendConfigs"`
		// Versions before v0.10 have these three: the first in the place of the one above.
		TokenProcessor tokenProcessor `json:"tokenProcessorConfig"`
		PrefixStore    any            `json:"prefixStoreConfig"`
		Tokenizers     any            `json:"tokenizersPoolConfig"`
	} `json:"indexerConfig"`
	Events struct {
		Endpoint    string `json:"zmqEndpoint"`
		TopicFilter string `json:"topicFilter"`
		Concurrency int    `json:"concurrency"`
		EngineType  string `json:"engineType" oneof:",vllm,sglang"`
		Discover    *bool  `json:"discoverPods"`
		Pods        struct {
			Selector   string `json:"podLabelSelector"`
			Namespace  string `json:"podNamespace"`
			SocketPort int    `json:"socketPort" min:"1" max:"65535"`
			ReplayPort int    `json:"replaySocketPort" min:"0" max:"65535"`
		} `json:"podDiscoveryConfig"`
	} `json:"kvEventsConfig"`
	Speculative    bool            `json:"speculativeIndexing"`
	SpeculativeTTL config.Duration `json:"speculativeTTL"`

	reported bool // its source reports the endpoints
}

type tokenProcessor struct {
	BlockTokens int    `json:"blockSizeTokens" min:"1" max:"65536"`
	BlockSize   int    `json:"blockSize" max:"65536"` // deprecated
	HashSeed    string `json:"hashSeed"`
}

func (c *preciseConfig) read(b *picker.Builder, name string, p picker.Params) error {
	c.Events.TopicFilter, c.Events.EngineType = kv.TopicPrefix, "vllm"
	c.Events.Pods.SocketPort = defaultEventsPort
	c.SpeculativeTTL = config.Duration(2 * machine.Second)
	if err := p.Decode(c); err != nil {
		return err
	}
	t, old := &c.TokenProcessor, &c.IndexerConfig.TokenProcessor
	t.BlockSize, t.HashSeed = max(cmp.Or(t.BlockSize, old.BlockSize), 0), cmp.Or(t.HashSeed, old.HashSeed)
	if t.BlockSize > 0 {
		b.Warn("plugin %s: tokenProcessorConfig.blockSize is deprecated, use blockSizeTokens", name)
	}
	t.BlockTokens = cmp.Or(t.BlockSize, t.BlockTokens, old.BlockTokens, kv.DefaultBlockTokens)
	e := &c.Events
	switch {
	case e.Endpoint != "" && !bindable(e.Endpoint):
		return p.At("kvEventsConfig.zmqEndpoint").Expected("tcp://<address or *>:<port>")
	case c.Speculative && c.SpeculativeTTL <= 0:
		return p.At("speculativeTTL").Expected("a duration above zero, since speculativeIndexing is on")
	}
	for i, backend := range c.IndexerConfig.Backends {
		if backend.Name == "" {
			return p.At(fmt.Sprintf("indexerConfig.kvCacheBackendConfigs[%d].name", i)).Expected("the backend's name")
		}
	}
	if x := &c.IndexerConfig.BlockIndex; x.CostAware != nil || x.Redis != nil || x.Valkey != nil {
		b.Warn("plugin %s: the index is kept in memory, whatever backend indexerConfig names", name)
	}
	return nil
}

const engineSGLang = "sglang"

// defaultEventsPort is the port at which vLLM publishes its KV events.
const defaultEventsPort = 5557

func bindable(endpoint string) bool {
	rest, tcp := strings.CutPrefix(endpoint, "tcp://")
	colon := strings.LastIndexByte(rest, ':')
	if !tcp || colon < 0 {
		return false
	}
	port, err := strconv.Atoi(rest[colon+1:])
	return err == nil && port >= 0 && port <= 65535
}

func (c *preciseConfig) discover() bool { return c.Events.Discover == nil || *c.Events.Discover }

// typeEndpointSource is the source that reports the pool's endpoints. A producer dials only those that it reports.
const typeEndpointSource = "endpoint-notification-source"

// reach warns of a configuration under which no events come, or not those that
// are asked for.
func (c *preciseConfig) reach(b *picker.Builder, name string) {
	const silent = "so no events will ever come and all scores stay 0"
	switch c.reported = b.Extracts(typeEndpointSource, name); {
	case !c.discover() && c.Events.Endpoint == "":
		b.Warn("plugin %s: kvEventsConfig has neither zmqEndpoint nor discoverPods, "+silent, name)
	case !c.reported && c.discover() && (c.Events.Endpoint == "" || c.Events.Discover != nil):
		so := silent
		if c.Events.Endpoint != "" {
			so = "so events come only to zmqEndpoint"
		}
		b.Warn("plugin %s: kvEventsConfig.discoverPods is on, and no source reports the endpoints, %s; declare "+
			"{type: %s} under plugins, and {pluginRef: %s, extractors: [{pluginRef: %s}]} under dataLayer.sources",
			name, so, typeEndpointSource, typeEndpointSource, name)
	}
}

func (c *preciseConfig) hasher() kv.Hasher {
	return kv.Hasher{BlockTokens: c.TokenProcessor.BlockTokens, Seed: c.TokenProcessor.HashSeed}
}

func (c *preciseConfig) index() kvindex.Config {
	x := kvindex.Config{Hasher: c.hasher()}
	if m := c.IndexerConfig.BlockIndex.InMemory; m != nil && m.Size > 0 {
		x.MaxBlocks = m.Size
	}
	if len(c.IndexerConfig.Backends) > 0 {
		x.Weights = map[string]float64{}
		for _, b := range c.IndexerConfig.Backends {
			x.Weights[strings.ToLower(b.Name)] = b.Weight
		}
	}
	return x
}

// KVSources configure the reception of KV events.
type KVSources struct {
	// Bind is the endpoint that model servers connect to, like tcp://*:5557; "" is none.
	Bind string
	// Discover dials every endpoint at its address and SocketPort, if an endpoint-notification-source is declared, too.
	// ReplayPort, if it is not 0, is the port for requests of lost events.
	Discover               bool
	SocketPort, ReplayPort int
	TopicFilter            string
	// SGLang states that the events are in SGLang's form, not in vLLM's.
	SGLang bool
	// Workers is concurrency, for the metric of that name; one goroutine does
	// the work here.
	Workers int
}

func (c *preciseConfig) sources() KVSources {
	e := &c.Events
	s := KVSources{Bind: e.Endpoint, Discover: c.discover() && c.reported, SocketPort: e.Pods.SocketPort,
		ReplayPort:  e.Pods.ReplayPort,
		TopicFilter: e.TopicFilter, SGLang: e.EngineType == engineSGLang, Workers: e.Concurrency}
	s.Workers = cmp.Or(max(s.Workers, 0), 4)
	return s
}
