package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var topic = kv.Topic{Pod: "127.0.0.1:8000", Model: "m"}

// collector keeps the deliveries of a subscriber.
type collector struct {
	mu   sync.Mutex
	got  []Delivery
	more chan struct{}
}

func newCollector() *collector { return &collector{more: make(chan struct{}, 1)} }

func (c *collector) take(d Delivery) {
	c.mu.Lock()
	c.got = append(c.got, d)
	c.mu.Unlock()
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// wait waits until the condition holds for what was delivered.
func (c *collector) wait(t *testing.T, what string, cond func([]Delivery) bool) []Delivery {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		c.mu.Lock()
		got := append([]Delivery(nil), c.got...)
		c.mu.Unlock()
		if cond(got) {
			return got
		}
		select {
		case <-c.more:
		case <-deadline:
			t.Fatalf("waited in vain for %s; got %d deliveries: %+v", what, len(got), seqs(got))
		}
	}
}

func seqs(got []Delivery) (out []string) {
	for _, d := range got {
		if d.Lost != "" {
			out = append(out, "lost: "+d.Lost)
		} else {
			out = append(out, fmt.Sprint(d.Seq))
		}
	}
	return out
}

func publisher(t *testing.T, o PublisherOptions) *Publisher {
	t.Helper()
	if o.Topic == (kv.Topic{}) {
		o.Topic = topic
	}
	if o.Bind == "" && o.Connect == nil {
		o.Bind = "tcp://127.0.0.1:0"
	}
	p, err := NewPublisher(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func subscriber(t *testing.T, o SubscriberOptions) *Subscriber {
	t.Helper()
	s, err := NewSubscriber(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func stored(n int) kv.Event {
	return kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{kv.EngineHash(n + 1)}, Tokens: []uint32{uint32(n)},
		BlockTokens: 1, Medium: kv.MediumGPU, Group: kv.NoGroup}
}

// Publishers that bind and publishers that connect send events in every format.
func TestBothWaysAndAllFormats(t *testing.T) {
	t.Parallel()
	for _, format := range []Format{Msgpack, MsgpackMap, JSON} {
		for _, central := range []bool{false, true} {
			t.Run(fmt.Sprintf("format %d central %v", format, central), func(t *testing.T) {
				t.Parallel()
				c := newCollector()
				var p *Publisher
				if central {
					s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Handle: c.take})
					p = publisher(t, PublisherOptions{Connect: []string{s.Endpoint()}, Format: format,
						Interval: time.Hour})
				} else {
					p = publisher(t, PublisherOptions{Format: format, Interval: time.Hour})
					s := subscriber(t, SubscriberOptions{Handle: c.take})
					if err := s.Dial(topic, p.Endpoint(), ""); err != nil {
						t.Fatal(err)
					}
				}
				eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
				p.Publish(stored(1))
				p.Publish(kv.Event{Kind: kv.Cleared})
				p.Flush()
				got := c.wait(t, "a message", func(d []Delivery) bool { return len(d) == 1 })[0]
				if got.From != topic || got.Seq != 0 {
					t.Fatalf("got %+v", got)
				}
				var d kvcodec.Decoder
				b, err := d.Decode(got.Payload)
				if kvcodec.IsJSON(got.Payload) {
					b, err = kvcodec.DecodeJSON(got.Payload, kvcodec.Limits{})
				}
				if err != nil || len(b.Events) != 2 || b.Events[0].Kind != kv.Stored ||
					b.Events[1].Kind != kv.Cleared || b.At < 1e9 {
					t.Fatalf("%v %+v", err, b)
				}
			})
		}
	}
}

// A subscriber that comes late, and another one after it, get all that the replay still has, in order.
func TestSubscribersComeAndGo(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Replay: "tcp://127.0.0.1:0", Interval: -1})
	n := 0
	publish := func(count int) {
		for range count {
			p.Publish(stored(n))
			n++
		}
	}
	publish(50)
	for round := range 3 {
		c := newCollector()
		s := subscriber(t, SubscriberOptions{Handle: c.take, Feed: kvfeed.Config{Gaps: kvfeed.GapsReplay}})
		if err := s.Dial(topic, p.Endpoint(), p.ReplayEndpoint()); err != nil {
			t.Fatal(err)
		}
		publish(25) // some before, some after the subscription is there
		c.wait(t, "the first message", func(d []Delivery) bool { return len(d) > 0 })
		publish(25)
		got := c.wait(t, "all messages", func(d []Delivery) bool { return len(d) >= n })
		for i, d := range got {
			if d.Seq != uint64(i) || d.From != topic {
				t.Fatalf("round %d: %v", round, seqs(got))
			}
		}
		s.Close()
		publish(10) // without a subscriber
	}
}

