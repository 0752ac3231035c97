package scenario

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// KVEvents are the events that model servers publish about their KV caches.
type KVEvents struct {
	// The format of events: none, msgpack (vLLM), msgpack-map (newer vLLM), json (document 003).
	Format KVEventFormat `json:"format" oneof:"none,msgpack,msgpack-map,json" default:"none"`
	// How long a server collects events before it sends them together (document 003's VLLM_KV_EVENT_INTERVAL_MS).
	Interval time.Duration `json:"interval" min:"100us" max:"1h" default:"100ms"`
	// How long a message is under way in virtual time.
	Delay time.Duration `json:"delay" min:"0s" max:"1h"`
	// Where servers send events besides their own socket, such as the zmqEndpoint that a picker binds:
	// tcp://127.0.0.1:5557.
	Connect []string `json:"connect" max:"16"`
}

// Published reports whether model servers publish events.
func (e *KVEvents) Published() bool { return e.Format != NoKVEvents }

// KVEventFormat is the encoding of KV events.
type KVEventFormat string

// The formats.
const (
	NoKVEvents KVEventFormat = "none"
	MsgpackKV  KVEventFormat = "msgpack"
	JSONKV     KVEventFormat = "json"
)

// checkKVCache checks the KV events of a pool.
func (s *checker) checkKVCache(p *Pool, path string) {
	e := &p.ModelServer.KVEvents
	field := path + ".modelServer.kvEvents"
	switch {
	case e.Published() && len(p.Endpoints) > 0:
		s.bad(field, "given beside endpoints",
			"nothing: the operator of external model servers configures their events")
	case e.Published() && p.ModelServer.Batching == Independent:
		s.bad(field, "given with batching independent, which has no KV cache", "batching: continuous beside it")
	case p.KVManager && !e.Published():
		s.bad(path+".kvManager", "given, and the model servers publish no KV events",
			"modelServer.kvEvents with a format beside it")
	}
	for i, endpoint := range e.Connect {
		if err := checkZMQ(endpoint); err != nil {
			s.bad(fmt.Sprintf("%s.connect[%d]", field, i), err.Error(), "tcp://HOST:PORT such as tcp://127.0.0.1:5557")
		}
	}
}

// defaultBlockTokens is an engine's default size of a KV block.
const defaultBlockTokens = 16

// blockTokens returns the size of the model servers' KV blocks.
func (p *Pool) blockTokens() int { return cmp.Or(p.ModelServer.BlockSize, defaultBlockTokens) }

func checkZMQ(endpoint string) error {
	address, tcp := strings.CutPrefix(endpoint, "tcp://")
	if !tcp {
		return fmt.Errorf("%q", endpoint)
	}
	return CheckEndpoint(address)
}

// maxShared bounds the memory of all shared beginnings, in characters.
const maxShared = 64 << 20

// checkShared checks the number and the length of shared beginnings.
func (s *checker) checkShared(p *SharedPrompt, field string) {
	switch longest := p.Characters.Quantile(1); {
	case p.Groups > 0 && p.Characters.Mean() <= 0:
		s.bad(field, "groups without characters", "characters: how long a shared beginning is")
	case p.Groups == 0 && p.Characters.Mean() > 0:
		s.bad(field, "characters without groups", "groups: how many shared beginnings there are")
	case float64(p.Groups)*float64(longest) > maxShared:
		s.bad(field, fmt.Sprintf("%d groups of up to %d characters", p.Groups, longest),
			fmt.Sprintf("at most %d characters in all", maxShared))
	}
}
