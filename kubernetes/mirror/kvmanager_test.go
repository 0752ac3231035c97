package mirror

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// The KV-cache manager dials the pods of its pool that an API server has, and forgets a pod that is gone.
func TestKVManagerFollowsPool(t *testing.T) {
	port := freeport.Row(t, 1)
	publish := func(i int) *kvevents.Publisher {
		p, err := kvevents.NewPublisher(kvevents.PublisherOptions{Bind: fmt.Sprintf("tcp://127.0.0.%d:%d", i, port),
			Topic: kv.Topic{Pod: "another name", Model: "m"}, Interval: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	at := func(i int) dict {
		x := pod(i, "True").Object
		x["status"].(dict)["podIP"] = fmt.Sprintf("127.0.0.%d", i)
		return x
	}
	s, client := newAPIServer(t)
	s.drop("pods", pod(0, "True").Object)
	s.put("pods", at(1))
	s.put("pods", at(2))
	from := Options{Client: client, Namespace: "llm", Resources: Pool[:3], Dir: t.TempDir(), Check: PoolObject,
		Log: slog.New(slog.DiscardHandler)}
	if err := Start(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	out := &lines{}
	o := console.New()
	o.Stderr = out
	o.Env = func(string) (string, bool) { return "", false }
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, func() {} }
	c := &KVManager{PoolName: "llama", PoolNamespace: "llm", EventsPort: port, Objects: from.Dir}
	c.Listen, c.Port, c.ZMQBind, c.LogLevel = "127.0.0.1", freeport.Row(t, 1), "none", "error"
	done := make(chan error)
	go func() { done <- c.Run(o) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	blocks := func(i int) string {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/api/v1/cache/pod/127.0.0.%d:8000", c.Port, i))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body) // an incomplete answer does not match
		return regexp.MustCompile(`"blocks_cached":\d+|no events`).FindString(string(text))
	}
	for i := 1; i <= 2; i++ {
		p := publish(i)
		eventually.Is(t, "a subscriber", func() bool { return p.Stats().Subscribers > 0 })
		p.Publish(kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{7}, Tokens: make([]uint32, 16), BlockTokens: 16,
			Medium: kv.MediumGPU, Group: kv.NoGroup})
		eventually.Is(t, "its block", func() bool { return blocks(i) == `"blocks_cached":1` })
	}
	s.drop("pods", at(1))
	eventually.Is(t, "no pod 1", func() bool { return blocks(1) == "no events" })
	if got := blocks(2); got != `"blocks_cached":1` {
		t.Errorf("pod 2 has %s", got)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", c.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), "kv_cache_manager_") {
		t.Errorf("metrics: %v\n%s", err, text)
	}
}
