package kvevents

import (
	"cmp"
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

// Delivery is one message, or one loss, that a Subscriber passes to its handler.
type Delivery struct {
	// From is the publisher: the name given to Dial, or otherwise the name in the topic. Its pod is empty when
	// neither names one.
	From kv.Topic
	// Payload is the next message in order, or nil when messages were lost.
	Payload []byte
	Seq     uint64
	// Lost is the reason why the pod's blocks are no longer known; "" means no loss.
	Lost string
}

// SubscriberOptions configure a Subscriber.
type SubscriberOptions struct {
	// Bind is the endpoint that publishers connect to, such as tcp://127.0.0.1:5555; "" means that the subscriber
	// only dials.
	Bind string
	// Sockets, if not nil, shares the socket at Bind with subscribers before and after this one.
	Sockets *Sockets
	// Prefixes are the topics to subscribe to; nil means kv.TopicPrefix. "" subscribes to everything, including
	// messages without a topic.
	Prefixes []string
	Feed     kvfeed.Config
	// ReplayPort is the replay port of publishers that connect to Bind; 0 means none. It is always at the address
	// that the connection came from, whatever address the topic has. Dial has its own argument.
	ReplayPort int
	// ReplayTimeout aborts a replay from which nothing arrived for this long; 0 means 5 s.
	ReplayTimeout time.Duration
	MaxMessage    int // bytes; 0 means DefaultMaxMessage
	// MaxPods bounds the publishers with state; 0 means DefaultMaxPods. A further publisher replaces one that has
	// disconnected or, if there is none, the one that was silent longest.
	MaxPods int
	// Handle handles deliveries, one at a time. Publishers wait meanwhile.
	Handle func(Delivery)
	Log    *slog.Logger
}

// Subscriber receives KV events. All methods are safe for concurrent use, but the handler must not call Hangup or
// Close.
type Subscriber struct {
	opts    SubscriberOptions
	sub     peers
	cancel  context.CancelFunc
	ctx     context.Context
	addr    net.Addr
	now     func() machine.Time
	replays sync.WaitGroup
	turn    sync.Mutex // held while Handle runs

	mu     sync.Mutex
	dialed map[string]context.CancelFunc
	// The feeds by pod: of connected publishers, and of disconnected ones.
	feeds, ended *bounded.Store[string, *feed]
}

// inbound is one decoded message of a publisher.
type inbound struct {
	from    kv.Topic
	plain   bool // has no pod or no number, so no feed orders it
	seq     uint64
	payload []byte
	replay  string // the sender's replay endpoint
}

// feed is one pod's feed with its replays.
type feed struct {
	s      *Subscriber
	pod    string
	replay string // replay endpoint; guarded by the subscriber's mu
	drive  *drive.Driver[kvfeed.Message, *kvfeed.Effects]

	// The feed's driver guards the following.
	feed  *kvfeed.Feed
	model string
	round int                // number of the latest replay
	stop  context.CancelFunc // aborts the latest replay
}

// NewSubscriber starts a subscriber. Close stops it.
func NewSubscriber(opts SubscriberOptions) (*Subscriber, error) {
	if opts.Prefixes == nil {
		opts.Prefixes = []string{kv.TopicPrefix}
	}
	opts.MaxMessage = cmp.Or(max(opts.MaxMessage, 0), DefaultMaxMessage)
	opts.MaxPods = cmp.Or(max(opts.MaxPods, 0), DefaultMaxPods)
	opts.ReplayTimeout = cmp.Or(max(opts.ReplayTimeout, 0), 5*time.Second)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	s := &Subscriber{opts: opts, ctx: ctx, cancel: cancel, now: drive.Since(time.Now()),
		dialed: map[string]context.CancelFunc{},
		feeds:  bounded.New[string, *feed](bounded.Limits{}, nil),
		ended:  bounded.New[string, *feed](bounded.Limits{}, nil)}
	s.sub = peers{kind: zmq4.Sub, maxMessage: opts.MaxMessage, log: opts.Log, sockets: opts.Sockets,
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

// Endpoint returns the bound endpoint with its actual port, or "" if the subscriber only dials.
func (s *Subscriber) Endpoint() string { return endpointOf(s.addr) }

// Dial keeps a connection to one pod's publisher until Hangup. From names the pod in deliveries: as in llm-d-router,
// the dialled address decides the name, not the topic. From's model applies until a topic names one, because replays
// of older vLLM have no topic. Replay is the pod's replay endpoint, or "".
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
	s.sub.wait.Go(p.wait.Wait)
	s.dialed[pod] = cancel
	return nil
}

// Hangup closes a connection that Dial made and drops the pod's feed.
func (s *Subscriber) Hangup(pod string) {
	s.mu.Lock()
	var f *feed
	if cancel := s.dialed[pod]; cancel != nil {
		cancel() // before the feed goes, so that no message of this connection creates it again
		f = s.remove(pod)
	}
	delete(s.dialed, pod)
	s.mu.Unlock()
	if f != nil {
		f.end()
	}
}

// Close closes all connections and waits until the handler is idle.
func (s *Subscriber) Close() error {
	s.mu.Lock() // a Dial that has started finishes first
	s.cancel()
	s.mu.Unlock()
	s.sub.wait.Wait()
	for f := s.oldest(); f != nil; f = s.oldest() { // no new feed can appear
		f.end()
	}
	s.replays.Wait()
	return nil
}

// remove removes a pod's feed and returns it, or nil if there is none. The caller holds mu.
func (s *Subscriber) remove(pod string) *feed {
	f, there := s.feeds.Peek(pod)
	if !there {
		f, _ = s.ended.Peek(pod)
	}
	s.feeds.Delete(pod)
	s.ended.Delete(pod)
	return f
}

// oldest removes and returns the feed to drop when there are too many, or nil if there is none.
func (s *Subscriber) oldest() *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, _, ok := s.ended.Oldest()
	if !ok {
		pod, _, _ = s.feeds.Oldest()
	}
	return s.remove(pod)
}

// maxNames bounds the pods that are tracked as users of one connection.
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
		s.input(ctx, dialed, replay, kvfeed.Message{Kind: kvfeed.Connected})
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
			seen[m.from.Pod] = true // usually one pod per connection
			s.input(ctx, m.from, m.replay, kvfeed.Message{Kind: kvfeed.Connected})
		}
		s.input(ctx, m.from, m.replay, kvfeed.Message{Kind: kvfeed.Live, Seq: m.seq, Payload: m.payload})
	}
}

