package kvevents

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/live/drive"
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
	Feed     kvfeed.Config
	// ReplayPort is where publishers that come by themselves replay: on the
	// address that they come from, whatever they say theirs is. 0 is nowhere.
	// Dial has its own.
	ReplayPort int
	// ReplayTimeout ends a replay of which nothing came for so long; 0 means
	// 5 s.
	ReplayTimeout time.Duration
	MaxMessage    int // bytes; 0 means DefaultMaxMessage
	// MaxPods is how many publishers are known at a time; 0 means DefaultMaxPods.
	// Beyond it one that has hung up, or was silent longest, is forgotten.
	MaxPods int
	// Handle takes deliveries, one after another. While it works, publishers
	// wait.
	Handle func(Delivery)
	Log    *slog.Logger
}

// Subscriber receives KV events. Its methods may be called from any goroutine,
// but Hangup and Close not from its handler.
type Subscriber struct {
	opts    SubscriberOptions
	sub     peers
	cancel  context.CancelFunc
	ctx     context.Context
	addr    net.Addr
	now     func() machine.Time
	replays sync.WaitGroup
	turn    sync.Mutex // the handler's

	mu     sync.Mutex
	dialed map[string]context.CancelFunc
	// The publishers' feeds by pod, of those whose connection is there and of
	// those who hung up.
	feeds, ended *bounded.Store[string, *feed]
}

// inbound is a message of a publisher.
type inbound struct {
	from    kv.Topic
	plain   bool // nobody's, or without a number
	seq     uint64
	payload []byte
	replay  string // endpoint
}

// feed is one pod's feed and its replays.
type feed struct {
	s      *Subscriber
	pod    string
	replay string // where to; for who has the subscriber's mu
	drive  *drive.Driver[kvfeed.Message, *kvfeed.Effects]

	// The following are for who has the feed in hand.
	feed  *kvfeed.Feed
	model string
	round int                // of the replay that was asked for last
	stop  context.CancelFunc // ends it
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
	if opts.ReplayTimeout <= 0 {
		opts.ReplayTimeout = 5 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Subscriber{opts: opts, ctx: ctx, cancel: cancel, now: drive.Since(time.Now()),
		dialed: map[string]context.CancelFunc{},
		feeds:  bounded.New[string, *feed](bounded.Limits{}, nil),
		ended:  bounded.New[string, *feed](bounded.Limits{}, nil)}
	s.sub = peers{kind: zmq4.Sub, maxMessage: opts.MaxMessage, log: opts.Log,
		serve: func(ctx context.Context, c *conn) { s.serve(ctx, c, kv.Topic{}, "") }}
	if opts.Bind != "" {
		var err error
		if s.addr, err = s.sub.listen(ctx, opts.Bind); err != nil {
			cancel()
			s.sub.wait.Wait()
			return nil, err
		}
	}
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
	var f *feed
	if cancel := s.dialed[pod]; cancel != nil {
		cancel() // before anybody takes it for a new pod
		f = s.take(pod)
	}
	delete(s.dialed, pod)
	s.mu.Unlock()
	if f != nil {
		f.end()
	}
}

// Close hangs up on everybody and waits until the handler is idle.
func (s *Subscriber) Close() error {
	s.mu.Lock() // no Dial is half way from here on
	s.cancel()
	s.mu.Unlock()
	s.sub.wait.Wait()
	for f := s.oldest(); f != nil; f = s.oldest() { // there will be no more
		f.end()
	}
	s.replays.Wait()
	return nil
}

// take takes a pod's feed out, nil if it has none.
func (s *Subscriber) take(pod string) *feed {
	f, there := s.feeds.Peek(pod)
	if !there {
		f, _ = s.ended.Peek(pod)
	}
	s.feeds.Delete(pod)
	s.ended.Delete(pod)
	return f
}

// oldest takes out the feed that makes room, nil if there is none.
func (s *Subscriber) oldest() *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, _, ok := s.ended.Oldest()
	if !ok {
		pod, _, _ = s.feeds.Oldest()
	}
	return s.take(pod)
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
	defer func() { s.gone(maps.Keys(seen)) }()
	if pod != "" {
		seen[pod] = true
		s.tell(ctx, dialed, replay, kvfeed.Message{Kind: kvfeed.Connected})
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
		if m.plain {
			s.handle(Delivery{From: m.from, Payload: m.payload})
			continue
		}
		if pod == "" && !seen[m.from.Pod] && len(seen) < maxNames {
			seen[m.from.Pod] = true // one connection, most often one pod
			s.tell(ctx, m.from, m.replay, kvfeed.Message{Kind: kvfeed.Connected})
		}
		s.tell(ctx, m.from, m.replay, kvfeed.Message{Kind: kvfeed.Live, Seq: m.seq, Payload: m.payload})
	}
}

// handle gives the handler one delivery at a time.
func (s *Subscriber) handle(d Delivery) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.opts.Handle(d)
}

// tell gives a pod's feed what came over a connection.
func (s *Subscriber) tell(ctx context.Context, from kv.Topic, replay string, m kvfeed.Message) {
	for told := false; !told; {
		f, full := s.feed(ctx, from, replay)
		switch {
		case full:
			if old := s.oldest(); old != nil {
				old.end()
				s.handle(Delivery{From: kv.Topic{Pod: old.pod, Model: old.model},
					Lost: "too many pods: its place went to another one"})
			}
		case f == nil:
			return
		default: // it may have had to make room meanwhile
			told = f.drive.With(func(now machine.Time, fx *kvfeed.Effects) {
				if m.Kind == kvfeed.Live {
					f.model = from.Model
				}
				f.feed.Input(now, m, fx)
			})
		}
	}
}

