package epp

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// KVOptions configure a picker's KV indexes, besides the picker's configuration.
type KVOptions struct {
	// Registry takes the metrics that the configuration asks for
	// (kvBlockIndexConfig.enableMetrics); nil takes none.
	Registry prometheus.Registerer
	// Sockets, if not nil, are those that indexes before and after these ones bind, too.
	Sockets *kvevents.Sockets
	// Publisher, if not nil, returns the endpoints at which a model server publishes and replays its KV events. ""
	// means the configured ones: the endpoint's address with socketPort and replaySocketPort.
	Publisher func(e *picker.Endpoint) (events, replay string)
	// OnIndex, if not nil, gets each index's rule for keys before the index listens.
	OnIndex func(kv.Hasher)
	// OnMessage, if not nil, gets every message that an index took, after it took effect. It must not wait for the
	// picker.
	OnMessage func(plugin string, r kvevents.Report)
}

// kvEvents bring the KV events of model servers to the indexes of a picker.
type kvEvents struct {
	k    *Picking
	o    KVOptions
	list []*kvSource
	jobs chan func() // dialling and hanging up, which may wait for the picker
	done chan struct{}

	mu     sync.Mutex // guards closed and sends to jobs
	closed bool
}

// kvSource receives the events of one index.
type kvSource struct {
	core.Index
	x         *kvEvents
	number    int
	sub       *kvevents.Subscriber
	decoder   kvcodec.Decoder
	began     time.Time
	publisher atomic.Int64 // publishers that are dialled
	dialled   sync.Map     // which: their pods' IDs, by address and port
	metrics   *kvMetrics
}

// portionBlocks is how many blocks of a message take effect in one turn of the picker. Decisions run between turns.
const portionBlocks = 128

// maxJobs bounds the waiting calls to dial and hang up.
const maxJobs = 1 << 16

// listenKV listens for the events that a picker's indexes are kept by. A picker
// without one gets nothing, at no cost.
func listenKV(k *Picking, o KVOptions) (*kvEvents, error) {
	indexes := k.m.Indexes()
	if len(indexes) == 0 {
		return nil, nil
	}
	x := &kvEvents{k: k, o: o, jobs: make(chan func(), maxJobs), done: make(chan struct{})}
	go func() {
		defer close(x.done)
		for job := range x.jobs {
			job()
		}
	}()
	for i, ix := range indexes {
		s, err := x.listen(i, ix)
		if err != nil {
			x.close()
			return nil, fmt.Errorf("plugin %s: %w", ix.Producer.Name(), err)
		}
		x.list = append(x.list, s)
	}
	return x, nil
}

func (x *kvEvents) listen(number int, ix core.Index) (*kvSource, error) {
	if x.o.OnIndex != nil {
		x.o.OnIndex(ix.Config.Hasher)
	}
	s := &kvSource{Index: ix, x: x, number: number, decoder: kvcodec.Decoder{SGLang: ix.Sources.SGLang},
		began: time.Now()}
	if ix.Producer.EnableMetrics() && x.o.Registry != nil {
		s.metrics = newKVMetrics(s)
		if err := x.o.Registry.Register(s.metrics); err != nil {
			return nil, err
		}
		ix.Producer.Took = s.metrics.took
	}
	o := kvevents.SubscriberOptions{Bind: ix.Sources.Bind, Sockets: x.o.Sockets,
		Prefixes: []string{ix.Sources.TopicFilter}, ReplayPort: ix.Sources.ReplayPort,
		Feed: kvfeed.Config{Gaps: kvfeed.GapsIgnore}, Handle: s.handle, Log: x.k.o.Log}
	if ix.Sources.ReplayPort > 0 {
		o.Feed.Gaps = kvfeed.GapsReplay
	}
	var err error
	s.sub, err = kvevents.NewSubscriber(o)
	return s, err
}

// dial subscribes to an endpoint's events. Neither dial nor hangup waits.
func (x *kvEvents) dial(index int, t *core.Target) {
	s, e := x.list[index], t.Endpoint
	x.queue(func() {
		events, replay := "", ""
		if x.o.Publisher != nil {
			events, replay = x.o.Publisher(e)
		}
		events = cmp.Or(events, "tcp://"+net.JoinHostPort(e.Address, strconv.Itoa(s.Sources.SocketPort+e.Rank)))
		if replay == "" && s.Sources.ReplayPort > 0 {
			replay = "tcp://" + net.JoinHostPort(e.Address, strconv.Itoa(s.Sources.ReplayPort+e.Rank))
		}
		s.publisher.Add(1)
		s.dialled.Store(e.HostPort(), e.ID())
		if err := s.sub.Dial(kv.Topic{Pod: e.HostPort()}, events, replay); err != nil {
			x.k.o.Log.Error("epp: an endpoint's KV events cannot be had", "endpoint", e.Name, "publisher", events,
				"error", err)
		}
	})
}

