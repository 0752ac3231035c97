package program

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/freeport"
)

// locked is a buffer that may be read while it is written.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// With --keep, on the given ports, the summary of the run comes first and "Still up" last. Requests by hand are then
// shown and counted separately.
func TestKeep(t *testing.T) {
	t.Parallel()
	var ports []string
	for first := freeport.Row(t, 5); len(ports) < 5; {
		ports = append(ports, strconv.Itoa(first+len(ports)))
	}
	out := &locked{}
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = out, out, false, 0
	ctx, stop := context.WithCancel(context.Background())
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	code := make(chan int, 1)
	go func() {
		code <- run([]string{"run", "--keep", "-n", "12", "-c", "12", "--prefill", "5ms", "--port", ports[0],
			"--grpc-port", ports[1], "--grpc-health-port", ports[2], "--metrics-port", ports[3], "--admin-port",
			ports[4]}, o)
	}()
	defer stop()
	await := func(what string) string {
		for {
			if text := out.String(); strings.Contains(text, what) {
				return text
			}
			select {
			case c := <-code:
				t.Fatalf("the run ended with %d before %q:\n%s", c, what, out.String())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	before := await("explain 1 --from 127.0.0.1:" + ports[3])
	summary, still := strings.Index(before, "summary    12 requests"), strings.Index(before, "Still up;")
	if summary < 0 || still < summary || strings.Count(before[:summary], "completed") != 12 ||
		!strings.Contains(before, "envoy      logged 12\n") ||
		strings.Contains(before[still:], "req-1-") {
		t.Fatalf("the summary of all, then \"Still up\", was expected:\n%s", before)
	}
	resp, err := http.Post("http://127.0.0.1:"+ports[0]+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"llama-3.1-8b","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(err, resp)
	}
	resp.Body.Close()
	await("envoy    logged ")
	// document 003: curl localhost:19000/stats | grep ext_proc
	resp, err = http.Get("http://127.0.0.1:" + ports[4] + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	stats, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !strings.Contains(string(stats), "ext_proc.streams_started: 13") {
		t.Errorf("Envoy's statistics lack the streams to the picker: %.2000s", stats)
	}
	stop()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
	after := strings.TrimPrefix(out.String(), before)
	if !strings.Contains(after, "part2_received") ||
		!strings.Contains(after, "by hand    1 request besides · status 200 1 · 127.0.0.1:") ||
		strings.Contains(after, "summary") {
		t.Errorf("after the request by hand:\n%s", after)
	}
}
