package epp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Profiles and decisions are for this machine and for those who show who they
// are, whatever address is listened on; /metrics is for whom it was said to be.
func TestWhoReadsThePages(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	for _, c := range []struct {
		readers                   Readers
		local, elsewhere, withKey int // of /metrics
	}{{LocalReaders, 200, 403, 200}, {AllReaders, 200, 200, 200}, {KnownReaders, 401, 401, 200}} {
		o := Options{Registry: prometheus.NewRegistry(),
			Pages:   map[string]http.Handler{"/debug/pprof/": page, "GET /debug/state": page},
			Serving: Serving{MetricsFor: c.readers, MetricsTokens: serve.NewTokens([]string{"secret"})}}
		h := o.metricsPages()
		ask := func(path, from, token string) int {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr, r.Host = from, "localhost:9090"
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code == 403 && !strings.Contains(w.Body.String(), "--metrics-token-file") {
				t.Errorf("%s: %s", path, w.Body)
			}
			return w.Code
		}
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/state"} {
			if local, elsewhere, wrong, known := ask(path, "127.0.0.1:1", ""), ask(path, "203.0.113.5:1", ""),
				ask(path, "203.0.113.5:1", "x"),
				ask(path, "203.0.113.5:1", "secret"); local != 200 || elsewhere != 403 || wrong != 403 ||
				known != 200 {
				t.Errorf("%s: %d here, %d and %d elsewhere, %d with a token", path, local, elsewhere, wrong, known)
			}
		}
		if local, elsewhere, known := ask("/metrics", "127.0.0.1:1", ""), ask("/metrics", "203.0.113.5:1", ""),
			ask("/metrics", "203.0.113.5:1", "secret"); local != c.local || elsewhere != c.elsewhere ||
			known != c.withKey {
			t.Errorf("%v: /metrics: %d here, %d elsewhere, %d with a token", c.readers, local, elsewhere, known)
		}
	}
}

// A listener that dies ends the picker, with a code; a metrics connection that
// says nothing more is closed some time.
func TestDeadListenersAreReported(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"ext_proc", "metrics"} {
		k := picking(t, evicting, 1)
		s, err := Start(Options{Serving: Serving{Address: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0"}, Pickers: k,
			Now: k.o.Now})
		if err != nil {
			t.Fatal(err)
		}
		if s.metrics.IdleTimeout <= 0 || s.metrics.IdleTimeout > 10*time.Minute {
			t.Errorf("idle connections stay for %v", s.metrics.IdleTimeout)
		}
		if err := s.listeners[what].Close(); err != nil {
			t.Fatal(err)
		}
		if err := serve.Until(t.Context(), time.Second, s.Failed(), s.Stop); exit.Of(err) != exit.Broken ||
			!strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