// feed is a pod's, made if it is new and there is room for one more; nil when
// the connection has ended.
func (s *Subscriber) feed(ctx context.Context, from kv.Topic, replay string) (f *feed, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return nil, false
	}
	if f, ok := s.feeds.Get(from.Pod); ok {
		return f, false
	}
	f, back := s.ended.Peek(from.Pod)
	switch {
	case back:
		s.ended.Delete(from.Pod)
		if f.replay != "" && replay != "" {
			f.replay = replay // it may have come back from elsewhere
		}
	case s.feeds.Len()+s.ended.Len() >= s.opts.MaxPods:
		return nil, true
	default:
		cfg := s.opts.Feed
		if replay == "" && cfg.Gaps == kvfeed.GapsReplay {
			cfg.Gaps = kvfeed.GapsDrop
		}
		f = &feed{s: s, pod: from.Pod, model: from.Model, feed: kvfeed.New(cfg), replay: replay}
		f.drive = drive.New(drive.Options[kvfeed.Message, *kvfeed.Effects]{Machine: f.feed,
			Effects: new(kvfeed.Effects), Now: s.now, Carry: f.carry})
	}
	s.feeds.Put(from.Pod, f, 0)
	return f, false
}

// gone notes that the connection of these pods has ended.
func (s *Subscriber) gone(pods iter.Seq[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pod := range pods {
		if f, ok := s.feeds.Peek(pod); ok {
			s.feeds.Delete(pod)
			s.ended.Put(pod, f, 0)
		}
	}
}

// message makes sense of frames: topic, sequence and payload; or, from
// publishers of document 003's JSON, topic and payload or the payload alone.
func (s *Subscriber) message(frames [][]byte, pod, replay string, peer net.Addr) (inbound, bool) {
	m := inbound{plain: true, replay: replay}
	if n := len(frames); n == 3 || n >= 1 && n <= 2 && kvcodec.IsJSON(frames[n-1]) {
		m.payload = frames[n-1]
	}
	if len(m.payload) == 0 {
		s.opts.Log.Warn("KV event message dropped: expected the frames topic, sequence, payload", "pod", pod, "frames",
			len(frames))
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
		m.plain = m.from.Pod == ""
	}
	if m.replay == "" && s.opts.ReplayPort > 0 && pod == "" {
		if host, _, err := net.SplitHostPort(peer.String()); err == nil {
			m.replay = "tcp://" + net.JoinHostPort(host, strconv.Itoa(s.opts.ReplayPort))
		}
	}
	return m, true
}

// carry does what the feed asks for. Whoever has a message for it waits
// meanwhile.
func (f *feed) carry(_ machine.Time, fx *kvfeed.Effects, i int) {
	switch e := &fx.List[i]; e.Kind {
	case kvfeed.Deliver:
		f.s.handle(Delivery{From: kv.Topic{Pod: f.pod, Model: f.model}, Payload: e.Payload, Seq: e.Seq})
	case kvfeed.Lost:
		f.s.opts.Log.Warn("KV events lost", "pod", f.pod, "reason", e.Reason)
		f.s.handle(Delivery{From: kv.Topic{Pod: f.pod, Model: f.model}, Lost: e.Reason})
	case kvfeed.AskReplay:
		f.ask(e.Seq)
	}
}

// end ends the feed. When it returns nothing of it is being handled.
func (f *feed) end() {
	f.drive.Stop()
	f.endReplay()
}

// ask asks for a replay beside the live stream; the last one asked for counts.
// It is given up when nothing came for a while.
func (f *feed) ask(from uint64) {
	f.endReplay()
	f.round++
	ctx, cancel := context.WithCancel(f.s.ctx)
	f.stop = cancel
	f.s.mu.Lock()
	endpoint := f.replay
	f.s.mu.Unlock()
	f.s.replays.Add(1)
	go f.take(ctx, cancel, endpoint, f.round, from)
}

func (f *feed) take(ctx context.Context, cancel context.CancelFunc, endpoint string, round int, from uint64) {
	s := f.s
	defer s.replays.Done()
	defer cancel()
	tell := func(model string, m kvfeed.Message) {
		f.drive.With(func(now machine.Time, fx *kvfeed.Effects) {
			if round != f.round {
				return
			}
			if model != "" {
				f.model = model
			}
			f.feed.Input(now, m, fx)
		})
	}
	idle := time.AfterFunc(s.opts.ReplayTimeout, cancel)
	defer idle.Stop()
	err := askReplay(ctx, endpoint, from, s.opts.MaxMessage, func(topic string, seq uint64, payload []byte) {
		source, _ := kv.ParseTopic(topic)
		idle.Stop() // it is we who take long
		tell(source.Model, kvfeed.Message{Kind: kvfeed.Replayed, Seq: seq, Payload: payload})
		idle.Reset(s.opts.ReplayTimeout)
	})
	if err != nil && s.ctx.Err() == nil {
		s.opts.Log.Warn("replay of KV events failed", "pod", f.pod, "endpoint", endpoint, "from", from, "error", err)
	}
	tell("", kvfeed.Message{Kind: kvfeed.ReplayEnded, Whole: err == nil})
}

func (f *feed) endReplay() {
	if f.stop != nil {
		f.stop()
	}
}
