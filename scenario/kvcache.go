package scenario

import (
	"fmt"
	"strings"
	"time"
)

// KVEvents is what model servers tell about their KV caches.
type KVEvents struct {
	// What events look like: none, msgpack (vLLM), msgpack-map (newer vLLM), json (document 003).
	Format KVEventFormat `json:"format"`
	// How long an event waits for others to travel with (document 003's VLLM_KV_EVENT_INTERVAL_MS).
	Interval time.Duration `json:"interval" min:"100us" max:"1h"`
	// How long a message is under way besides. In virtual time only; a live one takes as long as it takes.
	Delay time.Duration `json:"delay" min:"0s" max:"1h"`
	// Where servers send events besides their own socket, such as the zmqEndpoint that a picker binds:
	// tcp://127.0.0.1:5557.
	Connect []string `json:"connect" max:"16"`
}

func (e *KVEvents) defaults() {
	e.Format = NoKVEvents
	e.Interval = 100 * time.Millisecond
}

// Published says whether there are any events.
func (e *KVEvents) Published() bool { return e.Format != NoKVEvents }

// KVEventFormat is how KV events are written.
type KVEventFormat string

// The formats.
const (
	NoKVEvents KVEventFormat = "none"
	MsgpackKV  KVEventFormat = "msgpack"
	MapKV      KVEventFormat = "msgpack-map"
	JSONKV     KVEventFormat = "json"
)

func (KVEventFormat) Values() []string { return []string{"none", "msgpack", "msgpack-map", "json"} }

// checkKVCache tells what nobody would hear of, and what would be heard and
// never understood.
func (s *Scenario) checkKVCache(p *Pool, path string) Problems {
	var out Problems
	e := &p.ModelServer.KVEvents
	field := path + ".modelServer.kvEvents"
	add := func(at, found, expected string) { out = append(out, s.problem(at, found, expected)) }
	switch {
	case e.Published() && len(p.Endpoints) > 0:
		add(field, "given beside endpoints", "nothing: what someone else's model servers publish is configured there")
	case e.Published() && p.ModelServer.Batching == Independent:
		add(field, "given with batching independent, which has no KV cache", "batching: continuous beside it")
	case p.KVManager && !e.Published():
		add(path+".kvManager", "given, and the model servers publish no KV events",
			"modelServer.kvEvents with a format beside it")
	}
	for i, endpoint := range e.Connect {
		if err := checkZMQ(endpoint); err != nil {
			add(fmt.Sprintf("%s.connect[%d]", field, i), err.Error(), "tcp://HOST:PORT such as tcp://127.0.0.1:5557")
		}
	}
	return out
}

// defaultBlockTokens is a KV block of an engine whose scenario does not say.
const defaultBlockTokens = 16

// blockTokens is the size of the model servers' KV blocks.
func (p *Pool) blockTokens() int {
	if p.ModelServer.BlockSize > 0 {
		return p.ModelServer.BlockSize
	}
	return defaultBlockTokens
}

func checkZMQ(endpoint string) error {
	address, tcp := strings.CutPrefix(endpoint, "tcp://")
	if !tcp {
		return fmt.Errorf("%q", endpoint)
	}
	return CheckEndpoint(address)
}

// maxShared bounds what all shared beginnings take in memory, in characters.
const maxShared = 64 << 20

// checkShared tells shared beginnings without a length, or too many.
func (s *Scenario) checkShared(p *SharedPrompt, field string) Problems {
	switch longest := p.Characters.Quantile(1); {
	case p.Groups > 0 && p.Characters.Mean() <= 0:
		return Problems{s.problem(field, "groups without characters", "characters: how long a shared beginning is")}
	case p.Groups == 0 && p.Characters.Mean() > 0:
		return Problems{s.problem(field, "characters without groups", "groups: how many shared beginnings there are")}
	case float64(p.Groups)*float64(longest) > maxShared:
		return Problems{s.problem(field, fmt.Sprintf("%d groups of up to %d characters", p.Groups, longest),
			fmt.Sprintf("at most %d characters in all", maxShared))}
	}
	return nil
}
