package kvevents

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
)

// say sends a message under the given topic over one connection.
func say(t *testing.T, c *conn, topic string, seq uint64, e kv.Event) {
	t.Helper()
	if err := c.Send([]byte(topic), kv.EncodeSequence(seq),
		kvcodec.AppendBatch(nil, kv.Batch{Events: []kv.Event{e}}, kvcodec.ArrayForm)); err != nil {
		t.Fatal(err)
	}
}

// A message's topic does not decide which address is dialled for a replay: only the address that the message came
// from is.
func TestReplayIsAskedOfTheSenderAlone(t *testing.T) {
	t.Parallel()
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	port := own.Addr().(*net.TCPAddr).Port
	victim, err := net.Listen("tcp", fmt.Sprintf("127.0.0.9:%d", port))
	if err != nil {
		if runtime.GOOS != "linux" {
			t.Skip("there is one loopback address only")
		}
		t.Fatal(err)
	}
	defer victim.Close()
	dialled := make(chan string, 100)
	for _, l := range []net.Listener{own, victim} {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				dialled <- l.Addr().String()
				c.Close()
			}
		}()
	}
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Prefixes: []string{""}, ReplayPort: port,
		Handle: c.take, Feed: kvfeed.Config{Gaps: kvfeed.GapsReplay}})
	pub := dialRaw(t, s.Endpoint(), zmq4.Pub)
	for i, topic := range []string{"kv@127.0.0.9:8000@m", "kv@[::ffff:127.0.0.9]:8000@m", "kv@127.0.0.9@m",
		"kv@decode-0@m"} {
		say(t, pub, topic, 5, stored(i))
	}
	for range 4 {
		if at := <-dialled; at != own.Addr().String() {
			t.Fatalf("%s was dialled", at)
		}
	}
}

// Pods that come and go, or do not exist, do not use up the places: the next new pod is accepted, and a pod that
// keeps sending stays.
func TestChurnOfPods(t *testing.T) {
	t.Parallel()
	c := newCollector()
	const places = 20
	s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Handle: c.take, MaxPods: places})
	stays := dialRaw(t, s.Endpoint(), zmq4.Pub)
	for round := range 5 {
		say(t, stays, "kv@stays@m", uint64(round), stored(0))
		c.wait(t, "the one that stays",
			func(d []Delivery) bool { return len(d) > 0 && d[len(d)-1].From.Pod == "stays" })
		gone := dialRaw(t, s.Endpoint(), zmq4.Pub)
		for i := range places - 5 {
			say(t, gone, fmt.Sprintf("kv@gone-%d-%d@m", round, i), 0, stored(i))
		}
		heard := fmt.Sprintf("gone-%d-%d", round, places-6)
		c.wait(t, heard, func(d []Delivery) bool {
			for _, x := range d {
				if x.From.Pod == heard && x.Lost == "" {
					return true
				}
			}
			return false
		})
		gone.Close()
	}
	say(t, stays, "kv@stays@m", 5, stored(1))
	got := c.wait(t, "it again", func(d []Delivery) bool { return len(d) > 0 && d[len(d)-1].From.Pod == "stays" })
	lost := 0
	for _, d := range got {
		if d.Lost != "" {
			lost++
		}
		if d.Lost != "" && d.From.Pod == "stays" {
			t.Error("the one that stays made room for one that did not")
		}
	}
	if want := 1 + 5*(places-5) - places; lost != want {
		t.Errorf("%d had to go, want %d", lost, want)
	}
}

// A disconnected publisher is replaced before connected ones, however long these have been silent.
func TestDisconnectedPublisherIsReplacedFirst(t *testing.T) {
	var lost []string
	s := subscriber(t, SubscriberOptions{MaxPods: 3, Handle: func(d Delivery) {
		if d.Lost != "" {
			lost = append(lost, d.From.Pod)
		}
	}})
	tell := func(kind kvfeed.MessageKind, pods ...string) {
		for _, pod := range pods {
			s.input(t.Context(), kv.Topic{Pod: pod}, "", kvfeed.Message{Kind: kind, Payload: []byte("x")})
		}
	}
	tell(kvfeed.Live, "silent", "gone", "back")
	s.gone(slices.Values([]string{"gone", "back"}))
	tell(kvfeed.Connected, "back")
	tell(kvfeed.Live, "new") // in the place of gone
	tell(kvfeed.Live, "newer", "newest")
	if want := []string{"gone", "silent", "back"}; !slices.Equal(lost, want) {
		t.Errorf("went: %v, want %v", lost, want)
	}
}

// A name that no pod has costs only its own message.
func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	c := newCollector()
	s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Prefixes: []string{""}, Handle: c.take})
	pub := dialRaw(t, s.Endpoint(), zmq4.Pub)
	for _, bad := range []string{"kv@" + strings.Repeat("x", 200_000) + "@m", "kv@\xff@m",
		"kv@a:1@" + strings.Repeat("m", 10_000), "kv@a\nb@m"} {
		say(t, pub, bad, 0, stored(1))
	}
	say(t, pub, "kv@a:1@m", 0, stored(2))
	if got := c.wait(t, "the good one", func(d []Delivery) bool { return len(d) > 0 }); len(got) != 1 ||
		got[0].From.Pod != "a:1" {
		t.Errorf("%v", got)
	}
}
