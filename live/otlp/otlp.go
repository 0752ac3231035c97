// Package otlp sends the spans of a run to a collector, in OpenTelemetry's protocol (OTLP) over HTTP or gRPC. It
// never slows a live run: it drops and counts what does not fit into its queue. Begin with New.
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
	queued    = 4096             // requests that wait to be turned into spans
	batch     = 512              // spans in one message
	every     = time.Second      // longest wait of a span for others
	patience  = 10 * time.Second // time limit of one message
	maxAnswer = 1 << 20          // bytes of a collector's answer
)

// Target is a collector's address.
type Target struct {
	url  *url.URL
	grpc bool
}

func (t Target) String() string { return t.url.String() }

// ParseTarget parses a collector's URL. http:// and https:// mean OTLP over HTTP, at /v1/traces if there is no path.
// grpc:// and grpcs:// mean OTLP over gRPC.
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

// Options configure an Exporter.
type Options struct {
	To Target
	// Trace determines the spans' parents.
	Trace trace.Options
	// Start is the wall time at the beginning of the run.
	Start time.Time
	// Wait makes Record wait for space in the queue instead of dropping spans. It is for virtual time.
	Wait bool
	// Live makes the Exporter send spans by the wall clock, even while no events arrive.
	Live bool
	// Headers are sent with each message. Attributes (key, value) are added to each resource.
	Headers, Attributes [][2]string
	// Share is the fraction of traces to send, from 0 to 1. Their ids decide which.
	Share float64
}

// Stats count the spans by what happened to them.
type Stats struct {
	// Sent are the spans that the collector accepted, Failed those that it did not accept.
	Sent, Failed int
	// Dropped counts requests without spans: the queue was full, or too many requests were in flight.
	Dropped int
	// Err is the first failure.
	Err error
}

// Exporter sends the spans of each request when the request ends. It is a record.Recorder.
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

// New starts an Exporter. Close stops it.
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

// Record adds one event of the run.
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

// Close sends the remaining spans and returns the counts. Record must not be called after it.
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
				x.collect.Settle(machine.FromDuration(time.Since(x.o.Start))) // a live run never waits for the exporter
			}
		}
	}
}

// sampled decides as OpenTelemetry's parentbased_traceidratio does: if the trace has a parent outside, the sender of
// that parent decides.
func (x *Exporter) sampled(made []trace.Span) bool {
	if made[0].Parent != (trace.SpanID{}) {
		return true
	}
	return (&tracing.IDs{Share: x.o.Share}).Sampled(made[0].Trace)
}

// send sends spans to the collector once, without retries, and counts failures.
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
	_ = proto.Unmarshal(text, answer) // an answer that is not OTLP still means success
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
