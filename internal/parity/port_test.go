package parity

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/structpb"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/live/epp"
)

// port drives live/epp behind its gRPC port. Its clock is the player's.
type port struct {
	*epp.Picking
	t        *testing.T
	client   extprocv3.ExternalProcessorClient
	clock    atomic.Int64
	server   *epp.Server
	registry *prometheus.Registry
	open     int // streams that were not left

	page    func(address string) (string, error)
	mu      sync.Mutex
	rounds  *sync.Cond
	round   int
	scrapes int // that wait for the next round
	closed  bool
}

func openPort(t *testing.T, pool string, l *Line) opener {
	return func(c core.Config, page func(address string) (string, error)) (driver, error) {
		o := &port{t: t, page: page, registry: prometheus.NewRegistry()}
		o.rounds = sync.NewCond(&o.mu)
		now := func() machine.Time { return machine.Time(o.clock.Load()) }
		var err error
		o.Picking, err = epp.NewPicking(epp.PickingOptions{Config: c, Now: now, PoolName: pool, Fetch: o.fetch,
			Metrics: epp.NewPickMetrics(o.registry, pool)})
		if err != nil {
			return nil, err
		}
		if err = epp.ObservePool(o.registry, o.Picking, pool); err != nil {
			return nil, err
		}
		o.server, err = epp.Start(
			epp.Options{Serving: epp.Serving{Address: "127.0.0.1:0", HealthAddress: "127.0.0.1:0",
				StreamMetrics: l.flag("--enable-grpc-stream-metrics") == "true"},
				Pickers: o.Picking, Now: now, Registry: o.registry})
		if err != nil {
			return nil, err
		}
		conn, err := grpc.NewClient(o.server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			conn.Close()
			o.server.Kill()
			o.mu.Lock()
			o.closed = true
			o.mu.Unlock()
			o.answer()
			o.Close()
		})
		o.client = extprocv3.NewExternalProcessorClient(conn)
		return o, nil
	}
}

// fetch has a page in the next round.
func (o *port) fetch(at string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.scrapes++
	for round := o.round; o.round == round && !o.closed; {
		o.rounds.Wait()
	}
	if o.closed {
		return nil, errNobody
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	text, err := o.page(u.Host)
	return []byte(text), err
}

func (o *port) answer() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.scrapes = 0
	o.round++
	o.rounds.Broadcast()
}

func (o *port) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.scrapes
}

func (o *port) advance(now machine.Time) {
	o.clock.Store(int64(now))
	o.With(func(*core.Machine, machine.Time) {})
}

// patience is how long a server may take over what is due.
const patience = time.Minute

func (o *port) await(done func() bool) bool {
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// portConn is a stream and what arrived on it.
type portConn struct {
	o      *port
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
	in     chan Message
	left   bool
}

func (o *port) connect() conn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &portConn{o: o, cancel: cancel, in: make(chan Message, 1000)}
	o.open++
	var err error
	if c.stream, err = o.client.Process(ctx); err != nil {
		o.t.Fatal(err)
	}
	go func() {
		defer close(c.in)
		for {
			m, err := c.stream.Recv()
			if err != nil {
				return
			}
			c.in <- received(m)
		}
	}()
	return c
}

func (c *portConn) send(m *stream.Message, metadata map[string]map[string]any) {
	q := &extprocv3.ProcessingRequest{}
	headers := &extprocv3.HttpHeaders{Headers: headerMap(m.Head), EndOfStream: m.End}
	body := &extprocv3.HttpBody{Body: m.Body, EndOfStream: m.End}
	switch m.Kind {
	case stream.Headers:
		q.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headers}
	case stream.Body:
		q.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: body}
	case stream.Trailers:
		q.Request = &extprocv3.ProcessingRequest_RequestTrailers{
			RequestTrailers: &extprocv3.HttpTrailers{Trailers: headers.Headers}}
	case stream.ResponseHeaders:
		q.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers}
	case stream.ResponseBody:
		q.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body}
	case stream.ResponseTrailers:
		q.Request = &extprocv3.ProcessingRequest_ResponseTrailers{
			ResponseTrailers: &extprocv3.HttpTrailers{Trailers: headers.Headers}}
	}
	if metadata != nil {
		q.MetadataContext = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
		for ns, v := range metadata {
			fields, err := structpb.NewStruct(v)
			if err != nil {
				c.o.t.Error(err)
			}
			q.MetadataContext.FilterMetadata[ns] = fields
		}
	}
	_ = c.stream.Send(q) // an early answer ends the stream
}

