// Package client is the simulated client in wall time. It sends a workload's conversations through the gateway and
// records how each request ended.
//
// Every request has exactly one outcome, recorded as the last event of its hop. In a held-open request, the client
// compares the echoed metadata with the metadata that the EPP generated, if both run in one process
// (Options.Metadata). Begin with Run.
package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/load/response"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Options configure a run.
type Options struct {
	// Target is the gateway's host:port.
	Target string
	// HTTP2 selects HTTP/2 without TLS instead of HTTP/1.1.
	HTTP2 bool
	// Chunked sends bodies without a content-length.
	Chunked bool
	// Timeout bounds one whole request; 0 means no bound.
	Timeout time.Duration
	// Requests is how many requests to send. Concurrency is the largest number of concurrent conversations.
	Requests, Concurrency int
	Workload              *workload.Config
	Recorder              record.Recorder
	Now                   func() machine.Time
	// Metadata, if not nil, returns the metadata that the EPP generated for a request, and whether it is known. The
	// call also deletes it.
	Metadata func(request string) (string, bool)
	// Connections is the number of HTTP/2 connections to share the load; 0 means 1.
	Connections int
	// Line holds the connections to the gateway; nil: no incident breaks them.
	Line *serve.Line
	// Trace, if not nil, adds a traceparent with the client's span to each request.
	Trace *tracing.IDs
}

// Run sends the workload and returns when every request has ended. When ctx ends, it aborts the requests in flight
// and returns.
func Run(ctx context.Context, o Options) error {
	if o.Requests < 1 || o.Concurrency < 1 {
		return errors.New("client: requests and concurrency must be at least 1")
	}
	var clients []*http.Client
	for range max(1, o.Connections) {
		t := transport(o)
		defer t.CloseIdleConnections()
		clients = append(clients, &http.Client{Transport: t})
	}
	load := *o.Workload
	load.Requests = o.Requests
	load.Write() // before conversations run in goroutines of their own
	run := run{o: &o, clients: clients, began: o.Now(), loop: workload.NewLoop(&load, o.Concurrency)}
	if !run.loop.Open() {
		for range run.loop.First() {
			run.arrived(ctx)
		}
	}
	for run.loop.Open() {
		due, more := run.arrival()
		if !more || !pause.For(ctx, (run.began+due-o.Now()).Duration()) {
			break
		}
		run.arrived(ctx)
	}
	run.conversations.Wait()
	return ctx.Err()
}

// run is the load being sent. Each conversation has a goroutine of its own.
type run struct {
	o             *Options
	clients       []*http.Client
	began         machine.Time
	conversations sync.WaitGroup

	mu   sync.Mutex // guards loop
	loop *workload.Loop
}

func (r *run) arrival() (machine.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loop.Arrival()
}

// arrived starts the next conversation, unless it must wait for the limit.
func (r *run) arrived(ctx context.Context) {
	r.mu.Lock()
	v, begins := r.loop.Arrived(nil)
	r.mu.Unlock()
	if begins {
		r.conversations.Go(func() { r.converse(ctx, v) })
	}
}

// converse runs a conversation, and after it the next one as long as the load loop starts one at its end.
func (r *run) converse(ctx context.Context, v *workload.Conversation) {
	for v != nil && ctx.Err() == nil {
		converse(ctx, r.clients[v.Index%len(r.clients)], r.o, v)
		r.mu.Lock()
		begins, arrives := r.loop.Ended(r.o.Now() - r.began)
		if arrives {
			begins, _ = r.loop.Arrived(nil)
		}
		r.mu.Unlock()
		v = begins
	}
}

