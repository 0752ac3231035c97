package kvmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// Manager is a running KV-cache manager.
type Manager struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	events  eventLog

	ix    *kv.Index // run's alone, but for its View
	view  kv.View
	began time.Time

	jobs    chan job      // for the goroutine that owns the index
	asked   chan askedFor // the same, but dropped when it is busy
	scorers sync.Pool
	latest  atomic.Pointer[snapshot]

	sub    *kvevents.Subscriber
	server *http.Server
	http   net.Listener
	cancel context.CancelFunc
	ctx    context.Context
	wait   sync.WaitGroup
	failed chan error
	closed sync.Once
}

// job is something to do with the index, at its turn.
type job func(now machine.Time)

// askedFor is a prompt that was scored.
type askedFor struct {
	pod   string
	keys  []kv.Key
	found int
}

// snapshot is what requests need of the pods, taken every now and then.
type snapshot struct {
	pods   map[string]kv.PodInfo
	names  []string // sorted
	model  string   // the only one that events came for; "" if several
	models int
}

const (
	snapshotEvery = 20 * time.Millisecond
	maxModels     = 1024
)

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
	m := &Manager{opts: opts, log: opts.Log, ix: kv.NewIndex(opts.Index), began: time.Now(),
		jobs: make(chan job), asked: make(chan askedFor, 64), failed: make(chan error, 1)}
	m.events.log = opts.Log.With("component", "event_subscriber")
	m.view = m.ix.View()
	m.scorers.New = func() any { return m.view.Scorer() }
	m.latest.Store(&snapshot{model: opts.Model})
	m.metrics = newMetrics(m)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wait.Add(1)
	go m.run()
	if err := m.open(); err != nil {
		m.Close()
		return nil, err
	}
	m.log.Info("KV-cache manager started", "component", "main", "zmq", m.ZMQEndpoint(), "http", m.HTTPAddress(), "block_size", opts.Index.Hasher.Tokens())
	return m, nil
}

func (m *Manager) open() error {
	in := &ingest{m: m, decoder: kv.Decoder{Lenient: m.opts.Lenient}, models: map[string]bool{}}
	feed := m.opts.Feed
	if feed.Gaps == kv.GapsDrop { // the subscriber falls back to it where there is no replay
		feed.Gaps = kv.GapsReplay
	}
	var err error
	m.sub, err = kvevents.NewSubscriber(kvevents.SubscriberOptions{Bind: m.opts.ZMQBind, Prefixes: []string{""}, Feed: feed,
		ReplayPort: m.opts.ReplayPort, Handle: in.handle, Log: m.events.log})
	if err != nil {
		return err
	}
	for _, p := range m.opts.Pods {
		if err := m.sub.Dial(p.Name, p.Endpoint, p.Replay); err != nil {
			return fmt.Errorf("pod %s: %w", p.Name.Pod, err)
		}
	}
	if m.http, err = net.Listen("tcp", m.opts.HTTPAddress); err != nil {
		return fmt.Errorf("cannot serve HTTP: %w; is another server there? choose another port with HTTP_PORT", err)
	}
	m.server = &http.Server{Handler: m.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16, ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelDebug)}
	m.wait.Add(1)
	go func() {
		defer m.wait.Done()
		if err := m.server.Serve(m.http); !errors.Is(err, http.ErrServerClosed) {
			m.failed <- fmt.Errorf("HTTP server: %w", err)
		}
	}()
	return nil
}

// Run starts a manager and serves until the context ends.
func Run(ctx context.Context, opts Options) error {
	m, err := Start(opts)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Wait(ctx)
}

// Wait waits until the context ends, which is no error, or something fails.
func (m *Manager) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-m.failed:
		return err
	}
}

// ZMQEndpoint is where model servers connect to, with the port that it got.
func (m *Manager) ZMQEndpoint() string { return m.sub.Endpoint() }

// HTTPAddress is the API's host:port, with the port that it got.
func (m *Manager) HTTPAddress() string { return m.http.Addr().String() }

// Dial adds a publisher; Hangup takes it away with all that it holds.
func (m *Manager) Dial(p Pod) error { return m.sub.Dial(p.Name, p.Endpoint, p.Replay) }

// Hangup forgets a pod that is gone.
func (m *Manager) Hangup(pod string) {
	m.sub.Hangup(pod)
	m.do(func(now machine.Time) { m.ix.DropPod(now, pod) })
}

// Keys are the blocks that the index holds of a pod, sorted: for checks.
func (m *Manager) Keys(pod string) (keys []kv.Key) {
	m.do(func(machine.Time) { keys = m.ix.Keys(pod) })
	return keys
}

// Close ends the manager and waits until all of it has ended.
func (m *Manager) Close() {
	m.closed.Do(func() {
		if m.server != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			m.server.Shutdown(ctx)
			cancel()
			m.server.Close()
		}
		m.cancel()
		if m.sub != nil {
			m.sub.Close()
		}
		m.wait.Wait()
	})
}

// do has a job done by the owner of the index and waits for it. It says
// whether it was done: not after Close.
func (m *Manager) do(j job) bool {
	done := make(chan struct{})
	select {
	case m.jobs <- func(now machine.Time) { j(now); close(done) }:
		<-done
		return true
	case <-m.ctx.Done():
		return false
	}
}

// run owns the index: it is the machine's one goroutine.
func (m *Manager) run() {
	defer m.wait.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var taken time.Time // of the latest snapshot
	dirty := false
	for {
		wait := time.Hour
		if at, ok := m.ix.Next(); ok {
			wait = max(0, at.Duration()-time.Since(m.began))
		}
		if dirty {
			wait = min(wait, max(0, snapshotEvery-time.Since(taken)))
		}
		timer.Reset(wait)
		select {
		case <-m.ctx.Done():
			return
		case j := <-m.jobs:
			j(m.now())
			dirty = true
		case a := <-m.asked:
			m.ix.Asked(m.now(), a.pod, a.keys, a.found)
			dirty = true
		case <-timer.C:
		}
		m.ix.Advance(m.now(), m.say)
		if dirty && time.Since(taken) >= snapshotEvery {
			m.takeSnapshot()
			dirty, taken = false, time.Now()
		}
	}
}

func (m *Manager) now() machine.Time { return machine.FromDuration(time.Since(m.began)) }

// wall is a time of the index as a time of day.
func (m *Manager) wall(t machine.Time) time.Time { return m.began.Add(t.Duration()).UTC() }

func (m *Manager) say(e kv.Effect) {
	log := m.log.With("component", "index")
	switch e.Kind {
	case kv.BlocksExpired:
		log.Info("blocks expired", "blocks", e.Blocks)
	case kv.PodStale:
		log.Warn("pod is silent: unhealthy", "pod_id", e.Pod)
	case kv.PodHealthy:
		log.Info("pod is heard of again", "pod_id", e.Pod)
	case kv.PodForgotten:
		log.Warn("pod was silent too long: forgotten", "pod_id", e.Pod, "blocks", e.Blocks)
	}
}

func (m *Manager) takeSnapshot() {
	old := m.latest.Load()
	s := &snapshot{names: m.ix.PodNames(), model: old.model, models: old.models}
	s.pods = make(map[string]kv.PodInfo, len(s.names))
	for _, name := range s.names {
		s.pods[name], _ = m.ix.Pod(m.now(), name)
	}
	m.latest.Store(s)
}
