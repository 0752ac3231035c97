package kvevents

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/windtunnel/windtunnel/core/bounded"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Delivery is what a Subscriber hands to its handler.
type Delivery struct {
	// From is the publisher: the name that Dial was given, or else what the
	// topic says. Its pod is empty when neither says anything.
	From kv.Topic
	// Payload is the next message in order; nil when messages were lost.
	Payload []byte
	Seq     uint64
	// Lost says why what this pod holds is not known any more.
	Lost string
}

// SubscriberOptions shape a Subscriber.
type SubscriberOptions struct {
	// Bind is where publishers connect to, like tcp://127.0.0.1:5555; "" for
	// subscribers that only dial.
	Bind string
	// Prefixes are the topics wanted; nil means kv.TopicPrefix. "" is
	// everything, also messages without a topic.
	Prefixes []string
	Feed     kv.FeedConfig
	// ReplayPort is where publishers that come by themselves replay: on the
	// address that they come from, whatever they say theirs is. 0 is nowhere.
	// Dial has its own.
	ReplayPort int
	MaxMessage int // bytes; 0 means DefaultMaxMessage
	// MaxPods is how many publishers are known at a time; 0 means DefaultMaxPods.
	// Beyond it one that has hung up, or was silent longest, is forgotten.
	MaxPods int
	// Handle takes deliveries, one after another. While it works, publishers
	// wait.
	Handle func(Delivery)
	Log    *slog.Logger
}

// Subscriber receives KV events. Its methods may be called from any goroutine.
type Subscriber struct {
	opts   SubscriberOptions
	sub    peers
	cancel context.CancelFunc
	ctx    context.Context
	addr   net.Addr
	began  time.Time
	in     chan inbound
	done   chan struct{}
	extra  sync.WaitGroup // replays

	// Run's alone: the publishers' feeds by pod, of those whose connection is
	// there and of those who hung up, and when they want to be woken.
	feeds, ended *bounded.Store[string, *feedState]
	due          machine.Queue[*feedState]

	mu     sync.Mutex
	dialed map[string]context.CancelFunc
}

// inbound is what reaches the one goroutine that owns the feeds.
type inbound struct {
	what    inboundKind
	from    kv.Topic
	seq     uint64
	payload []byte
	replay  string // endpoint
	round   int    // which replay
	whole   bool   // the replay came to its end
}

type inboundKind uint8

const (
	liveMessage inboundKind = iota
	plainMessage
	peerConnected
	peerGone
	replayedMessage
	replayEnded
	podForgotten
)

// feedState is one pod's feed and its replays.
type feedState struct {
	feed   *kv.Feed
	from   kv.Topic
	replay string
	round  int
	stop   context.CancelFunc
	queued machine.Time // when it is woken at the latest; Never for not at all
	gone   bool
}

