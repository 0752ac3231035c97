package epp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/stream"
)

// processor is the gRPC service.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer
	s *Server
}

// Process serves one ext_proc stream, which is one request. It never returns
// nil on an unfinished one: Envoy would take that for consent, and the client
// would hang or the pod would get an empty body.
func (p *processor) Process(wire extprocv3.ExternalProcessor_ProcessServer) (err error) {
	began := time.Now()
	defer func() { p.s.m.ended(time.Since(began), err) }()
	p.s.active.Add(1)
	p.s.checks.lastRequest.Store(began.UnixNano())
	defer p.s.active.Add(-1)
	p.s.m.inflight.Inc()
	defer p.s.m.inflight.Dec()
	ctx, cancel := context.WithCancel(wire.Context())
	defer cancel()
	c := &conversation{s: p.s, wire: wire, machine: stream.New(p.s.o.Stream), cancel: cancel}
	return c.run(ctx)
}

// conversation is one stream's goroutine, timer and machine.
type conversation struct {
	s    *Server
	wire extprocv3.ExternalProcessor_ProcessServer

	mu       sync.Mutex // guards all below, and Send
	machine  *stream.Stream
	exchange Exchange
	ended    bool
	modes    stream.Modes
	timer    *time.Timer
	wakeAt   machine.Time
	sendErr  error
	cancel   context.CancelFunc

	request  Request
	decide   bool
	whole    time.Time // when the request's last byte came
	answered bool      // the first message is out
	respHead header.List
	respMeta Metadata // what came with respHead

	evictable evictable
	evicted   <-chan struct{} // nil when the request cannot be evicted
	arrivals  chan arrival    // nil until receive needs it

	list [1]*extprocv3.ProcessingResponse // see alone
	lent *pieceMessage                    // see piece
}

func (c *conversation) run(ctx context.Context) error {
	defer c.finish()
	for {
		in, err := c.receive(ctx)
		if errors.Is(err, errEvicted) {
			if done, err := c.evict(); done {
				return err
			}
			continue
		}
		if err != nil {
			return c.gone(err)
		}
		c.mu.Lock()
		if c.machine.Result() == stream.PassedThrough {
			c.afterEnd(in)
			c.mu.Unlock()
			continue
		}
		c.play(c.input(in))
		for c.decide {
			c.decide = false
			c.ask(ctx)
		}
		done, err := c.result()
		c.mu.Unlock()
		if done {
			return err
		}
	}
}

// ask lets the director decide, without the lock: a deadline may pass
// meanwhile, and then the decision comes too late and is ignored.
func (c *conversation) ask(ctx context.Context) {
	r := c.request
	c.mu.Unlock()
	decision, exchange := c.decideSafely(ctx, &r)
	c.mu.Lock()
	if c.machine.Result() != stream.Running {
		if exchange != nil {
			exchange.End(c.machine.Result())
		}
		return
	}
	c.exchange = exchange
	if x, ok := exchange.(evictable); ok {
		c.evictable, c.evicted = x, x.Evicted()
	}
	c.play(c.machine.Decided(c.s.o.Now(), decision))
	if x, ok := exchange.(starter); ok {
		x.Sent()
	}
}

// errEvicted is what receive says when the request must end early.
var errEvicted = errors.New("evicted")

type arrival struct {
	in  *extprocv3.ProcessingRequest
	err error
}