func transport(o Options) *http.Transport {
	t := &http.Transport{
		DialContext:         o.Line.Dial((&net.Dialer{Timeout: 10 * time.Second}).DialContext),
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: o.Concurrency,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
	}
	if o.HTTP2 {
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// converse sends the requests of one conversation. Each request builds on the answers before it.
func converse(ctx context.Context, client *http.Client, o *Options, v *workload.Conversation) {
	for {
		answer, outcome := one(ctx, client, o, v.Request(), v.More())
		if !v.More() || ctx.Err() != nil || !pause.For(ctx, v.Next(answer, outcome).Duration()) {
			return
		}
	}
}

// errLeft is the cause of a request's end when the client leaves on purpose.
var errLeft = errors.New(response.ClientLeft)

// one sends one request and records its steps and its one outcome. With keep, it returns the answer's text, which the
// next request of the conversation needs.
func one(ctx context.Context, client *http.Client, o *Options, r workload.Request, keep bool) (answer string,
	outcome record.Outcome) {
	emit := func(step record.Step, details ...record.Detail) {
		if o.Recorder != nil {
			o.Recorder.Record(record.Event{Time: o.Now(), Request: r.ID, Hop: record.Client, Step: step,
				Details: details})
		}
	}
	reqCtx := ctx
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		reqCtx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	if after, leaves := o.Workload.Leaves(r.Index); leaves {
		var leave context.CancelCauseFunc
		reqCtx, leave = context.WithCancelCause(reqCtx)
		timer := time.AfterFunc(after.Duration(), func() { leave(errLeft) })
		defer leave(nil)
		defer timer.Stop()
	}
	req := newRequest(reqCtx, o, r)
	emit(record.RequestSent, r.Sent()...)
	outcome, answer, details := roundTrip(client, req, o, &r, keep, emit)
	if o.Metadata != nil {
		o.Metadata(r.ID) // delete it, whatever the outcome
	}
	response.Finish(emit, outcome, details)
	return answer, outcome
}

// where returns the URL of a path, which may have a query.
func where(target, path string) *url.URL {
	u, err := url.Parse(path)
	if err != nil { // a recorded path stays as it is
		u = &url.URL{Path: path}
	}
	u.Scheme, u.Host = "http", target
	return u
}

func newRequest(ctx context.Context, o *Options, r workload.Request) *http.Request {
	whole := r.Bytes()
	var body io.Reader = bytes.NewReader(whole)
	if o.Chunked || r.GRPC {
		body = io.MultiReader(body) // hides the length, so that the body is sent chunked
	}
	req := (&http.Request{Method: http.MethodPost, URL: where(o.Target, r.Path), Host: cmp.Or(r.Host, o.Target),
		Header: http.Header{"Content-Type": {r.ContentType()}, "X-Request-Id": {r.ID}},
		Body:   io.NopCloser(body)}).WithContext(ctx)
	if o.Trace != nil {
		req.Header.Set(tracing.Header, o.Trace.Next("", r.ID, tracing.Client))
	}
	for _, h := range r.Header {
		req.Header.Set(h.Name, h.Value)
	}
	req.ContentLength = int64(len(whole))
	if r.GRPC {
		req.Header.Set("Te", "trailers")
	}
	if o.Chunked || r.GRPC {
		req.ContentLength = -1
	}
	return req
}

// roundTrip sends a request and reads the response to its end.
func roundTrip(client *http.Client, req *http.Request, o *Options, r *workload.Request, keep bool,
	emit func(record.Step, ...record.Detail)) (record.Outcome, string, []record.Detail) {
	resp, err := client.Do(req)
	if err != nil {
		outcome, details := cut(req.Context(), err, &response.Facts{})
		return outcome, "", details
	}
	defer resp.Body.Close()
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	reader := response.NewReader(resp.Header.Get("Content-Type"))
	if keep {
		reader.Keep()
	}
	buf := make([]byte, 16<<10)
	first := true
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if first && ok {
				first = false
				emit(record.FirstTokenReceived, record.D("status", resp.StatusCode), record.D("bytes", n))
			}
			_, _ = reader.Write(buf[:n]) // never fails
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			outcome, details := cut(req.Context(), err,
				&response.Facts{Status: resp.StatusCode, Tokens: reader.Tokens()})
			return outcome, "", details
		}
	}
	reader.Close()
	facts := reader.Facts(resp.StatusCode)
	if o.Metadata != nil {
		facts.Want, facts.Known = o.Metadata(r.ID)
	}
	if r.GRPC {
		facts.Call(callStatus(resp))
	}
	outcome, details := facts.Ended(emit)
	return outcome, reader.Text(), details
}

// callStatus returns the status of a gRPC call: from the trailers, or from the headers if there is nothing else.
func callStatus(resp *http.Response) (vllmgrpc.Code, string, bool) {
	h := resp.Trailer
	if h.Get("Grpc-Status") == "" {
		h = resp.Header
	}
	return vllmgrpc.ReadStatus(h.Get("Grpc-Status"), h.Get("Grpc-Message"))
}

// cut returns the outcome of a request whose connection broke or that was aborted.
func cut(ctx context.Context, err error, f *response.Facts) (record.Outcome, []record.Detail) {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return f.TimedOut()
	case errors.Is(context.Cause(ctx), errLeft):
		return f.Left(response.ClientLeft)
	case errors.Is(ctx.Err(), context.Canceled):
		return f.Left(err.Error())
	}
	return f.Broke(err.Error())
}