// NewSubscriber starts a subscriber; Close ends it.
func NewSubscriber(opts SubscriberOptions) (*Subscriber, error) {
	if opts.Prefixes == nil {
		opts.Prefixes = []string{kv.TopicPrefix}
	}
	if opts.MaxMessage <= 0 {
		opts.MaxMessage = DefaultMaxMessage
	}
	if opts.MaxPods <= 0 {
		opts.MaxPods = DefaultMaxPods
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Subscriber{opts: opts, ctx: ctx, cancel: cancel, began: time.Now(), in: make(chan inbound, 8),
		done: make(chan struct{}), dialed: map[string]context.CancelFunc{},
		feeds: bounded.New[string, *feedState](bounded.Limits{}, nil), ended: bounded.New[string, *feedState](bounded.Limits{}, nil)}
	s.sub = peers{kind: zmq4.Sub, maxMessage: opts.MaxMessage, log: opts.Log, serve: func(ctx context.Context, c *conn) { s.serve(ctx, c, kv.Topic{}, "") }}
	if opts.Bind != "" {
		var err error
		if s.addr, err = s.sub.listen(ctx, opts.Bind); err != nil {
			cancel()
			s.sub.wait.Wait()
			return nil, err
		}
	}
	go s.run()
	return s, nil
}

// Endpoint is where the subscriber is bound, with the port that it got.
func (s *Subscriber) Endpoint() string { return endpointOf(s.addr) }

// Dial keeps a connection to one pod's publisher until Hangup. From names the
// pod in deliveries: as llm-d-router does, the name goes by where it was
// dialled and not by its topic. Its model serves until a topic names one, as
// replays of older vLLM come without. Replay is the pod's replay endpoint, ""
// if it has none.
func (s *Subscriber) Dial(from kv.Topic, endpoint, replay string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return net.ErrClosed
	}
	pod := from.Pod
	if _, there := s.dialed[pod]; there {
		return nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	p := &peers{kind: zmq4.Sub, maxMessage: s.opts.MaxMessage, log: s.opts.Log,
		serve: func(ctx context.Context, c *conn) { s.serve(ctx, c, from, replay) }}
	if err := p.dial(ctx, endpoint, nil); err != nil {
		cancel()
		return err
	}
	s.sub.wait.Add(1)
	go func() {
		defer s.sub.wait.Done()
		p.wait.Wait()
	}()
	s.dialed[pod] = cancel
	return nil
}

// Hangup ends a connection that Dial made, and forgets the pod's sequence.
func (s *Subscriber) Hangup(pod string) {
	s.mu.Lock()
	cancel := s.dialed[pod]
	delete(s.dialed, pod)
	s.mu.Unlock()
	if cancel != nil {
		cancel()
		s.send(s.ctx, inbound{what: podForgotten, from: kv.Topic{Pod: pod}})
	}
}

// Close hangs up on everybody and waits until the handler is idle.
func (s *Subscriber) Close() error {
	s.mu.Lock() // no Dial is half way from here on
	s.cancel()
	s.mu.Unlock()
	s.sub.wait.Wait()
	<-s.done
	s.extra.Wait()
	return nil
}

func (s *Subscriber) send(ctx context.Context, m inbound) {
	select {
	case s.in <- m:
	case <-ctx.Done():
	}
}

// maxNames is how many pods are kept in mind as one connection's.
const maxNames = 256

// serve reads one publisher's connection.
func (s *Subscriber) serve(ctx context.Context, c *conn, dialed kv.Topic, replay string) {
	pod := dialed.Pod
	for _, prefix := range s.opts.Prefixes {
		if c.Send(append([]byte{1}, prefix...)) != nil {
			return
		}
	}
	seen := map[string]bool{}
	defer func() {
		for pod := range seen {
			s.send(s.ctx, inbound{what: peerGone, from: kv.Topic{Pod: pod}})
		}
	}()
	if pod != "" {
		seen[pod] = true
		s.send(ctx, inbound{what: peerConnected, from: dialed, replay: replay})
	}
	for {
		frames, err := c.Recv()
		if err != nil {
			if ctx.Err() == nil && !ended(err) {
				s.opts.Log.Debug("KV event publisher left", "pod", pod, "error", err)
			}
			return
		}
		m, ok := s.message(frames, pod, replay, c.peer)
		if !ok {
			continue
		}
		if pod == "" && m.what == liveMessage && !seen[m.from.Pod] && len(seen) < maxNames {
			seen[m.from.Pod] = true // one connection, most often one pod
			s.send(ctx, inbound{what: peerConnected, from: m.from, replay: m.replay})
		}
		s.send(ctx, m)
	}
}

// message makes sense of frames: topic, sequence and payload; or, from
// publishers of document 003's JSON, topic and payload or the payload alone.
func (s *Subscriber) message(frames [][]byte, pod, replay string, peer net.Addr) (inbound, bool) {
	m := inbound{what: plainMessage, replay: replay}
	if n := len(frames); n == 3 || n >= 1 && n <= 2 && kv.IsJSON(frames[n-1]) {
		m.payload = frames[n-1]
	}
	if len(m.payload) == 0 {
		s.opts.Log.Warn("KV event message dropped: expected the frames topic, sequence, payload", "pod", pod, "frames", len(frames))
		return m, false
	}
	if len(frames) > 1 && strings.HasPrefix(string(frames[0]), kv.TopicPrefix) { // else it names nobody
		var err error
		if m.from, err = kv.ParseTopic(string(frames[0])); err != nil && pod == "" {
			s.opts.Log.Warn("KV event message dropped", "from", peer.String(), "error", err)
			return m, false
		}
	}
	if pod != "" {
		m.from.Pod = pod
	}
	if len(frames) == 3 {
		var err error
		if m.seq, err = kv.DecodeSequence(frames[1]); err != nil {
			s.opts.Log.Warn("KV event message dropped", "pod", m.from.Pod, "error", err)
			return m, false
		}
		if m.from.Pod != "" {
			m.what = liveMessage
		}
	}
	if m.replay == "" && s.opts.ReplayPort > 0 && pod == "" {
		if host, _, err := net.SplitHostPort(peer.String()); err == nil {
			m.replay = "tcp://" + net.JoinHostPort(host, strconv.Itoa(s.opts.ReplayPort))
		}
	}
	return m, true
}

// run owns the feeds: it is the machines' one goroutine.
func (s *Subscriber) run() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := time.Hour
		if at, ok := s.due.Next(); ok {
			wait = max(0, at.Duration()-time.Since(s.began))
		}
		timer.Reset(wait)
		select {
		case <-s.ctx.Done():
			return // and with the context every replay
		case m := <-s.in:
			s.take(m)
		case <-timer.C:
			now := s.now()
			for at, ok := s.due.Next(); ok && at <= now; at, ok = s.due.Next() {
				if _, f := s.due.Pop(); f.queued == at && !f.gone {
					f.queued = machine.Never
					s.drain(f)
				}
			}
		}
	}
}

func (s *Subscriber) now() machine.Time { return machine.FromDuration(time.Since(s.began)) }

