package dropin

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// A wildcard is the address that the server listens at.
func TestOwn(t *testing.T) {
	for bind, want := range map[string]string{"tcp://*:5557": "tcp://127.0.0.2:5557",
		"tcp://0.0.0.0:1": "tcp://127.0.0.2:1", "tcp://10.1.1.1:5": "tcp://10.1.1.1:5", "": ""} {
		if got := own(bind, "127.0.0.2"); got != want {
			t.Errorf("%q: got %q, want %q", bind, got, want)
		}
	}
}

// The ranks of one server publish at ports of their own.
func TestHigher(t *testing.T) {
	for bind, want := range map[string]string{"tcp://127.0.0.1:5557": "tcp://127.0.0.1:5559",
		"tcp://127.0.0.1:0": "tcp://127.0.0.1:0", "": "", "ipc:///x": "ipc:///x"} {
		if got := higher(bind, 2); got != want {
			t.Errorf("%q: got %q, want %q", bind, got, want)
		}
	}
}

// KV events travel under the topic of --kv-events-config, and their pod is the one that the topic names. Without a
// topic, their pod is the server's address.
func TestTopicOfKVEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, prefix, pod, model string }{
		{"", "kv@", "10.0.0.7:8000", "m"},
		{"kv@decode-0@llama", "kv@decode-0@", "decode-0", "llama"},
		{"news", "news", "", ""},
	} {
		got := make(chan kvevents.Delivery, 16)
		s, err := kvevents.NewSubscriber(
			kvevents.SubscriberOptions{Bind: "tcp://127.0.0.1:0", Prefixes: []string{c.prefix},
				Handle: func(d kvevents.Delivery) { got <- d }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		config, err := json.Marshal(
			map[string]any{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": s.Endpoint(),
				"topic": c.flag})
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse([]string{"--kv-events-config", string(config)},
			func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		p, err := publisher(r.KVEvents, "127.0.0.1", "", &engine.Config{}, 0, slog.New(slog.DiscardHandler))("m",
			"10.0.0.7:8000")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		go func() { // what comes before the subscription is lost
			for len(got) == 0 && pause.For(t.Context(), time.Millisecond) {
				p.Publish(kv.Event{Kind: kv.Cleared})
			}
		}()
		if d := <-got; d.From != (kv.Topic{Pod: c.pod, Model: c.model}) || d.Payload == nil {
			t.Errorf("topic %q: events came from %+v", c.flag, d.From)
		}
	}
}
