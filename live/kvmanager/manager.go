package kvmanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Manager is a running KV-Cache Manager.
type Manager struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	events  eventLog

	index   *kvevents.Indexer
	scorers sync.Pool
	latest  atomic.Pointer[snapshot]
	models  atomic.Pointer[[]string] // models with events; at most maxModels

	http    string // host:port of the API
	serving serve.Group
	closed  sync.Once
	leave   context.CancelFunc
}

// snapshot holds the pods as scoring needs them. The index's OnChange replaces it, at most every 20 ms.
type snapshot struct {
	pods  map[string]kvindex.PodInfo
	names []string // sorted
}

const maxModels = 1024

// Start starts a manager. Close stops it.
func Start(opts Options) (*Manager, error) {
	opts.MaxBodyBytes = cmp.Or(max(opts.MaxBodyBytes, 0), 8<<20)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.Tokenizer = cmp.Or[tokens.Tokenizer](opts.Tokenizer, tokens.Packed{})
	if opts.Feed.Gaps == kvfeed.GapsDrop { // the subscriber drops blocks at a gap if there is no replay
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
		OnEvents: m.noteModels, OnMessage: m.received, OnEffect: m.logEffect, OnChange: m.takeSnapshot,
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

// Failed receives the error of a listener that ended by itself, or an OutOfMemoryError.
func (m *Manager) Failed() <-chan error { return m.serving.Failed() }

// ZMQEndpoint returns the endpoint that model servers connect to, with its actual port.
func (m *Manager) ZMQEndpoint() string { return m.index.Endpoint() }

// HTTPAddress returns the API's host:port, with its actual port.
func (m *Manager) HTTPAddress() string { return m.http }

// Dial connects to a publisher until Hangup.
func (m *Manager) Dial(p Pod) error { return m.index.Dial(p.Name, p.Endpoint, p.Replay) }

// Hangup drops a pod and all its blocks.
func (m *Manager) Hangup(pod string) { m.index.Hangup(pod) }

// Register adds metrics to the manager's own.
func (m *Manager) Register(c prometheus.Collector) error { return m.metrics.registry.Register(c) }

// Keys returns the keys of the blocks that the index holds for a pod, sorted. Checks use it.
func (m *Manager) Keys(pod string) (keys []kv.Key) {
	m.index.Do(func(_ machine.Time, ix *kvindex.Index) { keys = ix.Keys(pod) })
	return keys
}

// Stop is Close in the form that the parts' owners call.
func (m *Manager) Stop(context.Context) error {
	m.Close()
	return nil
}

// Close stops the manager and waits until all its goroutines have ended.
func (m *Manager) Close() {
	m.closed.Do(func() {
		if m.leave != nil {
			m.leave()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = m.serving.Stop(ctx) // errors of closing no longer matter
		cancel()
		if m.index != nil {
			m.index.Close()
		}
		m.serving.Wait()
	})
}

// received counts and logs one message.
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

// noteModels records the models that have events. A request need not name the model if there is only one.
func (m *Manager) noteModels(from kv.Topic, events []kv.Event) {
	known := *m.models.Load()
	for i := range events {
		e := &events[i]
		model := cmp.Or(e.Model, from.Model)
		if e.Kind != kv.Stored || model == "" || len(known) >= maxModels || slices.Contains(known, model) {
			continue
		}
		known = append(slices.Clone(known), model)
		m.models.Store(&known)
	}
}

func (m *Manager) logEffect(e kvindex.Effect) {
	log := m.log.With("component", "index")
	switch e.Kind {
	case kvindex.BlocksExpired:
		log.Info("blocks expired", "blocks", e.Blocks)
	case kvindex.PodStale:
		log.Warn("pod is silent: unhealthy", "pod_id", e.Pod)
	case kvindex.PodHealthy:
		log.Info("pod sends events again", "pod_id", e.Pod)
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
