package kvmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Manager is a running KV-cache manager.
type Manager struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	events  eventLog

	index   *kvevents.Indexer
	scorers sync.Pool
	latest  atomic.Pointer[snapshot]
	models  atomic.Pointer[[]string] // that events came for; up to maxModels

	http    string // host:port of the API
	serving serve.Group
	closed  sync.Once
	leave   context.CancelFunc
}

// snapshot is what requests need of the pods, taken every now and then.
type snapshot struct {
	pods  map[string]kvindex.PodInfo
	names []string // sorted
}

const maxModels = 1024

// Start starts a manager; Close ends it.
func Start(opts Options) (*Manager, error) {
	if opts.MaxBodyBytes <= 0 {
		opts.MaxBodyBytes = 8 << 20
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Tokenizer == nil {
		opts.Tokenizer = tokens.Packed{}
	}
	if opts.Feed.Gaps == kvfeed.GapsDrop { // the subscriber falls back to it where there is no replay
		opts.Feed.Gaps = kvfeed.GapsReplay
	}
	m := &Manager{opts: opts, log: opts.Log, serving: serve.Group{Log: opts.Log}}
	m.events.log = opts.Log.With("component", "event_subscriber")
	m.latest.Store(&snapshot{})
	m.models.Store(&[]string{})
	m.metrics = newMetrics(m)
	if err := m.open(); err != nil {
		m.Close()
		return nil, err
	}
	m.log.Info("KV-cache manager started", "component", "main", "zmq", m.ZMQEndpoint(), "http", m.HTTPAddress(),
		"block_size", opts.Index.Hasher.Tokens())
	return m, nil
}

func (m *Manager) open() error {
	var err error
	m.index, err = kvevents.NewIndexer(kvevents.IndexerOptions{
		Subscriber: kvevents.SubscriberOptions{Bind: m.opts.ZMQBind, Prefixes: []string{""}, Feed: m.opts.Feed,
			ReplayPort: m.opts.ReplayPort, Log: m.events.log},
		Index: m.opts.Index, Lenient: m.opts.Lenient, Model: m.opts.Model,
		OnEvents: m.noteModels, OnMessage: m.received, OnEffect: m.say, OnChange: m.takeSnapshot,
	})
	if err != nil {
		return err
	}
	m.scorers.New = func() any { return m.index.View().Scorer() }
	for _, p := range m.opts.Pods {
		if err := m.Dial(p); err != nil {
			return fmt.Errorf("pod %s: %w", p.Name.Pod, err)
		}
	}
	if m.http, err = m.serving.Serve("the KV-cache manager's API (HTTP_PORT)", m.opts.HTTPAddress,
		serve.Pages(m.handler(), m.log)); err != nil {
		return err
	}
	if m.opts.MemoryLimit > 0 {
		ctx, leave := context.WithCancel(context.Background())
		m.leave = leave
		m.serving.Go("the KV-cache manager", func() error { return watchMemory(ctx, m.opts.MemoryLimit) })
	}
	return nil
}

// Failed has the error of a listener that ended by itself, or OutOfMemoryError.
func (m *Manager) Failed() <-chan error { return m.serving.Failed() }

// ZMQEndpoint is where model servers connect to, with the port that it got.
func (m *Manager) ZMQEndpoint() string { return m.index.Endpoint() }

// HTTPAddress is the API's host:port, with the port that it got.
func (m *Manager) HTTPAddress() string { return m.http }

// Dial adds a publisher; Hangup takes it away with all that it holds.
func (m *Manager) Dial(p Pod) error { return m.index.Dial(p.Name, p.Endpoint, p.Replay) }

// Hangup forgets a pod that is gone.
func (m *Manager) Hangup(pod string) { m.index.Hangup(pod) }

// Keys are the blocks that the index holds of a pod, sorted: for checks.
func (m *Manager) Keys(pod string) (keys []kv.Key) {
	m.index.Do(func(_ machine.Time, ix *kvindex.Index) { keys = ix.Keys(pod) })
	return keys
}

// Stop is Close for those who stop parts.
func (m *Manager) Stop(context.Context) error {
	m.Close()
	return nil
}

// Close ends the manager and waits until all of it has ended.
func (m *Manager) Close() {
	m.closed.Do(func() {
		if m.leave != nil {
			m.leave()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = m.serving.Stop(ctx) // of closing what nobody uses any more
		cancel()
		if m.index != nil {
			m.index.Close()
		}
		m.serving.Wait()
	})
}

// received is told of every message.
func (m *Manager) received(r kvevents.Report) {
	if m.opts.OnMessage != nil {
		m.opts.OnMessage(r)
	}
	switch {
	case r.Lost != "":
		m.metrics.dropped.WithLabelValues("lost").Inc()
		return
	case errors.Is(r.Err, kvevents.ErrNameless):
		m.metrics.dropped.WithLabelValues("nameless").Inc()
		return
	case r.Err != nil:
		m.metrics.dropped.WithLabelValues("malformed").Inc()
		return
	}
	m.metrics.processed(&r)
	if len(r.Events) > 0 {
		m.events.received(time.Now(), r.From.Pod, r.Events, r.Took)
	}
}

// noteModels remembers which models there are: requests need not name the only
// one.
func (m *Manager) noteModels(from kv.Topic, events []kv.Event) {
	known := *m.models.Load()
	for i := range events {
		e := &events[i]
		model := from.Model
		if e.Model != "" {
			model = e.Model
		}
		if e.Kind != kv.Stored || model == "" || len(known) >= maxModels || slices.Contains(known, model) {
			continue
		}
		known = append(slices.Clone(known), model)
		m.models.Store(&known)
	}
}

func (m *Manager) say(e kvindex.Effect) {
	log := m.log.With("component", "index")
	switch e.Kind {
	case kvindex.BlocksExpired:
		log.Info("blocks expired", "blocks", e.Blocks)
	case kvindex.PodStale:
		log.Warn("pod is silent: unhealthy", "pod_id", e.Pod)
	case kvindex.PodHealthy:
		log.Info("pod is heard of again", "pod_id", e.Pod)
	case kvindex.PodForgotten:
		log.Warn("pod was silent too long: forgotten", "pod_id", e.Pod, "blocks", e.Blocks)
	}
}

func (m *Manager) takeSnapshot(_ machine.Time, ix *kvindex.Index) {
	s := &snapshot{names: ix.PodNames()}
	s.pods = make(map[string]kvindex.PodInfo, len(s.names))
	for _, name := range s.names {
		s.pods[name], _ = ix.Pod(name)
	}
	m.latest.Store(s)
}
