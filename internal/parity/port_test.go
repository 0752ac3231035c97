package parity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/objects"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/live/epp"
)

// port is a picker behind its gRPC port. Its clock is the player's.
type port struct {
	t        *testing.T
	picking  *epp.Picking
	client   extprocv3.ExternalProcessorClient
	clock    atomic.Int64
	server   *epp.Server
	registry *prometheus.Registry
	held     *prometheus.Registry // only what flow control holds and ends
	opened   int                  // streams that were not left
	queues   bool
}

// twice registers the few figures that the player reads again and again in a
// registry of their own, too.
type twice struct {
	prometheus.Registerer
	held *prometheus.Registry
}

var heldFigures = regexp.MustCompile(`fqName: "llm_d_epp_flow_control_(queue_size|revocations_issued_total)"`)

// MustRegister registers.
func (r twice) MustRegister(list ...prometheus.Collector) {
	r.Registerer.MustRegister(list...)
	for _, c := range list {
		switch c.(type) {
		case *prometheus.GaugeVec, *prometheus.CounterVec: // they have one description
		default:
			continue
		}
		desc := make(chan *prometheus.Desc, 1)
		c.Describe(desc)
		if heldFigures.MatchString((<-desc).String()) {
			r.held.MustRegister(c)
		}
	}
}

func openPort(t *testing.T, p *picker.Picker, pool string) (*port, error) {
	o := &port{t: t, queues: p.FlowControl()}
	now := func() machine.Time { return machine.Time(o.clock.Load()) }
	var err error
	o.registry, o.held = prometheus.NewRegistry(), prometheus.NewRegistry()
	o.picking, err = epp.NewPicking(epp.PickingOptions{Now: now, PoolName: pool, Metrics: epp.NewPickMetrics(twice{o.registry, o.held}, pool),
		Config: core.Config{Picker: p, EmitScores: true, Stream: stream.Config{Errors: stream.EPPErrors, MaxBodyBytes: 64 << 20}},
		Fetch:  func(string) ([]byte, error) { return nil, errors.New("the player brings the figures") }})
	if err == nil {
		err = epp.ObservePool(o.registry, o.picking, pool)
	}
	if err != nil {
		return nil, err
	}
	o.server, err = epp.Start(epp.Options{Address: "127.0.0.1:0", Pickers: o.picking, Now: now})
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
		o.picking.Close()
	})
	o.client = extprocv3.NewExternalProcessorClient(conn)
	return o, nil
}

func (o *port) alone(now machine.Time, f func()) {
	o.clock.Store(int64(now))
	o.picking.With(func(*core.Machine, machine.Time) { f() })
}

// opened is one stream and what arrived on it.
type opened struct {
	stream extprocv3.ExternalProcessor_ProcessClient
	cancel context.CancelFunc
	in     chan Message
	left   bool
}

func (o *port) open() *opened {
	ctx, cancel := context.WithCancel(context.Background())
	o.opened++
	s := &opened{cancel: cancel, in: make(chan Message, 1000)}
	var err error
	if s.stream, err = o.client.Process(ctx); err != nil {
		o.t.Error(err)
		close(s.in)
		return s
	}
	go func() {
		defer close(s.in)
		for {
			m, err := s.stream.Recv()
			if err != nil {
				status := "OK"
				if !errors.Is(err, io.EOF) {
					status = err.Error()
				}
				s.in <- Message{Type: "stream_end", Body: &status}
				return
			}
			s.in <- message(m)
		}
	}()
	return s
}

// next is the next message; ok is false when none comes.
func (s *opened) next(wait time.Duration) (Message, bool) {
	select {
	case m, ok := <-s.in:
		return m, ok
	case <-time.After(wait):
		return Message{Type: "nothing more (stream open)"}, false
	}
}

func headerMap(h map[string]string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for _, k := range sortedKeys(h) {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: k, RawValue: []byte(h[k])})
	}
	return m
}

