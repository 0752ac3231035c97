package epp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

const reloadable = `
plugins:
- {type: SCORER}
- {name: files, type: file-discovery, parameters: {path: ENDPOINTS, watchFile: true}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: SCORER}]}
dataLayer: {discovery: {pluginRef: files}}
`

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventually.Is(t, what, ok)
}

type reloadRig struct {
	*Standalone
	t               *testing.T
	path, endpoints string
	log             *lockedBuffer
}

func startReloadable(t *testing.T, change ...func(*StandaloneOptions)) *reloadRig {
	t.Helper()
	dir := t.TempDir()
	r := &reloadRig{t: t, path: filepath.Join(dir, "epp.yaml"), endpoints: filepath.Join(dir, "endpoints.yaml"),
		log: &lockedBuffer{}}
	r.pods("a")
	r.write(r.path, r.config("queue-scorer"))
	o := StandaloneOptions{ConfigPath: r.path, PoolOptions: PoolOptions{PoolName: "pool"},
		PickerOptions: PickerOptions{Config: []byte(r.config("queue-scorer")), ConfigName: r.path, History: 100,
			RefreshMetrics: time.Hour, Log: slog.New(slog.NewTextHandler(r.log, nil))},
		Serving: Serving{Address: "127.0.0.1:0", HealthAddress: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0"}}
	for _, f := range change {
		f(&o)
	}
	var err error
	if r.Standalone, err = StartStandalone(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *reloadRig) config(scorer string) string {
	return strings.NewReplacer("SCORER", scorer, "ENDPOINTS", r.endpoints).Replace(reloadable)
}

// write replaces a file as a ConfigMap's is: at once.
func (r *reloadRig) write(path, text string) {
	r.t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reloadRig) pods(names ...string) {
	text := "endpoints:\n"
	for i, n := range names {
		text += "- {name: " + n + ", address: 127.0.0." + string(rune('1'+i)) + ", port: \"1\"}\n"
	}
	r.write(r.endpoints, text)
}

func (r *reloadRig) has(plugin string) func() bool {
	return func() bool { return r.Picking().o.Picker.Plugin(plugin) != nil }
}

func (r *reloadRig) page(path string) string {
	r.t.Helper()
	resp, err := http.Get("http://" + r.MetricsAddr() + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// A new configuration is taken over while requests are under way; a bad one is
// refused by line, and the old one stays. So it is with endpoints.
func TestConfigurationIsReloaded(t *testing.T) {
	t.Parallel()
	r := startReloadable(t)
	defer http.DefaultClient.CloseIdleConnections()
	old := r.Picking()
	x := r.generations.testAsk(context.Background(), chat(1), hello)

	r.write(r.path, r.config("kv-cache-utilization-scorer"))
	until(t, "the new configuration is in force", r.has("kv-cache-utilization-scorer"))
	if r.Picking() == old || !strings.Contains(r.page("/debug/decisions?request=1"), `"queue-scorer"`) {
		t.Error("what was decided before is forgotten")
	}
	if !strings.Contains(r.page("/metrics"), `inference_pool_ready_pods{name="pool"} 1`) {
		t.Error("the pool's metrics are missing after the reload")
	}
	select {
	case <-old.idle:
		t.Error("the old configuration ended before its request")
	default:
	}
	x.respond(header.Of(":status", "200"), "{}")
	x.leave()
	<-old.idle

	r.write(r.path, "plugins:\n- type: no-such-scorer\n")
	until(t, "the bad configuration is told", func() bool {
		return strings.Contains(r.log.String(), ":2:9: plugins[0].type: plugin type 'no-such-scorer'")
	})
	if !r.has("kv-cache-utilization-scorer")() {
		t.Error("a bad configuration replaced a good one")
	}

	r.write(r.endpoints, "endpoints: [{name: b, address: nowhere, port: \"1\"}]")
	until(t, "the bad endpoints are told",
		func() bool { return strings.Contains(r.log.String(), "endpoints[0].address: found") })
	x = r.generations.testAsk(context.Background(), chat(2), hello)
	if x.endpoint != "127.0.0.1:1" {
		t.Errorf("bad endpoints replaced good ones: %q", x.endpoint)
	}
	x.leave()
	r.pods("a", "b")
	until(t, "the new endpoint is there", func() bool { return strings.Contains(r.page("/debug/state"), `"b"`) })
}

// However often it changes under a crowd, every request is decided and every
// old configuration ends.
func TestReloadingUnderACrowd(t *testing.T) {
	t.Parallel()
	r := startReloadable(t)
	var served atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for c := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				x := r.generations.testAsk(context.Background(), chat(1000*c+i), hello)
				if x.endpoint == "" {
					t.Errorf("not served: %+v", x.answer)
				}
				x.respond(header.Of(":status", "200"), "{}")
				x.leave()
				served.Add(1)
			}
		})
	}
	var old []*Picking
	for i := range 10 {
		old = append(old, r.Picking())
		text := r.config([]string{"kv-cache-utilization-scorer", "queue-scorer"}[i%2])
		if err := Reload([]*Standalone{r.Standalone}, r.path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		was := served.Load()
		until(t, "requests pass", func() bool { return served.Load() > was })
	}
	close(stop)
	wg.Wait()
	for _, k := range old {
		<-k.idle
	}
}
