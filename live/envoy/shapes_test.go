//go:build unix

package envoy

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// Endpoints can be changed while Envoy runs.
func TestEndpointsFile(t *testing.T) {
	t.Parallel()
	one, two := (&fakeServer{}).start(t), (&fakeServer{}).start(t)
	picker := (&fakePicker{destination: func() string { return two.addr }}).start(t)
	c := onePool()
	pool := &c.Pools[0]
	pool.Routing = OverrideHost
	pool.Picker.Addresses = []string{picker.addr}
	pool.Endpoints = []string{one.addr}
	pool.EndpointsFile = filepath.Join(t.TempDir(), "endpoints.yaml")
	p := startEnvoy(t, c)
	cl := newClient(t, p, false)
	if code, body := cl.post(strings.NewReader("x")); code != 200 || !strings.HasPrefix(body, one.addr) {
		t.Fatalf("with one endpoint: %d %q", code, body)
	}
	if err := WriteEndpoints(pool.EndpointsFile, pool.Name, []string{one.addr, two.addr}); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "the new endpoint to be used", func() bool {
		code, body := cl.post(strings.NewReader("x"))
		return code == 200 && strings.HasPrefix(body, two.addr)
	})
	if err := WriteEndpoints(pool.EndpointsFile, pool.Name, nil); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "503 without endpoints", func() bool {
		code, _ := cl.post(strings.NewReader("x"))
		return code == http.StatusServiceUnavailable
	})
	idle(t, p)
}

// Each route asks its own pool's picker; a direct answer asks none.
func TestTwoPools(t *testing.T) {
	t.Parallel()
	var c Config
	var pickers []*fakePicker
	for i := range 2 {
		server := (&fakeServer{handle: func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "pool %d", i)
		}}).start(t)
		picker := (&fakePicker{destination: func() string { return server.addr }, buffered: i == 1}).start(t)
		pickers = append(pickers, picker)
		c.Pools = append(c.Pools,
			Pool{Name: fmt.Sprintf("p%d", i), Picker: Processor{Addresses: []string{picker.addr}}})
	}
	c.Pools[1].Picker.Request = gateway.BodyBuffered
	c.Workers = 1
	c.Routes = []Route{
		{Headers: map[string]string{"x-gateway-model-name": "one"}, Pool: "p1"},
		{Pool: "p0"},
	}
	p := startEnvoy(t, c)
	cl := newClient(t, p, true)
	for model, want := range map[string]string{"": "200 pool 0", "one": "200 pool 1"} {
		code, body := cl.post(strings.NewReader("x"), "x-gateway-model-name", model)
		if got := fmt.Sprint(code, " ", body); got != want {
			t.Errorf("model %q: got %s, want %s", model, got, want)
		}
	}
	if a, b := pickers[0].seen.Load(), pickers[1].seen.Load(); a != 1 || b != 1 {
		t.Errorf("the pickers were asked %d and %d times, want once each", a, b)
	}
	idle(t, p)
}

// When nobody else ends a request in which nothing moves, Envoy does.
func TestIdleBackstop(t *testing.T) {
	t.Parallel()
	server := (&fakeServer{handle: func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		io.Copy(io.Discard, r.Body) // only a read notices the end
	}}).start(t)
	picker := (&fakePicker{destination: func() string { return server.addr }, held: true}).start(t)
	c := onePool()
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	c.Limits.Hold = time.Millisecond // and two seconds on top
	p := startEnvoy(t, c)
	code, body := newClient(t, p, false).post(strings.NewReader("part one"))
	r := lastAccess(t, p)
	if code != http.StatusGatewayTimeout || r.Details != "stream_idle_timeout" ||
		!slices.Equal(r.Flags, []string{"SI"}) {
		t.Errorf("got %d %q, %+v; want 504 by stream_idle_timeout", code, body, r)
	}
	idle(t, p)
	eventually.Is(t, "the picker to forget the request", func() bool { return picker.streams.Load() == 0 })
}

// A body that trickles past everybody else's limits ends at Envoy's own.
func TestSlowBodyBackstop(t *testing.T) {
	t.Parallel()
	picker := (&fakePicker{destination: func() string { return "127.0.0.1:1" }}).start(t)
	c := onePool()
	c.Pools[0].Picker.Addresses = []string{picker.addr}
	c.Limits.Hold, c.Limits.BodyTime = time.Millisecond, time.Millisecond // and two seconds on top
	p := startEnvoy(t, c)
	pr, pw := io.Pipe()
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := pw.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	code, body := newClient(t, p, false).post(pr)
	pr.Close()
	r := lastAccess(t, p)
	if code != http.StatusRequestTimeout || r.Details != "request_overall_timeout" {
		t.Errorf("got %d %q, %+v; want 408 by request_overall_timeout", code, body, r)
	}
	eventually.Is(t, "the picker to forget the request", func() bool { return picker.streams.Load() == 0 })
}
