package kvevents

import (
	"testing"

	"github.com/windtunnel/windtunnel/internal/eventually"
)

// Subscribers that follow one another share a socket: a publisher that has connected to the first one reaches the
// second one once the first has closed, and the address is free after both.
func TestSocketsAreHandedOn(t *testing.T) {
	t.Parallel()
	sockets := &Sockets{Local: true}
	open := func(c *collector) *Subscriber {
		return subscriber(t, SubscriberOptions{Bind: "tcp://*:5557", Sockets: sockets, Handle: c.take})
	}
	before, after := newCollector(), newCollector()
	first := open(before)
	at := first.Endpoint()
	p := publisher(t, PublisherOptions{Connect: []string{at}, Interval: -1})
	heard := func(c *collector) bool {
		p.Publish(stored(0))
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.got) > 0
	}
	eventually.Is(t, "the first subscriber hears the publisher", func() bool { return heard(before) })
	second := open(after)
	if second.Endpoint() != at {
		t.Fatalf("the second subscriber listens at %s, the first one at %s", second.Endpoint(), at)
	}
	first.Close()
	eventually.Is(t, "the second subscriber hears the publisher", func() bool { return heard(after) })
	second.Close()
	subscriber(t, SubscriberOptions{Bind: at, Handle: after.take})
}