func headerMap(list header.List) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for _, h := range list {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: h.Name, RawValue: []byte(h.Value)})
	}
	return m
}

func (c *portConn) heard() (got []Message, over bool) {
	for {
		select {
		case m, ok := <-c.in:
			if !ok {
				return got, true
			}
			got = append(got, m)
		default:
			return got, false
		}
	}
}

// leave ends the stream as Envoy does, and waits until the picker knows.
func (c *portConn) leave() {
	if c.left {
		return
	}
	c.left = true
	c.o.open--
	_ = c.stream.CloseSend()
	c.cancel()
	c.o.await(func() bool { return c.o.server.Active() <= c.o.open })
}

// notRecorded are families that the recordings leave out. They depend on time or on the process, or they come from the
// documents, and the real picker lacks them.
var notRecorded = regexp.MustCompile(
	`_info$|dispatch_cycle_duration|datalayer_(poll|extract)_errors|^inference_objective_(inference_request_metric|request_ttft_seconds)$|^(llmd_epp|scheduler|epp)_`)

// notRecordedWithoutPattern are families that only those runs recorded which
// asked for them.
const notRecordedWithoutPattern = "plugin_duration_seconds"

// figures are the canonical metrics whose series match, by series.
func (o *port) metrics(pattern string, whole bool) (out map[string]float64, types map[string]string) {
	wanted := regexp.MustCompile(pattern)
	out, types = map[string]float64{}, map[string]string{}
	families, err := o.registry.Gather()
	if err != nil {
		o.t.Error(err)
	}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
		if !whole && (!strings.HasPrefix(f.GetName(), "llm_d_epp_") && pattern != everyMetric ||
			notRecorded.MatchString(f.GetName()) ||
			pattern == everyMetric && strings.HasSuffix(f.GetName(), notRecordedWithoutPattern)) {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			slices.Sort(labels)
			add := func(suffix string, v float64) {
				series := f.GetName() + suffix + "{" + strings.Join(labels, ",") + "}"
				if len(labels) == 0 {
					series = f.GetName() + suffix
				}
				if wanted.MatchString(series) {
					out[series] = v
				}
			}
			switch {
			case m.Counter != nil:
				add("", m.Counter.GetValue())
			case m.Gauge != nil:
				add("", m.Gauge.GetValue())
			case m.Histogram != nil:
				add("_count", float64(m.Histogram.GetSampleCount()))
				if !strings.HasSuffix(f.GetName(), "_seconds") {
					add("_sum", m.Histogram.GetSampleSum())
				}
			}
		}
	}
	return out, types
}

func (o *port) found(pool bool) { o.server.SetReady(pool) }

func (o *port) health(at, service string) string {
	address := o.server.Addr()
	if at == "health_port" {
		address = o.server.HealthAddr()
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		o.t.Fatal(err)
	}
	defer conn.Close()
	got, err := healthv1.NewHealthClient(conn).Check(o.t.Context(), &healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		return err.Error()
	}
	return got.Status.String()
}