// The connection breaks again and again while messages flow. With a replay that has them all, each is delivered once,
// in order, and none is lost.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Replay: "tcp://127.0.0.1:0", Interval: -1})
	proxy := newProxy(t, strings.TrimPrefix(p.Endpoint(), "tcp://"))
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Handle: c.take, Feed: kvfeed.Config{Gaps: kvfeed.GapsReplay}})
	if err := s.Dial(topic, "tcp://"+proxy.l.Addr().String(), p.ReplayEndpoint()); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
	const n = 3000
	for i := range n {
		p.Publish(stored(i))
		if i%500 == 250 {
			c.wait(t, "some messages", func(d []Delivery) bool { return len(d) > i/2 })
			proxy.cut()
		}
	}
	got := c.wait(t, "all messages", func(d []Delivery) bool { return len(d) >= n })
	for i, d := range got {
		if d.Lost != "" || d.Seq != uint64(i) {
			t.Fatalf("delivery %d of %d is %+v", i, len(got), seqs(got[max(0, i-3):min(len(got), i+3)]))
		}
	}
}

// Without a replay, the subscriber reports the loss and delivers the later messages.
func TestLossIsNamed(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Interval: -1})
	proxy := newProxy(t, strings.TrimPrefix(p.Endpoint(), "tcp://"))
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Handle: c.take, Feed: kvfeed.Config{Wait: 5 * machine.Millisecond}})
	if err := s.Dial(topic, "tcp://"+proxy.l.Addr().String(), "none"); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
	p.Publish(stored(0))
	c.wait(t, "the first message", func(d []Delivery) bool { return len(d) == 1 })
	proxy.cut()
	eventually.Is(t, "the cut", func() bool { return p.Stats().Subscribers == 0 })
	p.Publish(stored(1))
	eventually.Is(t, "a subscriber again", func() bool { return p.Stats().Subscribers == 1 })
	p.Publish(stored(2))
	got := c.wait(t, "the third message", func(d []Delivery) bool { return len(d) == 3 })
	if got[1].Lost == "" || got[1].From.Pod != topic.Pod || got[2].Seq != 2 {
		t.Fatalf("got %v", seqs(got))
	}
}

// A publisher that restarts at the same endpoint starts a new sequence: the subscriber reports its blocks as lost,
// then delivers its new messages.
func TestPublisherRestarts(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Interval: -1, Replay: "tcp://127.0.0.1:0"})
	endpoint, replay := p.Endpoint(), p.ReplayEndpoint()
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Handle: c.take, Feed: kvfeed.Config{Gaps: kvfeed.GapsReplay}})
	if err := s.Dial(topic, endpoint, replay); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		p.Publish(stored(i))
	}
	c.wait(t, "five messages", func(d []Delivery) bool { return len(d) == 5 })
	p.Close()
	again := publisher(t, PublisherOptions{Bind: endpoint, Replay: replay, Interval: -1})
	again.Publish(stored(100))
	eventually.Is(t, "a subscriber again", func() bool { return again.Stats().Subscribers == 1 })
	again.Publish(stored(101))
	got := c.wait(t, "two messages more", func(d []Delivery) bool { return len(d) >= 8 })[5:]
	if got[0].Lost == "" || got[1].Seq != 0 || got[2].Seq != 1 {
		t.Fatalf("got %v", seqs(got))
	}
}

// A subscriber that does not read delays neither the other subscribers nor the publisher. It can ask for the messages
// that it missed.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Interval: -1, QueueMessages: 8})
	slow := dialRaw(t, p.Endpoint())
	if err := slow.Send([]byte{1}); err != nil {
		t.Fatal(err)
	}
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Handle: c.take, Feed: kvfeed.Config{Gaps: kvfeed.GapsIgnore}})
	if err := s.Dial(topic, p.Endpoint(), ""); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "two subscribers", func() bool { return p.Stats().Subscribers == 2 })
	big := stored(0)
	big.Tokens = make([]uint32, 1<<20)
	for p.Stats().Dropped == 0 {
		p.Publish(big)
		before := len(c.wait(t, "a message", func(d []Delivery) bool { return len(d) > 0 }))
		p.Publish(stored(1))
		c.wait(t, "the next message", func(d []Delivery) bool { return len(d) > before })
	}
}