func (o *port) ask(now machine.Time, rq *Request) any {
	o.clock.Store(int64(now))
	s := o.open()
	h := map[string]string{":method": rq.Method, ":path": rq.Path}
	for k, v := range rq.Headers {
		h[k] = v
	}
	on := rq.MetadataOn
	meta := &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	for ns, v := range rq.Metadata {
		fields, err := structpb.NewStruct(v)
		if err != nil {
			o.t.Error(err)
		}
		meta.FilterMetadata[ns] = fields
	}
	send := func(m *extprocv3.ProcessingRequest, where string) {
		if len(rq.Metadata) > 0 && (on == "" || on == "all" || on == where) {
			m.MetadataContext = meta
		}
		_ = s.stream.Send(m) // an early answer ends the stream
	}
	send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(h), EndOfStream: rq.Body == nil}}}, "headers")
	if rq.Body != nil {
		rest := []byte(*rq.Body)
		var parts [][]byte
		for _, n := range rq.Chunks {
			n = min(n, len(rest))
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		if len(rest) > 0 || len(parts) == 0 {
			parts = append(parts, rest)
		}
		for i, part := range parts {
			send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
				RequestBody: &extprocv3.HttpBody{Body: part, EndOfStream: i == len(parts)-1}}}, "body")
		}
	}
	return s
}

func (o *port) heard(handle any) (got []Message, over bool) {
	s := handle.(*opened)
	for {
		select {
		case m, ok := <-s.in:
			if !ok || m.Type == "stream_end" {
				return got, true
			}
			got = append(got, m)
		default:
			return got, false
		}
	}
}

var heldSeries = regexp.MustCompile("")

func (o *port) flow() (queued, evicted int, left bool) {
	for series, v := range o.gathered(o.held, heldSeries) {
		if strings.Contains(series, "queue_size") {
			queued += int(v)
		} else {
			evicted += int(v)
		}
	}
	return queued, evicted, o.server.Active() <= o.opened
}

func (o *port) apply(now machine.Time, s objects.Selection) {
	o.clock.Store(int64(now))
	o.picking.Apply(s, false)
}

func (o *port) request(now machine.Time, rq *Request) (any, []Message) {
	s := o.ask(now, rq).(*opened)
	var got []Message
	for {
		m, ok := s.next(5 * time.Second)
		if !ok || m.Type == "stream_end" {
			return s, got
		}
		got = append(got, m)
		if m.Type == "immediate_response" || m.Type == "request_headers" && rq.Body == nil || m.Type == "request_body" && m.EOS {
			return s, got
		}
	}
}

func (o *port) respond(now machine.Time, handle any, headers map[string]string, chunks []string, end, wanted bool) []Message {
	o.clock.Store(int64(now))
	s := handle.(*opened)
	expect := 0
	if headers != nil {
		_ = s.stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{
			ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(headers), EndOfStream: end && len(chunks) == 0}}})
		expect++
	}
	for i, c := range chunks {
		_ = s.stream.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
			ResponseBody: &extprocv3.HttpBody{Body: []byte(c), EndOfStream: end && i == len(chunks)-1}}})
		expect++
	}
	var got []Message
	for {
		m, ok := s.next(5 * time.Second)
		if !ok || m.Type == "stream_end" {
			return got
		}
		got = append(got, m)
		if m.Type == "response_body" && m.EOS || !end && len(got) == expect {
			return got
		}
	}
}

// leave ends the stream as Envoy does, and waits until the picker knows.
func (o *port) leave(now machine.Time, handle any) {
	o.clock.Store(int64(now))
	s, ok := handle.(*opened)
	if !ok || s.left {
		return
	}
	s.left = true
	o.opened--
	_ = s.stream.CloseSend()
	s.cancel()
	for {
		if m, ok := s.next(5 * time.Second); !ok || m.Type == "stream_end" {
			break
		}
	}
	if o.queues { // the player waits, once its clock has gone on
		return
	}
	for end := time.Now().Add(5 * time.Second); o.server.Active() > o.opened && time.Now().Before(end); {
		time.Sleep(50 * time.Microsecond)
	}
}

