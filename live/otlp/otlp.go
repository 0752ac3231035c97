// Package otlp sends the spans of a run to a collector, in OpenTelemetry's protocol
// (OTLP) over HTTP or gRPC. It never slows a live run: what does not fit into its queue
// is dropped and counted.
package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/report/trace"
)

// Limits of an Exporter.
const (
	queued    = 4096             // requests that wait to become spans
	batch     = 512              // spans in one message
	every     = time.Second      // how long a span waits for others
	patience  = 10 * time.Second // for one message
	maxAnswer = 1 << 20          // bytes of a collector's answer
)

// Target is a collector.
type Target struct {
	url  *url.URL
	grpc bool
}

func (t Target) String() string { return t.url.String() }

// ParseTarget reads a collector's URL: http:// and https:// are OTLP over HTTP, to
// /v1/traces where there is no path; grpc:// and grpcs:// are OTLP over gRPC.
func ParseTarget(text string) (Target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return Target{}, fmt.Errorf(
			"found %q; expected a collector's URL such as http://127.0.0.1:4318 (OTLP over HTTP) or "+
				"grpc://127.0.0.1:4317 (over gRPC)", text)
	}
	switch u.Scheme {
	case "http", "https":
		if strings.Trim(u.Path, "/") == "" {
			u.Path = "/v1/traces"
		}
		return Target{url: u}, nil
	case "grpc", "grpcs":
		if strings.Trim(u.Path, "/") != "" || u.Port() == "" {
			return Target{}, fmt.Errorf(
				"found %q; expected a port and no path for OTLP over gRPC, such as grpc://127.0.0.1:4317", text)
		}
		return Target{url: u, grpc: true}, nil
	}
	return Target{}, fmt.Errorf("found the scheme %q; expected http, https, grpc or grpcs", u.Scheme)
}

// Options say what is sent where.
type Options struct {
	To Target
	// Trace says who is whose parent.
	Trace trace.Options
	// Start is the wall clock's time at the run's beginning.
	Start time.Time
	// Wait has Record wait for room rather than drop, where time is only counted.
	Wait bool
	// Live has requests sent by the wall clock, also when no event comes.
	Live bool
	// Headers go with each message, Attributes (key, value) with each resource.
	Headers, Attributes [][2]string
	// Share of the traces that is sent, from 0 to 1, chosen by their ids.
	Share float64
}

// Stats are what came of the spans.
type Stats struct {
	// Sent are spans that the collector took, Failed those that it did not.
	Sent, Failed int
	// Dropped are requests whose spans were not made: the queue was full, or too many
	// requests were in flight at once.
	Dropped int
	// Err is the first failure.
	Err error
}

// Exporter sends the spans of requests as they end. It is a record.Recorder.
type Exporter struct {
	o       Options
	collect *trace.Collector
	queue   chan []record.Event
	done    chan struct{}
	client  *http.Client
	conn    *grpc.ClientConn

	mu    sync.Mutex // guards stats
	stats Stats
}

// New starts an Exporter; Close ends it.
func New(o Options) (*Exporter, error) {
	x := &Exporter{o: o, queue: make(chan []record.Event, queued), done: make(chan struct{}),
		client: &http.Client{Timeout: patience, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}}
	if o.To.grpc {
		secure := insecure.NewCredentials()
		if o.To.url.Scheme == "grpcs" {
			secure = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
		}
		var err error
		if x.conn, err = grpc.NewClient(o.To.url.Host, grpc.WithTransportCredentials(secure)); err != nil {
			return nil, fmt.Errorf("%s: %w", o.To, err)
		}
	}
	x.collect = trace.NewCollector(x.enqueue)
	go x.work()
	return x, nil
}

// Record takes one event of the run.
func (x *Exporter) Record(e record.Event) { x.collect.Record(e) }

func (x *Exporter) enqueue(events []record.Event) {
	if x.o.Wait {
		x.queue <- events
		return
	}
	select {
	case x.queue <- events:
	default:
		x.count(func(s *Stats) { s.Dropped++ })
	}
}

func (x *Exporter) count(how func(*Stats)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	how(&x.stats)
}

// Close sends what is left and says what came of all. Nothing may be recorded after it.
func (x *Exporter) Close() Stats {
	dropped := x.collect.Close()
	close(x.queue)
	<-x.done
	x.client.CloseIdleConnections()
	if x.conn != nil {
		_ = x.conn.Close() // all messages were answered
	}
	x.count(func(s *Stats) { s.Dropped += dropped })
	return x.stats
}

func (x *Exporter) work() {
	defer close(x.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var spans []trace.Span
	flush := func() {
		if len(spans) > 0 {
			x.send(spans)
		}
		spans = nil
	}
	for {
		select {
		case events, ok := <-x.queue:
			if !ok {
				flush()
				return
			}
			if made := trace.Of(events, x.o.Trace); len(made) > 0 && x.sampled(made) {
				spans = append(spans, made...)
			}
			if len(spans) >= batch {
				flush()
			}
		case <-tick.C:
			flush()
			if x.o.Live {
				x.collect.Settle(machine.FromDuration(time.Since(x.o.Start))) // a live run never waits for us
			}
		}
	}
}

// sampled decides as OpenTelemetry's parentbased_traceidratio does: a trace that somebody
// else began is his to sample.
func (x *Exporter) sampled(made []trace.Span) bool {
	if made[0].Parent != (trace.SpanID{}) {
		return true
	}
	return (&tracing.IDs{Share: x.o.Share}).Sampled(made[0].Trace)
}

// send gives spans to the collector once: a run goes on, and what failed is counted.
func (x *Exporter) send(spans []trace.Span) {
	request := &collectorpb.ExportTraceServiceRequest{ResourceSpans: x.resourceSpans(spans)}
	answer := &collectorpb.ExportTraceServiceResponse{}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	export := x.byHTTP
	if x.conn != nil {
		export = x.byGRPC
	}
	err := export(ctx, request, answer)
	rejected := int(answer.GetPartialSuccess().GetRejectedSpans())
	x.count(func(s *Stats) {
		if err != nil {
			rejected = len(spans)
		}
		rejected = min(max(rejected, 0), len(spans))
		s.Sent, s.Failed = s.Sent+len(spans)-rejected, s.Failed+rejected
		if rejected > 0 && s.Err == nil {
			s.Err = err
			if err == nil {
				s.Err = fmt.Errorf("%s rejected %d spans", x.o.To, rejected)
			}
		}
	})
}

// exportMethod is the method of the collector's gRPC service.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// byHTTP sends the request and reads the collector's answer.
func (x *Exporter) byHTTP(ctx context.Context, request, answer proto.Message) error {
	body, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.o.To.url.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	for _, h := range x.o.Headers {
		req.Header.Set(h[0], h[1])
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("%s: %w", x.o.To, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s; expected a collector that takes OTLP over HTTP (protobuf) there", x.o.To,
			resp.Status)
	}
	_ = proto.Unmarshal(text, answer) // a collector that took the spans may answer anything
	return nil
}

// byGRPC calls the collector's service.
func (x *Exporter) byGRPC(ctx context.Context, request, answer proto.Message) error {
	headers := make([]string, 0, 2*len(x.o.Headers))
	for _, h := range x.o.Headers {
		headers = append(headers, h[0], h[1])
	}
	ctx = metadata.AppendToOutgoingContext(ctx, headers...)
	if err := x.conn.Invoke(ctx, exportMethod, request, answer); err != nil {
		return fmt.Errorf("%s: %w", x.o.To, err)
	}
	return nil
}