func (s *Subscriber) take(m inbound) {
	pod := m.from.Pod
	f, there := s.feeds.Get(pod)
	if !there {
		f, _ = s.ended.Peek(pod)
	}
	switch {
	case m.what == plainMessage:
		s.opts.Handle(Delivery{From: m.from, Payload: m.payload})
		return
	case m.what == podForgotten:
		if f != nil {
			s.forget(f)
		}
		return
	case m.what == peerGone:
		if there {
			s.feeds.Delete(pod)
			s.ended.Put(pod, f, 0)
		}
		return
	case f == nil && (m.what == replayedMessage || m.what == replayEnded):
		return
	case f == nil:
		f = s.newFeed(m)
		s.feeds.Put(pod, f, 0)
	case !there && (m.what == liveMessage || m.what == peerConnected):
		s.ended.Delete(pod)
		s.feeds.Put(pod, f, 0)
		if f.replay != "" && m.replay != "" {
			f.replay = m.replay // it may have come back from elsewhere
		}
	}
	now := s.now()
	switch m.what {
	case liveMessage:
		f.from = m.from
		f.feed.Input(now, m.seq, m.payload)
	case peerConnected:
		f.feed.Connected(now)
	case replayedMessage:
		if m.round == f.round {
			if m.from.Model != "" {
				f.from = m.from
			}
			f.feed.Replayed(now, m.seq, m.payload)
		}
	case replayEnded:
		if m.round == f.round {
			f.feed.ReplayEnded(now, m.whole)
		}
	}
	s.drain(f)
}

// newFeed is the feed of a publisher that is new, where there is room for one
// more or somebody makes it.
func (s *Subscriber) newFeed(m inbound) *feedState {
	if s.feeds.Len()+s.ended.Len() >= s.opts.MaxPods {
		_, old, ok := s.ended.Oldest()
		if !ok {
			_, old, _ = s.feeds.Oldest()
		}
		s.forget(old)
		s.opts.Handle(Delivery{From: old.from, Lost: "too many pods: its place went to another one"})
	}
	cfg := s.opts.Feed
	if m.replay == "" && cfg.Gaps == kv.GapsReplay {
		cfg.Gaps = kv.GapsDrop
	}
	return &feedState{feed: kv.NewFeed(cfg), from: m.from, replay: m.replay, queued: machine.Never}
}

func (s *Subscriber) forget(f *feedState) {
	f.endReplay()
	f.gone = true
	s.feeds.Delete(f.from.Pod)
	s.ended.Delete(f.from.Pod)
}

func (s *Subscriber) drain(f *feedState) {
	f.feed.Advance(s.now(), func(e kv.FeedEffect) {
		switch e.Kind {
		case kv.Deliver:
			s.opts.Handle(Delivery{From: f.from, Payload: e.Payload, Seq: e.Seq})
		case kv.Lost:
			s.opts.Log.Warn("KV events lost", "pod", f.from.Pod, "reason", e.Reason)
			s.opts.Handle(Delivery{From: f.from, Lost: e.Reason})
		case kv.AskReplay:
			s.startReplay(f, e.Seq)
		}
	})
	// A wake-up that is too early by then finds nothing to do, and sets the next.
	if at, ok := f.feed.Next(); ok && at < f.queued {
		f.queued = at
		s.due.Push(at, machine.ClassTimer, f)
	}
}

// startReplay asks for a replay beside the loop; the last one asked for counts.
// It is given up when nothing came for a while.
func (s *Subscriber) startReplay(f *feedState, from uint64) {
	f.endReplay()
	f.round++
	timeout := f.replayTimeout(s.opts.Feed)
	ctx, cancel := context.WithCancel(s.ctx)
	f.stop = cancel
	pod, round, endpoint := f.from.Pod, f.round, f.replay
	s.extra.Add(1)
	go func() {
		defer s.extra.Done()
		defer cancel()
		idle := time.AfterFunc(timeout, cancel)
		defer idle.Stop()
		err := askReplay(ctx, endpoint, from, s.opts.MaxMessage, func(topic string, seq uint64, payload []byte) {
			source, _ := kv.ParseTopic(topic)
			source.Pod = pod
			idle.Stop() // it is we who take long
			s.send(ctx, inbound{what: replayedMessage, from: source, seq: seq, payload: payload, round: round})
			idle.Reset(timeout)
		})
		if err != nil && s.ctx.Err() == nil {
			s.opts.Log.Warn("replay of KV events failed", "pod", pod, "endpoint", endpoint, "from", from, "error", err)
		}
		s.send(s.ctx, inbound{what: replayEnded, from: kv.Topic{Pod: pod}, round: round, whole: err == nil})
	}()
}

func (f *feedState) replayTimeout(cfg kv.FeedConfig) time.Duration {
	if cfg.ReplayTimeout > 0 {
		return cfg.ReplayTimeout.Duration()
	}
	return 5 * time.Second
}

func (f *feedState) endReplay() {
	if f.stop != nil {
		f.stop()
	}
}