// Peers that are silent, send too much or send nonsense are refused, while the others are served.
func TestHostilePeers(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Interval: -1, Replay: "tcp://127.0.0.1:0"})
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Handle: c.take, MaxMessage: 1 << 16})
	for _, endpoint := range []string{p.Endpoint(), p.ReplayEndpoint(), s.Endpoint()} {
		raw := func() net.Conn {
			nc, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
			return nc
		}
		raw() // silent
		greeting := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 48)...)
		for name, bytes := range map[string][]byte{
			"not ZMTP":     []byte("GET / HTTP/1.1\r\n\r\n" + strings.Repeat("x", 64)),
			"a huge frame": append(greeting, 6, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
			"broken metadata": append(greeting, 4, 12, 5, 'R', 'E', 'A', 'D', 'Y', 200, 'a', 'b', 'c', 'd',
				'e'),
			"an empty command":        append(greeting, 4, 0),
			"endless little frames":   append(greeting, []byte(strings.Repeat("\x01\x00", 1000))...),
			"a command without READY": append(greeting, 4, 3, 2, 'H', 'I'),
		} {
			nc := raw()
			nc.Write(bytes)
			nc.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, nc); err != nil {
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					t.Errorf("%s at %s: the connection stays open", name, endpoint)
				}
			}
		}
	}
	sub := dialRaw(t, p.Endpoint()) // a handshake, then nonsense
	sub.Send([]byte("x"))
	if _, err := sub.Recv(); err == nil {
		t.Error("a message from a subscriber was taken")
	}
	pub, err := NewPublisher(PublisherOptions{Topic: topic, Connect: []string{s.Endpoint()}, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	eventually.Is(t, "a subscriber", func() bool { return pub.Stats().Subscribers == 1 })
	pub.Publish(stored(1))
	c.wait(t, "the message", func(d []Delivery) bool { return len(d) == 1 })
}

// The sockets of a common library work as the other side.
func TestOtherSockets(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := publisher(t, PublisherOptions{Interval: -1, Replay: "tcp://127.0.0.1:0"})
	sub := zmq4.NewSub(ctx)
	if err := sub.SetOption(zmq4.OptionSubscribe, "kv@"); err != nil {
		t.Fatal(err)
	}
	if err := sub.Dial(p.Endpoint()); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
	p.Publish(stored(1))
	msg, err := sub.Recv()
	if err != nil || len(msg.Frames) != 3 || string(msg.Frames[0]) != topic.String() || len(msg.Frames[1]) != 8 {
		t.Fatalf("%v %v", err, msg)
	}
	sub.Close()
	dealer := zmq4.NewDealer(ctx)
	if err := dealer.Dial(p.ReplayEndpoint()); err != nil {
		t.Fatal(err)
	}
	if err := dealer.SendMulti(zmq4.NewMsgFrom(nil, kv.EncodeSequence(0))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{0, kv.ReplayEnd} {
		msg, err := dealer.Recv()
		if err != nil || len(msg.Frames) != 4 {
			t.Fatalf("%v %v", err, msg)
		}
		if seq, _ := kv.DecodeSequence(msg.Frames[2]); seq != want {
			t.Fatalf("replay says %d, want %d", seq, want)
		}
	}
	dealer.Close()

	c := newCollector()
	s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Prefixes: []string{""}, Handle: c.take})
	push := dialRaw(t, s.Endpoint(), zmq4.Pub) // document 003's publisher may send only the payload
	if frames, err := push.Recv(); err != nil || string(frames[0]) != "\x01" {
		t.Fatalf("%v: subscribed to %q", err, frames)
	}
	push.Send([]byte(`{"event_type":"HEARTBEAT","pod_id":"p"}`))
	push.Send([]byte("any"), []byte(`{"event_type":"HEARTBEAT","pod_id":"p"}`))
	push.Send([]byte("kv@9.9.9.9:1@m"), kv.EncodeSequence(7), []byte{0x93, 0xc0, 0x90, 0xc0})
	push.Send([]byte("no sense"))
	push.Send([]byte("kv@9.9.9.9:1@m"), []byte{1}, []byte{0x93, 0xc0, 0x90, 0xc0})
	push.Send([]byte("kv@9.9.9.9:1@m"), kv.EncodeSequence(8), []byte{0x93, 0xc0, 0x90, 0xc0})
	got := c.wait(t, "four messages", func(d []Delivery) bool { return len(d) == 4 })
	if got[0].From.Pod != "" || got[3].From.Pod != "9.9.9.9:1" || got[3].Seq != 8 {
		t.Fatalf("got %+v", got)
	}
}

