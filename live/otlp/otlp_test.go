package otlp

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
)

// receiver is a small collector.
type receiver struct {
	mu     sync.Mutex
	spans  []*tracepb.Span
	header http.Header
	answer []byte
	status int
}

func (r *receiver) take(m *tracepb.TracesData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range m.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.header = req.Header
	body, err := io.ReadAll(req.Body)
	var m tracepb.TracesData
	if err != nil || proto.Unmarshal(body, &m) != nil || req.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.status != 0 {
		w.WriteHeader(r.status)
		return
	}
	r.take(&m)
	_, _ = w.Write(r.answer)
}

func events(id string) []record.Event {
	var out []record.Event
	for i, at := range []record.At{{Hop: record.Client, Step: record.RequestSent},
		{Hop: record.EPP, Step: record.RequestReceived}, {Hop: record.EPP, Step: record.RequestPassed},
		{Hop: record.Server, Step: record.RequestReceived}, {Hop: record.Server, Step: record.LastTokenSent},
		{Hop: record.EPP, Step: record.ResponseEndSeen}, {Hop: record.Client, Step: record.Finished}} {
		e := record.Event{Time: machine.Time(i) * machine.Millisecond, Request: id, Attempt: 1, Hop: at.Hop,
			Step: at.Step}
		if at.Step == record.Finished {
			e.Details = record.Details{record.D("outcome", "completed")}
		}
		out = append(out, e)
	}
	return out
}

func export(t *testing.T, url string, change func(*Options), requests ...string) Stats {
	t.Helper()
	to, err := ParseTarget(url)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{To: to, Start: time.Unix(1_700_000_000, 0), Wait: true, Share: 1}
	if change != nil {
		change(&o)
	}
	x, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range requests {
		for _, e := range events(id) {
			x.Record(e)
		}
	}
	return x.Close()
}

func TestOverHTTP(t *testing.T) {
	r := &receiver{}
	s := httptest.NewServer(r)
	defer s.Close()
	stats := export(t, s.URL, func(o *Options) { o.Headers = [][2]string{{"X-Tenant", "a"}} }, "r1", "r2")
	if len(r.spans) != 6 || stats != (Stats{Sent: 6}) || r.header.Get("X-Tenant") != "a" ||
		r.header.Get("Content-Type") != "application/x-protobuf" {
		t.Fatalf("received %d spans with %v, sent %+v", len(r.spans), r.header, stats)
	}
	if c := r.spans[0]; c.StartTimeUnixNano != 1_700_000_000e9 || len(c.ParentSpanId) != 0 {
		t.Fatalf("the client's span is %v", c)
	}
	ids := map[string]bool{}
	for _, x := range r.spans {
		ids[string(x.SpanId)] = true
	}
	for _, x := range r.spans {
		if len(x.ParentSpanId) > 0 && !ids[string(x.ParentSpanId)] {
			t.Errorf("%s has a parent that nobody sent", x.Name)
		}
	}
	if len(ids) != 6 {
		t.Errorf("6 spans have %d ids", len(ids))
	}
}

func TestOverGRPC(t *testing.T) {
	r := &receiver{}
	g := grpc.NewServer()
	g.RegisterService(&grpc.ServiceDesc{ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService",
		HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Export",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any,
				error) {
				var m tracepb.TracesData
				if err := decode(&m); err != nil {
					return nil, err
				}
				r.take(&m)
				return &emptypb.Empty{}, nil
			}}}}, r)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	stats := export(t, "grpc://"+l.Addr().String(), nil, "r1")
	g.Stop()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if len(r.spans) != 3 || stats != (Stats{Sent: 3}) {
		t.Fatalf("received %d spans, sent %+v", len(r.spans), stats)
	}
}

// Spans that a collector does not accept are counted and reported.
func TestFailures(t *testing.T) {
	r := &receiver{status: http.StatusServiceUnavailable}
	s := httptest.NewServer(r)
	defer s.Close()
	if stats := export(t, s.URL, nil, "r1"); stats.Failed != 3 || stats.Sent != 0 || stats.Err == nil ||
		!strings.Contains(stats.Err.Error(), "503") {
		t.Fatalf("%+v", stats)
	}
	r.status, r.answer = 0, []byte{0x0a, 2, 0x08, 2} // partial_success: 2 rejected
	if stats := export(t, s.URL, nil, "r1"); stats.Failed != 2 || stats.Sent != 1 {
		t.Fatalf("%+v", stats)
	}
	r.answer = []byte{0x0a, 200}
	if stats := export(t, s.URL, nil, "r1"); stats.Sent != 3 {
		t.Fatalf("a broken answer: %+v", stats)
	}
	if stats := export(t, s.URL, func(o *Options) { o.Share = 0 }, "r1"); stats != (Stats{}) {
		t.Fatalf("a share of none sent %+v", stats)
	}
}

// A collector that does not answer does not slow the run: the queue fills up, and further spans are dropped and
// counted.
func TestSlowCollectorDropsSpans(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	to, err := ParseTarget(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	x, err := New(Options{To: to, Start: time.Now(), Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * queued {
		for _, e := range events(record.RequestID(1, i+1)) {
			e.Time += machine.Time(i) * machine.Second
			x.Record(e)
		}
	}
	close(release)
	if stats := x.Close(); stats.Dropped < queued/2 || stats.Sent == 0 {
		t.Fatalf("%+v", stats)
	}
}

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{"http://h:1": "http://h:1/v1/traces", "https://h/x": "https://h/x",
		"grpc://h:1": "grpc://h:1"} {
		if got, err := ParseTarget(in); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "h:1", "ftp://h", "grpc://h", "grpc://h:1/x", "http://%"} {
		if _, err := ParseTarget(in); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}
