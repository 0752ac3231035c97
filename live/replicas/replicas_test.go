package replicas

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// A page that does not come is not asked for again meanwhile, and keeps nobody from the
// others: what the autoscaler goes by is there.
func TestOnePageAtATime(t *testing.T) {
	t.Parallel()
	query, _, err := promql.Read("sum(vllm:num_requests_running)")
	if err != nil {
		t.Fatal(err)
	}
	var held, read, wanted atomic.Int64
	never := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		held.Add(1)
		<-never
	}))
	defer stuck.Close()
	defer close(never) // before stuck closes, which waits for its calls
	quick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		read.Add(1)
		_, _ = io.WriteString(w,
			"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 6\n")
	}))
	defer quick.Close()
	at := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	d := Start(Options{Deployment: deployment.New(deployment.Config{Replicas: 1, Places: 3}),
		Scaler: &autoscaler.Config{Min: 1, Max: 3, Scrape: 5 * machine.Millisecond, Sync: 5 * machine.Millisecond,
			Behavior: autoscaler.DefaultBehavior(),
			Triggers: []autoscaler.Trigger{
				{Name: "running", Query: query, Kind: autoscaler.AverageValue, Target: 2000}}},
		Happens: func(deployment.Effect) {}, Scaled: func(e autoscaler.Effect) { wanted.Store(int64(e.To)) },
		Pickers: func() []Target { return nil },
		Servers: func() []Target { return []Target{{"stuck", at(stuck)}, {"quick", at(quick)}} },
		Log:     slog.New(slog.DiscardHandler)})
	defer d.Stop()
	eventually.Is(t, "three pods are wanted", func() bool { return wanted.Load() == 3 })
	before := read.Load()
	eventually.Is(t, "the other page is read again and again", func() bool { return read.Load() >= before+10 })
	if n := held.Load(); n != 1 {
		t.Errorf("the page that does not come was asked for %d times at once; expected 1", n)
	}
}
