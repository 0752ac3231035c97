package kvevents

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// whole reports that the deliveries since the last loss have the numbers from 0 to n-1.
func whole(n int) func([]Delivery) bool {
	return func(got []Delivery) bool {
		since := 0
		for i, d := range got {
			if d.Lost != "" {
				since = i + 1
			}
		}
		got = got[since:]
		for i, d := range got {
			if d.Seq != uint64(i) {
				return false
			}
		}
		return len(got) == n
	}
}

// A subscriber comes late, and the replay socket even later. The subscriber gets the history as soon as the socket
// answers, although messages flow all the while.
func TestReplayComesLater(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Interval: -1, Replay: "tcp://127.0.0.1:0"})
	for i := range 5 {
		p.Publish(stored(i))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	later := l.Addr().String()
	l.Close()
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Handle: c.take, Feed: kvfeed.Config{Gaps: kvfeed.GapsReplay}})
	if err := s.Dial(topic, p.Endpoint(), "tcp://"+later); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
	p.Publish(stored(5))
	c.wait(t, "the live message", func(got []Delivery) bool { return len(got) == 1 && got[0].Seq == 5 })
	newProxyAt(t, later, strings.TrimPrefix(p.ReplayEndpoint(), "tcp://"))
	p.Publish(stored(6))
	c.wait(t, "all messages", whole(7))
}

// A publisher restarts and sends no events: the subscriber still drops what it held.
func TestPublisherRestartsInSilence(t *testing.T) {
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
	c.wait(t, "five messages", whole(5))
	p.Close()
	publisher(t, PublisherOptions{Bind: endpoint, Replay: replay, Interval: -1})
	c.wait(t, "the loss", func(got []Delivery) bool { return got[len(got)-1].Lost != "" })
}

// A replay may last longer than its time-out if messages keep arriving. Messages published meanwhile follow it.
func TestLongReplay(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Interval: -1, Replay: "tcp://127.0.0.1:0"})
	const n = 40
	for i := range n {
		p.Publish(stored(i))
	}
	c := newCollector()
	first := true
	s := subscriber(t, SubscriberOptions{ReplayTimeout: 2 * time.Second,
		Feed: kvfeed.Config{Gaps: kvfeed.GapsReplay, HoldMessages: 2}, Handle: func(d Delivery) {
			if first { // longer than the time-out
				first = false
				for range 5 {
					p.Publish(stored(0))
				}
			}
			pause := time.NewTimer(60 * time.Millisecond)
			<-pause.C
			c.take(d)
		}})
	if err := s.Dial(topic, p.Endpoint(), p.ReplayEndpoint()); err != nil {
		t.Fatal(err)
	}
	got := c.wait(t, "all messages", func(got []Delivery) bool { return len(got) >= n+5 })
	if !whole(n+5)(got) || got[0].Lost != "" || got[0].Seq != 0 {
		t.Errorf("got %v", seqs(got))
	}
}

// A publisher that connects under a name that is no address is asked for replays at the address that it connects
// from.
func TestReplayAtTheConnectionsAddress(t *testing.T) {
	t.Parallel()
	p := publisher(t, PublisherOptions{Topic: kv.Topic{Pod: "decode-0", Model: "m"}, Interval: -1,
		Replay: "tcp://127.0.0.1:0"})
	for i := range 5 {
		p.Publish(stored(i))
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(p.ReplayEndpoint(), "tcp://"))
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", ReplayPort: number, Handle: c.take,
		Feed: kvfeed.Config{Gaps: kvfeed.GapsReplay}})
	if err := p.pub.dial(t.Context(), s.Endpoint(), loopbackOf(p.addr, s.Endpoint())); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers == 1 })
	p.Publish(stored(5))
	got := c.wait(t, "all messages", whole(6))
	if got[0].From != (kv.Topic{Pod: "decode-0", Model: "m"}) {
		t.Errorf("they are of %v", got[0].From)
	}
}
