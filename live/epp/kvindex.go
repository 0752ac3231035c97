package epp

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/plugins"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// KVOptions are what KV indexes need besides their picker.
type KVOptions struct {
	// Registry takes the figures that the configuration asks for
	// (kvBlockIndexConfig.enableMetrics); nil takes none.
	Registry prometheus.Registerer
	// Publisher, if not nil, says where an endpoint publishes and replays its KV
	// events; "" leaves it to the configuration: the endpoint's address with
	// socketPort and replaySocketPort.
	Publisher func(e *picker.Endpoint) (events, replay string)
	// OnIndex, if not nil, is told of each index by which rule it makes keys,
	// before it listens.
	OnIndex func(kv.Hasher)
	// OnMessage, if not nil, is told of every message that a producer's index
	// took, after it took effect. It must not wait for the picker.
	OnMessage func(plugin string, r kvevents.Report)
	Log       *slog.Logger
}

// KVIndexes feed a picker's precise-prefix producers: one index for each, kept
// from the events of the pool's model servers.
type KVIndexes struct {
	k    *Picking
	o    KVOptions
	list []*kvIndex
}

// kvIndex is one producer's index and where its events come from.
type kvIndex struct {
	*kvevents.Indexer
	name    string
	sources plugins.KVSources
	cfg     kv.Config
	block   int // tokens
	log     *slog.Logger
	metrics *kvMetrics
	told    func(plugin string, r kvevents.Report)

	following sync.Mutex // one follow at a time
	// mu is held for moments only, since events wait for it.
	mu     sync.Mutex
	known  map[string]string // endpoint ID → address and port
	names  map[string]string // what document 003 calls a pod → address and port
	warned map[string]int    // pod → block size that was warned about
}

// StartKVIndexes connects every precise-prefix producer of the picker to an
// index of its own. A picker without one gets none, at no cost.
func StartKVIndexes(k *Picking, o KVOptions) (*KVIndexes, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	x := &KVIndexes{k: k, o: o}
	var producers []*plugins.PrecisePrefix
	k.With(func(p *picker.Picker, _ machine.Time) {
		for _, pl := range p.Plugins() {
			if s := plugins.Precise(pl); s != nil {
				producers = append(producers, s)
			}
		}
	})
	for _, s := range producers {
		ix, err := x.start(s)
		if err != nil {
			x.Close()
			return nil, fmt.Errorf("plugin %s: %w", s.Name(), err)
		}
		x.list = append(x.list, ix)
	}
	x.Follow()
	return x, nil
}

func (x *KVIndexes) start(s *plugins.PrecisePrefix) (*kvIndex, error) {
	cfg := s.Index()
	if x.o.OnIndex != nil {
		x.o.OnIndex(cfg.Hasher)
	}
	ix := &kvIndex{name: s.Name(), sources: s.Sources(), cfg: cfg, block: cfg.Hasher.Tokens(), log: x.o.Log, told: x.o.OnMessage,
		known: map[string]string{}, names: map[string]string{}, warned: map[string]int{}}
	if s.EnableMetrics() && x.o.Registry != nil {
		ix.metrics = newKVMetrics(func() (l plugins.LookupStats) {
			x.k.With(func(*picker.Picker, machine.Time) { l = s.Lookups() })
			return l
		}, ix)
	}
	sub := kvevents.SubscriberOptions{Bind: ix.sources.Bind, Prefixes: []string{ix.sources.TopicFilter}, ReplayPort: ix.sources.ReplayPort,
		Feed: kv.FeedConfig{Gaps: kv.GapsIgnore}, Log: x.o.Log}
	if ix.sources.ReplayPort > 0 {
		sub.Feed.Gaps = kv.GapsReplay
	}
	var err error
	ix.Indexer, err = kvevents.NewIndexer(kvevents.IndexerOptions{Subscriber: sub, Index: cfg, SGLang: ix.sources.SGLang, OnEvents: ix.events, OnMessage: ix.message})
	if err != nil {
		return nil, err
	}
	index := plugins.KVIndex{View: ix.View(), Speculate: func(pod string, keys []kv.Key, ttl machine.Time) {
		ix.Do(func(now machine.Time, index *kv.Index) { index.Speculate(now, pod, keys, ttl) })
	}}
	if ix.metrics != nil {
		index.Took = ix.metrics.took
		if err := x.o.Registry.Register(ix.metrics); err != nil {
			ix.Close()
			return nil, err
		}
	}
	x.k.With(func(*picker.Picker, machine.Time) { s.Connect(index) })
	return ix, nil
}

// Follow dials the pool's new endpoints and forgets those that left, with all
// that they held. Call it after the endpoints changed.
func (x *KVIndexes) Follow() {
	if x == nil || len(x.list) == 0 {
		return
	}
	var view *picker.View
	x.k.With(func(p *picker.Picker, _ machine.Time) { view = p.Pool().View() })
	for _, ix := range x.list {
		ix.follow(view, x.o.Publisher)
	}
}

