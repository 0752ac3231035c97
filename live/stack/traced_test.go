package stack

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/scenario"
)

// An external model server gets the context of the picker's span: in the client's trace, below the picker, if both
// trace; the client's own if only the client does; and none if neither does.
func TestTraceReachesForeignServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		picker, client bool
		key            string // of the span that the server stands below
	}{
		"the client and the picker": {true, true, tracing.Gateway(1)},
		"the picker alone":          {true, false, tracing.Gateway(1)},
		"the client alone":          {false, true, tracing.Client},
		"nobody":                    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			got := map[string]string{} // by x-request-id
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					mu.Lock()
					got[r.Header.Get("X-Request-Id")] = r.Header.Get(tracing.Header)
					mu.Unlock()
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":1,` +
					`"completion_tokens":1}}`))
			}))
			t.Cleanup(server.Close)
			s := quick(func(s *scenario.Scenario) {
				s.Pools[0].Flow, s.Pools[0].Endpoints = scenario.Plain,
					[]string{strings.TrimPrefix(server.URL, "http://")}
				s.Workload.Requests, s.Workload.Stream = 2, false
			})
			ids := &tracing.IDs{Salt: 3, Share: 1}
			o := Options{Scenario: s, Recorder: record.Func(func(record.Event) {}), Dir: t.TempDir()}
			if c.picker {
				o.Trace = ids
			}
			if c.client {
				o.ClientTrace = ids
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			st, err := Start(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := st.Stop(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			if err := st.Load(ctx); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(got) < 2 {
				t.Fatalf("the server got %v", got)
			}
			for request, traceparent := range got {
				want := ""
				if c.key != "" {
					want = tracing.Context{Trace: ids.Trace(request, tracing.Client), Span: ids.Span(request, c.key),
						Sampled: true}.String()
				}
				if traceparent != want {
					t.Errorf("%s came with %q, want %q", request, traceparent, want)
				}
			}
		})
	}
}
