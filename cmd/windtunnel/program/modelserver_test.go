package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/kvevents"
	"github.com/windtunnel/windtunnel/live/modelserver/dropin"
)

// windtunnel modelserver stands in for a vLLM under vLLM's own command line:
// its clients notice nothing, and Ctrl-C ends it.
func TestModelServerAlone(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	var stderr bytes.Buffer
	o := theOutside()
	o.Stdout, o.Stderr, o.Terminal = write, &stderr, false
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, interrupt }
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"modelserver", "--", "vllm", "serve", "my-model", "--host", "127.0.0.1", "--port", "0", "--time-to-first-token", "1ms"}, o)
		write.Close()
	}()
	lines := bufio.NewScanner(read)
	if !lines.Scan() {
		t.Fatalf("it did not become ready: exit code %d\n%s", <-code, &stderr)
	}
	url := regexp.MustCompile(`http://\S+`).FindString(lines.Text())
	resp, err := http.Post(url+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"my-model","max_tokens":3,"messages":[{"role":"user","content":"Hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != 200 || answer.Usage.Completion != 3 {
		t.Errorf("status %d, %d tokens, %v", resp.StatusCode, answer.Usage.Completion, err)
	}
	interrupt()
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Error(err)
	}
	if got := <-code; got != 0 {
		t.Errorf("exit code %d\n%s", got, &stderr)
	}
}

// The topic of --kv-events-config is what KV events travel under, and the pod
// that it names theirs; without it they are the server's address's.
func TestTopicOfKVEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, prefix, pod, model string }{
		{"", "kv@", "10.0.0.7:8000", "m"},
		{"kv@decode-0@llama", "kv@decode-0@", "decode-0", "llama"},
		{"news", "news", "", ""},
	} {
		got := make(chan kvevents.Delivery, 16)
		s, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Bind: "tcp://127.0.0.1:0", Prefixes: []string{c.prefix}, Handle: func(d kvevents.Delivery) { got <- d }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		config, err := json.Marshal(map[string]any{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": s.Endpoint(), "topic": c.flag})
		if err != nil {
			t.Fatal(err)
		}
		r, err := dropin.Parse([]string{"--kv-events-config", string(config)}, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		p, err := publisher(r.KVEvents, "127.0.0.1", &engine.Config{}, 0, slog.New(slog.DiscardHandler))("m", "10.0.0.7:8000")
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