func (o *port) get(path string) (int, []byte) {
	mux := http.NewServeMux()
	for pattern, h := range o.Pages() {
		mux.Handle(pattern, h)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.Bytes()
}

// received returns the response that arrived, in the recordings' form.
func received(in *extprocv3.ProcessingResponse) (m Message) {
	mutate := func(h *extprocv3.HeaderMutation) {
		m.SetHeaders = [][2]string{}
		for _, o := range h.GetSetHeaders() {
			v := string(o.Header.RawValue)
			if v == "" {
				v = o.Header.Value
			}
			m.SetHeaders = append(m.SetHeaders, [2]string{o.Header.Key, v})
		}
		slices.SortFunc(m.SetHeaders, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
		m.RemoveHeaders = h.GetRemoveHeaders()
		slices.Sort(m.RemoveHeaders)
	}
	body := func(r *extprocv3.BodyResponse) {
		c := r.GetResponse().GetBodyMutation().GetStreamedResponse()
		text := string(c.GetBody())
		m.Body, m.Size, m.EOS = &text, len(text), c.GetEndOfStream()
	}
	switch r := in.Response.(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		m.Type, m.ClearRouteCache = "request_headers", r.RequestHeaders.GetResponse().GetClearRouteCache()
		mutate(r.RequestHeaders.GetResponse().GetHeaderMutation())
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		m.Type = "response_headers"
		mutate(r.ResponseHeaders.GetResponse().GetHeaderMutation())
	case *extprocv3.ProcessingResponse_RequestBody:
		m.Type = "request_body"
		body(r.RequestBody)
	case *extprocv3.ProcessingResponse_ResponseBody:
		m.Type = "response_body"
		body(r.ResponseBody)
	case *extprocv3.ProcessingResponse_RequestTrailers:
		m.Type = "request_trailers"
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		m.Type = "response_trailers"
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		text := string(r.ImmediateResponse.Body)
		m.Type, m.Status, m.Body = "immediate_response", int(r.ImmediateResponse.GetStatus().GetCode()), &text
		mutate(r.ImmediateResponse.Headers)
	}
	if in.DynamicMetadata != nil {
		m.Metadata = in.DynamicMetadata.AsMap()
	}
	return m
}

// pool is the name under which the picker's metrics are.
func (l *Line) pool() string {
	if l.flag("--endpoint-selector") != "" {
		return "epp" // the Deployment's name
	}
	return cmp.Or(l.PoolName, "sim-pool")
}

// argued are the minimal cases of differential.jsonl.gz that still differ, each by a row of
// docs/parity.md.
var argued = []string{
	"ttl-then-capacity", "reporter-json-trailers", "usage-cut-between-pieces", "metrics-capacity-outcome",
	"metrics-mm-embeddings",
	// By families of document 004 alone.
	"metrics-header-profile-unknown", "metrics-prefer-412", "metrics-header-only", "metrics-agent-identity-session-id",
	"metrics-page-that-cannot-be-read",
	"metrics-data-parallel-port", "metrics-passthrough-model-name", "metrics-prefix-content-empty",
	"metrics-prefix-images", "metrics-prefix-render",
	"metrics-prefix-completions-list",
}

// The same recordings through the gRPC port, message by message, on the
// player's clock: what waits there waits no longer than it must. A tenth of them, and all at night.
func TestRecordingsThroughThePort(t *testing.T) {
	for _, f := range recordings(t) {
		topic := strings.TrimSuffix(filepath.Base(f), ".jsonl.gz")
		list, err := Load(os.DirFS(filepath.Dir(f)), filepath.Base(f))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			if topic != "differential" { // whose list of argued cases is complete
				list = nightly.Some(list)
			}
			for _, l := range list {
				if l.Accepted != nil || l.Steps == nil || l.elsewhere() != "" {
					continue
				}
				faults := play(&l, openPort(t, l.pool(), &l))
				for _, f := range faults {
					if Deviation(topic, l.ID, f) == "" {
						t.Errorf("%s %s | %s | recorded %.300s | got %.600s", l.ID, f.Unit, f.Field, f.Recorded, f.Got)
					}
				}
				if topic == "differential" && (len(faults) > 0) != slices.Contains(argued, l.ID) {
					t.Errorf("%s has %d differences; argued says otherwise", l.ID, len(faults))
				}
			}
		})
	}
}