// handle passes the handler one delivery at a time.
func (s *Subscriber) handle(d Delivery) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.opts.Handle(d)
}

// input passes a message of a connection to its pod's feed.
func (s *Subscriber) input(ctx context.Context, from kv.Topic, replay string, m kvfeed.Message) {
	for done := false; !done; {
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
		default: // false if the feed was dropped meanwhile
			done = f.drive.With(func(now machine.Time, fx *kvfeed.Effects) {
				if m.Kind == kvfeed.Live {
					f.model = from.Model
				}
				f.feed.Input(now, m, fx)
			})
		}
	}
}

// feed returns a pod's feed, and makes one if the pod is new. It returns nil if the connection has ended, and full if
// there are too many feeds.
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
			f.replay = replay // the pod may have a new address
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

// gone records that these pods' connection has ended.
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

// message decodes frames: topic, sequence and payload; or, from publishers of document 003's JSON, topic and payload
// or only the payload.
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
	if len(frames) > 1 && strings.HasPrefix(string(frames[0]), kv.TopicPrefix) { // other topics name no pod
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

// carry carries out one effect of the feed. Further messages for the feed wait meanwhile.
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

// end stops the feed. Once it returns, nothing of the feed is being handled.
func (f *feed) end() {
	f.drive.Stop()
	f.endReplay()
}

// ask starts a replay beside the live stream and aborts the one before it. A replay from which nothing arrives for
// ReplayTimeout is aborted.
func (f *feed) ask(from uint64) {
	f.endReplay()
	f.round++
	ctx, cancel := context.WithCancel(f.s.ctx)
	f.stop = cancel
	f.s.mu.Lock()
	endpoint := f.replay
	f.s.mu.Unlock()
	f.s.replays.Add(1)
	go f.replayFrom(ctx, cancel, endpoint, f.round, from)
}

func (f *feed) replayFrom(ctx context.Context, cancel context.CancelFunc, endpoint string, round int, from uint64) {
	s := f.s
	defer s.replays.Done()
	defer cancel()
	send := func(model string, m kvfeed.Message) {
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
		idle.Stop() // handling a message does not count as the sender's silence
		send(source.Model, kvfeed.Message{Kind: kvfeed.Replayed, Seq: seq, Payload: payload})
		idle.Reset(s.opts.ReplayTimeout)
	})
	if err != nil && s.ctx.Err() == nil {
		s.opts.Log.Warn("replay of KV events failed", "pod", f.pod, "endpoint", endpoint, "from", from, "error", err)
	}
	send("", kvfeed.Message{Kind: kvfeed.ReplayEnded, Whole: err == nil})
}

func (f *feed) endReplay() {
	if f.stop != nil {
		f.stop()
	}
}