// The replay drops old messages by number and by size.
func TestReplayIsBounded(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Interval: -1, ReplayMessages: 5, ReplayBytes: 1000, Replay: "tcp://127.0.0.1:0"})
	for i := range 20 {
		p.Publish(stored(i))
	}
	p.Flush()
	ask := func() (got []uint64) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := askReplay(ctx, p.ReplayEndpoint(), 3, 1<<20,
			func(_ string, seq uint64, _ []byte) { got = append(got, seq) }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := ask(); fmt.Sprint(got) != "[15 16 17 18 19]" {
		t.Fatalf("got %v", got)
	}
	e := stored(0)
	e.Tokens = make([]uint32, 990)
	p.Publish(e)
	p.Flush()
	if got := ask(); fmt.Sprint(got) != "[20]" {
		t.Fatalf("got %v", got)
	}
	if err := askReplay(t.Context(), "ipc:///x", 0, 1, nil); err == nil ||
		!strings.Contains(err.Error(), "expected tcp://") {
		t.Fatalf("got %v", err)
	}
}

// Publish does not wait for the encoder up to a bound of waiting events. Events are still sent in order, in batches
// of the usual size.
func TestPublishDoesNotWaitForItsEncoder(t *testing.T) {
	t.Parallel()
	for batch, o := range map[int]PublisherOptions{1: {Interval: -1, BatchEvents: 7},
		4: {Interval: time.Hour, BatchEvents: 4}} {
		var sizes []int
		var sent []kv.EngineHash
		encoding, encode := make(chan struct{}), make(chan struct{})
		o.OnSend = func(seq uint64, events []kv.Event) {
			if seq == 0 {
				close(encoding)
				<-encode
			}
			sizes = append(sizes, len(events))
			for _, e := range events {
				sent = append(sent, e.Hashes...)
			}
		}
		p := publisher(t, o)
		for i := range batch {
			p.Publish(stored(i))
		}
		<-encoding
		const most = maxQueued + 1001
		published := make(chan struct{})
		go func() {
			defer close(published)
			for i := batch; i < most; i++ {
				p.Publish(stored(i))
			}
		}()
		queued := func() int {
			p.entry.Lock()
			defer p.entry.Unlock()
			return len(p.queue)
		}
		eventually.Is(t, "a full queue", func() bool { return queued() == maxQueued })
		close(encode)
		<-published
		p.Close()
		for i, h := range sent {
			if h != kv.EngineHash(i+1) {
				t.Fatalf("batches of %d: event %d is %d", batch, i, h)
			}
		}
		for i, n := range sizes {
			if n != batch && i < len(sizes)-1 {
				t.Fatalf("message %d has %d events, expected %d", i, n, batch)
			}
		}
		if len(sent) != most {
			t.Fatalf("batches of %d: %d events were sent of %d", batch, len(sent), most)
		}
	}
}

// A silent publisher sends heartbeats if configured to.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Handle: c.take})
	publisher(t, PublisherOptions{Connect: []string{s.Endpoint()}, Heartbeat: 5 * time.Millisecond})
	publisher(t, PublisherOptions{Topic: kv.Topic{Pod: "j", Model: "m"}, Connect: []string{s.Endpoint()}, Format: JSON,
		Heartbeat: 5 * time.Millisecond})
	c.wait(t, "both", func(got []Delivery) bool {
		pods := map[string]bool{}
		for _, d := range got {
			pods[d.From.Pod] = true
		}
		return len(pods) == 2
	})
}

func dialRaw(t *testing.T, endpoint string, kind ...zmq4.SocketType) *conn {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := handshake(nc, append(kind, zmq4.Sub)[0], false, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// proxy is a network connection that a test can cut.
type proxy struct {
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, to string) *proxy { return newProxyAt(t, "127.0.0.1:0", to) }

func newProxyAt(t *testing.T, at, to string) *proxy {
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l}
	var wait sync.WaitGroup
	t.Cleanup(func() { l.Close(); p.cut(); wait.Wait() })
	wait.Add(1)
	go func() {
		defer wait.Done()
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, a, b)
			p.mu.Unlock()
			for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
				wait.Add(1)
				go func() {
					defer wait.Done()
					io.Copy(pair[0], pair[1])
					pair[0].Close()
				}()
			}
		}
	}()
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
