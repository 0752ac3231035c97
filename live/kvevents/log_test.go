package kvevents

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// The publisher logs each message, because document 003 ("No Events Received") points operators there. Each of several
// subscribers gets the message.
func TestPublisherLogs(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	var addresses []string
	var got []*collector
	for range 2 {
		c := newCollector()
		s := subscriber(t, SubscriberOptions{Bind: "tcp://127.0.0.1:0", Handle: c.take})
		addresses, got = append(addresses, s.Endpoint()), append(got, c)
	}
	p, err := NewPublisher(PublisherOptions{Topic: topic, Connect: addresses, Interval: -1,
		Log: slog.New(slog.NewTextHandler(&b, nil))})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "two subscribers", func() bool { return p.Stats().Subscribers == 2 })
	p.Publish(kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{1}, Tokens: []uint32{1, 2}, BlockTokens: 2,
		Group: kv.NoGroup})
	p.Publish(kv.Event{Kind: kv.Removed, Hashes: []kv.EngineHash{1}, Group: kv.NoGroup})
	for _, c := range got {
		c.wait(t, "both messages", func(d []Delivery) bool { return len(d) >= 2 })
	}
	p.Close()
	for _, want := range []string{`msg="KV_EVENT published" pod_id=127.0.0.1:8000 sequence=0 events="BLOCK_CREATED=1"`,
		`sequence=1 events="BLOCK_EVICTED=1"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the log lacks %s: %s", want, b.String())
		}
	}
}