func (ix *kvIndex) follow(view *picker.View, publisher func(*picker.Endpoint) (string, string)) {
	ix.following.Lock()
	defer ix.following.Unlock()
	there := make(map[string]string, len(view.States))
	for i := range view.States {
		there[view.States[i].ID()] = view.States[i].HostPort()
	}
	var left []string
	var came []*picker.Endpoint
	ix.mu.Lock()
	for id, pod := range ix.known {
		if there[id] != pod {
			delete(ix.known, id)
			delete(ix.warned, pod)
			left = append(left, pod)
		}
	}
	for i := range view.States {
		if e := view.States[i].Endpoint; ix.known[e.ID()] == "" {
			ix.known[e.ID()] = e.HostPort()
			came = append(came, e)
		}
	}
	clear(ix.names)
	for i := range view.States {
		ix.names[view.States[i].Name] = view.States[i].HostPort()
	}
	ix.mu.Unlock()
	for _, pod := range left {
		ix.Hangup(pod)
	}
	if !ix.sources.Discover {
		return
	}
	for _, e := range came {
		ix.dial(e, publisher)
	}
}

func (ix *kvIndex) dial(e *picker.Endpoint, publisher func(*picker.Endpoint) (string, string)) {
	events, replay := "", ""
	if publisher != nil {
		events, replay = publisher(e)
	}
	if events == "" {
		events = "tcp://" + net.JoinHostPort(e.Address, strconv.Itoa(ix.sources.SocketPort+e.Rank))
	}
	if replay == "" && ix.sources.ReplayPort > 0 {
		replay = "tcp://" + net.JoinHostPort(e.Address, strconv.Itoa(ix.sources.ReplayPort+e.Rank))
	}
	if err := ix.Dial(kv.Topic{Pod: e.HostPort()}, events, replay); err != nil {
		ix.log.Error("epp: an endpoint's KV events cannot be had", "endpoint", e.Name, "publisher", events, "error", err)
	}
}

// events looks at what a pod announces, before it takes effect. Document 003's
// JSON names pods by name; the index has them by address and port.
func (ix *kvIndex) events(from kv.Topic, events []kv.Event) {
	for i := range events {
		e := &events[i]
		if e.Pod != "" {
			ix.mu.Lock()
			if hostPort := ix.names[e.Pod]; hostPort != "" {
				e.Pod = hostPort
			}
			ix.mu.Unlock()
		}
		if e.Kind == kv.Stored && e.BlockTokens > 0 && e.BlockTokens != ix.block {
			ix.mismatch(from.Pod, e.BlockTokens)
		}
		if ix.metrics != nil {
			ix.metrics.event(e)
		}
	}
}

// maxWarned bounds the pods that are remembered for having been warned about.
const maxWarned = 10_000

// mismatch warns once of an engine whose blocks are not the picker's.
func (ix *kvIndex) mismatch(pod string, engine int) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.warned[pod] == engine || len(ix.warned) >= maxWarned {
		return
	}
	ix.warned[pod] = engine
	ix.log.Warn("epp: picker and engine disagree about the size of a KV block", "plugin", ix.name, "endpoint", pod,
		"picker_block_tokens", ix.block, "engine_block_tokens", engine, "consequence", BlockSizeMismatch(ix.block, engine),
		"do", fmt.Sprintf("set tokenProcessorConfig.blockSizeTokens to %d", engine))
}

// BlockSizeMismatch says what comes of a picker and an engine whose KV blocks
// have different sizes, in tokens.
func BlockSizeMismatch(picker, engine int) string {
	switch {
	case engine < picker:
		return "what the engine announces block by block never fills one of the picker's, so decoded text is never found and prompts only as far as they are announced at once"
	case engine%picker != 0:
		return "the engine's blocks do not end where the picker's end, so what follows the first of them is never found"
	}
	return "prompts are found, in finer steps than the engine can use: a match may be up to one engine block too long"
}

func (ix *kvIndex) message(r kvevents.Report) {
	if ix.metrics != nil {
		ix.metrics.message(ix.sources, r)
	}
	if ix.told != nil {
		ix.told(ix.name, r)
	}
}

// Dialling is how many indexes dial each endpoint's publisher.
func (x *KVIndexes) Dialling() int {
	n := 0
	for _, ix := range x.list {
		if ix.sources.Discover {
			n++
		}
	}
	return n
}

// KVState is what one index knows.
type KVState struct {
	Plugin string
	// Hasher makes its keys. It keeps at most MaxBlocks of them; 0 is no bound.
	Hasher    kv.Hasher
	MaxBlocks int
	// Began is when it began to listen. Replays says that it asks for what was
	// published before.
	Began   time.Time
	Replays bool
	// Blocks are the keys of the blocks that each pod ("address:port") holds,
	// sorted.
	Blocks map[string][]kv.Key
}

// State reads all indexes.
func (x *KVIndexes) State() []KVState {
	var out []KVState
	for _, ix := range x.list {
		s := KVState{Plugin: ix.name, Hasher: ix.cfg.Hasher, MaxBlocks: ix.cfg.MaxBlocks, Began: ix.Wall(0), Replays: ix.sources.ReplayPort > 0, Blocks: map[string][]kv.Key{}}
		ix.Do(func(_ machine.Time, index *kv.Index) {
			for _, pod := range index.PodNames() {
				s.Blocks[pod] = index.Keys(pod)
			}
		})
		out = append(out, s)
	}
	return out
}

// Close hangs up and ends the indexes. The producers keep what they knew last.
func (x *KVIndexes) Close() {
	if x == nil {
		return
	}
	for _, ix := range x.list {
		ix.Close()
		if ix.metrics != nil {
			x.o.Registry.Unregister(ix.metrics)
		}
	}
}