func (o *port) conversation(now machine.Time, sent [][2]json.RawMessage) []Message {
	o.clock.Store(int64(now))
	s := o.open()
	defer o.leave(now, s)
	for _, m := range sent {
		var kind string
		var parts [2]json.RawMessage
		var h map[string]string
		var text string
		var end bool
		_ = json.Unmarshal(m[0], &kind)
		if json.Unmarshal(m[1], &parts) == nil {
			_ = json.Unmarshal(parts[0], &h)
			_ = json.Unmarshal(parts[0], &text)
			_ = json.Unmarshal(parts[1], &end)
		} else {
			_ = json.Unmarshal(m[1], &h)
		}
		q := &extprocv3.ProcessingRequest{}
		switch kind {
		case "request_headers":
			q.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headerMap(h), EndOfStream: end}}
		case "request_body":
			q.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}
		case "request_trailers":
			q.Request = &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{Trailers: headerMap(h)}}
		case "response_headers":
			q.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{Headers: headerMap(h), EndOfStream: end}}
		case "response_body":
			q.Request = &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}
		case "response_trailers":
			q.Request = &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{Trailers: headerMap(h)}}
		}
		if s.stream.Send(q) != nil {
			break
		}
	}
	var got []Message
	for {
		m, ok := s.next(300 * time.Millisecond)
		if m.Type != "" {
			got = append(got, m)
		}
		if !ok || m.Type == "stream_end" {
			return got
		}
	}
}

// figures are the canonical metrics whose series match, by series.
func (o *port) figures(now machine.Time, pattern string) map[string]float64 {
	o.clock.Store(int64(now))
	return o.gathered(o.registry, regexp.MustCompile(pattern))
}

func (o *port) gathered(from *prometheus.Registry, wanted *regexp.Regexp) map[string]float64 {
	out := map[string]float64{}
	families, err := from.Gather()
	if err != nil {
		o.t.Error(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "llm_d_epp_") {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			sort.Strings(labels)
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
	return out
}

func (o *port) page(now machine.Time, path string) (int, []byte) {
	o.clock.Store(int64(now))
	mux := http.NewServeMux()
	for pattern, h := range o.picking.Pages() {
		mux.Handle(pattern, h)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.Bytes()
}

// message is what arrived, in the recordings' form.
func message(in *extprocv3.ProcessingResponse) (m Message) {
	mutate := func(h *extprocv3.HeaderMutation) {
		m.SetHeaders = [][2]string{}
		for _, o := range h.GetSetHeaders() {
			v := string(o.Header.RawValue)
			if v == "" {
				v = o.Header.Value
			}
			m.SetHeaders = append(m.SetHeaders, [2]string{o.Header.Key, v})
		}
		sort.Slice(m.SetHeaders, func(i, j int) bool { return fmt.Sprint(m.SetHeaders[i]) < fmt.Sprint(m.SetHeaders[j]) })
		m.RemoveHeaders = h.GetRemoveHeaders()
		sort.Strings(m.RemoveHeaders)
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

// The same recordings through the gRPC port, message by message, on the
// player's clock: what waits there waits no longer than it must.
func TestRecordingsThroughThePort(t *testing.T) {
	for _, f := range recordings(t) {
		topic := strings.TrimSuffix(filepath.Base(f), ".jsonl.gz")
		list, err := Load(os.DirFS(filepath.Dir(f)), filepath.Base(f))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			for i := range list {
				l := &list[i]
				if l.Accepted != nil || l.Steps == nil || l.elsewhere() != "" {
					continue
				}
				pool := l.PoolName
				if pool == "" {
					pool = "sim-pool"
				}
				if strings.Contains(fmt.Sprint(l.Flags), "--endpoint-selector") {
					pool = "epp" // the Deployment's name
				}
				for _, f := range play(l, func(p *picker.Picker) (door, error) { return openPort(t, p, pool) }) {
					if Deviation(topic, l.ID, f) == "" {
						t.Errorf("%s %s | %s | recorded %.300s | got %.600s", l.ID, f.Unit, f.Field, f.Recorded, f.Got)
					}
				}
			}
		})
	}
}