// queue runs a job after the earlier ones, unless close was called.
func (x *kvEvents) queue(job func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.jobs <- job
	}
}

func (x *kvEvents) hangup(index int, t *core.Target) {
	s, pod := x.list[index], t.HostPort()
	x.queue(func() {
		s.publisher.Add(-1)
		s.sub.Hangup(pod)
		if s.dialled.Delete(pod); s.metrics != nil {
			s.metrics.left(t.ID())
		}
	})
}

// mismatch warns of an engine whose blocks are not the picker's.
func (x *kvEvents) mismatch(e *core.Effect) {
	s, endpoint := x.list[e.Source], ""
	if e.Target != nil {
		endpoint = e.Target.HostPort()
	}
	own := s.Config.Hasher.Tokens()
	x.k.o.Log.Warn("epp: picker and engine disagree about the size of a KV block", "plugin", s.Producer.Name(),
		"endpoint", endpoint,
		"picker_block_tokens", own, "engine_block_tokens", e.Count, "consequence", kvindex.SizeMismatch(own, e.Count),
		"do", fmt.Sprintf("set tokenProcessorConfig.blockSizeTokens to %d", e.Count))
}

// handle handles one delivery of the subscriber.
func (s *kvSource) handle(d kvevents.Delivery) {
	r := kvevents.Receive(&s.decoder, d, s.x.k.o.Log, func(r *kvevents.Report) bool {
		if r.Lost != "" {
			s.x.k.report(core.KVLost{Index: s.number, Pod: r.From.Pod})
			return true
		}
		return kvevents.Portions(r.Events, portionBlocks, func(events []kv.Event) bool {
			s.x.k.report(core.KVEvents{Index: s.number, From: r.From, Events: events})
			return true
		})
	})
	if s.metrics != nil {
		s.metrics.message(&r)
	}
	if s.x.o.OnMessage != nil {
		s.x.o.OnMessage(s.Producer.Name(), r)
	}
}

// Dialling returns how many indexes dial each endpoint's publisher.
func (k *Picking) Dialling() int {
	n := 0
	if k.kv != nil {
		for _, s := range k.kv.list {
			if s.Sources.Discover {
				n++
			}
		}
	}
	return n
}

// KVState is a summary of one index.
type KVState struct {
	Plugin string
	// Hasher makes its keys. It keeps at most MaxBlocks of them, 0 is no bound; Displaced says
	// that some gave way to others.
	Hasher    kv.Hasher
	MaxBlocks int
	Displaced bool
	// Began is the time from which the index got events, and Lost states that it was emptied since. Replays states that
	// it requests earlier events.
	Began   time.Time
	Lost    bool
	Replays bool
	// Blocks are the keys of the blocks that each pod ("address:port") holds,
	// sorted.
	Blocks map[string][]kv.Key
}

// KVState reads all indexes.
func (k *Picking) KVState() []KVState {
	if k.kv == nil {
		return nil
	}
	var out []KVState
	for _, s := range k.kv.list {
		x := KVState{Plugin: s.Producer.Name(), Hasher: s.Config.Hasher, MaxBlocks: s.Config.MaxBlocks, Began: s.began,
			Replays: s.Sources.ReplayPort > 0, Blocks: map[string][]kv.Key{}}
		k.With(func(m *core.Machine, _ machine.Time) {
			index := m.KV(s.number)
			x.Lost, x.Displaced = m.Indexes()[s.number].Lost, index.Stats().Displaced > 0
			for _, pod := range index.PodNames() {
				x.Blocks[pod] = index.Keys(pod)
			}
		})
		out = append(out, x)
	}
	return out
}

// KVEndpoint returns the endpoint that publishers connect to if an index binds a socket; "" if it only dials.
func (k *Picking) KVEndpoint(index int) string { return k.kv.list[index].sub.Endpoint() }

// EventsAt returns where publishers connect whose configuration names this port of the picker, "" if no index binds it.
func (k *Picking) EventsAt(port string) string {
	if k.kv == nil {
		return ""
	}
	for _, x := range k.kv.list {
		if strings.HasSuffix(x.Sources.Bind, ":"+port) {
			return x.sub.Endpoint()
		}
	}
	return ""
}

// close hangs up. The indexes keep what they knew last.
func (x *kvEvents) close() {
	if x == nil {
		return
	}
	x.mu.Lock()
	x.closed = true
	close(x.jobs)
	x.mu.Unlock()
	<-x.done
	for _, s := range x.list {
		_ = s.sub.Close() // nothing is left to report
		if s.metrics != nil {
			x.o.Registry.Unregister(s.metrics)
		}
	}
}