// receive is the next message. Of a request that can be evicted a goroutine of
// its own waits for messages, since Recv cannot be left otherwise.
func (c *conversation) receive(ctx context.Context) (*extprocv3.ProcessingRequest, error) {
	if c.arrivals == nil && c.evicted == nil {
		return c.wire.Recv()
	}
	if c.arrivals == nil {
		c.arrivals = make(chan arrival)
		go func() {
			for {
				in, err := c.wire.Recv()
				select {
				case c.arrivals <- arrival{in, err}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	select {
	case a := <-c.arrivals:
		return a.in, a.err
	case <-c.evicted:
		return nil, errEvicted
	case <-ctx.Done(): // the goroutine may have heard of it first and left
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// evict ends the request and the stream. It says whether the stream is over:
// not when the response was whole already.
func (c *conversation) evict() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.evicted = nil
	if !c.ended {
		c.play(c.machine.Evict(c.s.o.Now(), c.evictable.EvictedAnswer()))
	}
	return c.result()
}

// decideSafely turns a panic of a plug-in into an error of its own request.
func (c *conversation) decideSafely(ctx context.Context, r *Request) (d stream.Decision, x Exchange) {
	defer func() {
		if v := recover(); v != nil {
			c.s.o.Log.Error("epp: the picker panicked", "request", r.ID, "panic", v, "stack", string(debug.Stack()))
			a := c.s.o.Stream.Errors.Answer(&apierror.Error{Status: 500, Message: fmt.Sprintf("the endpoint picker failed: %v", v)})
			d, x = stream.Decision{Answer: &a, Reason: fmt.Sprintf("panic: %v", v)}, nil
		}
	}()
	return c.s.o.Director.Decide(ctx, r)
}

// play sends effects and keeps the machine's deadline. The lock is held.
func (c *conversation) play(effects []stream.Effect) {
	for i := range effects {
		e := &effects[i]
		if e.Kind == stream.Decide {
			c.request.Head, c.request.Body, c.request.ID, c.request.HeadersOnly = e.Head, e.Body, c.machine.RequestID(), e.End
			c.decide, c.whole = true, time.Now()
			continue
		}
		c.send(e)
	}
	at, running := c.machine.Next()
	switch {
	case !running:
		if c.timer != nil {
			c.timer.Stop()
		}
		c.wakeAt = 0
	case c.timer == nil:
		c.wakeAt = at
		c.timer = time.AfterFunc((at - c.s.o.Now()).Duration(), c.deadline)
	case at != c.wakeAt:
		c.wakeAt = at
		c.timer.Reset((at - c.s.o.Now()).Duration())
	}
	if c.machine.Result() != stream.Running {
		c.end()
	}
}

func (c *conversation) deadline() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	now := c.s.o.Now()
	if now < c.wakeAt { // an older alarm, which rang while a decision moved the deadline
		c.timer.Reset((c.wakeAt - now).Duration())
		return
	}
	c.play(c.machine.Advance(now))
	if c.machine.Result() != stream.Running {
		c.cancel() // a director that still thinks may stop
	}
}

func (c *conversation) send(e *stream.Effect) {
	if e.Kind == stream.Fail || c.sendErr != nil {
		return
	}
	if e.Kind == stream.PassResponseTrailers {
		if f, ok := c.exchange.(flusher); ok {
			if body := f.Flush(); len(body) > 0 {
				c.sendErr = c.wire.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
					ResponseBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: streamed(body, false)}}}})
			}
		}
	}
	for _, out := range c.output(e) {
		if c.sendErr == nil {
			c.sendErr = c.wire.Send(out)
		}
	}
	c.sent()
	if !c.answered {
		c.answered = true
		if !c.request.HeadersOnly && !c.whole.IsZero() {
			c.s.m.processing.Observe(time.Since(c.whole).Seconds())
		}
	}
}

// result tells whether the stream is over, and with which gRPC status.
func (c *conversation) result() (bool, error) {
	if c.sendErr != nil {
		c.play(c.machine.PeerGone(c.s.o.Now(), "the stream to Envoy broke: "+c.sendErr.Error()))
		return true, c.sendErr
	}
	switch c.machine.Result() {
	case stream.Running, stream.PassedThrough: // Envoy closes a stream that is over
		return false, nil
	case stream.Failed:
		return true, status.Error(codes.Aborted, "the request did not finish")
	}
	return true, nil
}

// afterEnd answers what may still come on a stream whose response is over:
// trailers after the last piece of the body.
func (c *conversation) afterEnd(in *extprocv3.ProcessingRequest) {
	if in.GetResponseTrailers() != nil && c.sendErr == nil {
		c.sendErr = c.wire.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &extprocv3.TrailersResponse{}}})
	}
}

// gone ends a stream on which nothing more can be read.
func (c *conversation) gone(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine.Result() == stream.PassedThrough || c.machine.Result() == stream.Answered {
		return nil
	}
	reason := ""
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK && s.Code() != codes.Canceled {
		reason = "the stream to Envoy broke: " + s.Message()
	}
	c.play(c.machine.PeerGone(c.s.o.Now(), reason))
	return status.Error(codes.Canceled, "the request was given up")
}

func (c *conversation) end() {
	if c.ended {
		return
	}
	c.ended = true
	if c.exchange != nil {
		c.exchange.End(c.machine.Result())
	}
}

func (c *conversation) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.ended = true
}
