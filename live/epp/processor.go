package epp

import (
	"context"
	"errors"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	core "github.com/windtunnel/windtunnel/core/epp"
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
	k, done := p.s.o.Pickers.Take()
	defer done()
	c := newServed(p.s, k, wire, cancel)
	return c.run(ctx)
}

// served is one stream's goroutine and timer around its machine.
type served struct {
	s    *Server
	k    *Picking
	wire extprocv3.ExternalProcessor_ProcessServer

	mu      sync.Mutex // guards all below, and Send
	machine *core.Stream
	in      stream.Message
	fx      machine.Effects[stream.Effect]
	modes   stream.Modes
	timer   *time.Timer
	wakeAt  machine.Time
	sendErr error
	broken  error // what a panic ended the stream with
	cancel  context.CancelFunc

	decide   bool
	whole    time.Time // when the request's last byte came
	answered bool      // the first message is out
	sent     bool      // the decision's figures are taken
	lastAt   machine.Time
	spent    time.Duration // on the response

	evicted  <-chan struct{} // nil when the request cannot be evicted
	arrivals chan arrival    // nil until receive needs it

	lent *pieceMessage // see piece
}

func newServed(s *Server, k *Picking, wire extprocv3.ExternalProcessor_ProcessServer, cancel context.CancelFunc) *served {
	c := &served{s: s, k: k, wire: wire, cancel: cancel}
	k.mu.Lock() // core/epp's machine is read
	c.machine = core.NewStream(k.m, k, k.number.Add(1))
	k.mu.Unlock()
	c.machine.Over = func() {
		_ = guarded(s.o.Log, "the metrics", c.machine.RequestID(), func() error { c.over(); return nil })
	}
	return c
}

func (c *served) run(ctx context.Context) error {
	defer c.finish()
	for {
		in, err := c.receive(ctx)
		if done, err := c.turn(func() (bool, error) { return c.step(ctx, in, err) }); done {
			return err
		}
	}
}

// turn runs f under the lock. A panic in it (plug-ins have guards of their own)
// breaks this stream off and no other: what the request holds is given back.
func (c *served) turn(f func() (done bool, err error)) (done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	panicked := true
	err = guarded(c.s.o.Log, "the endpoint picker", c.machine.RequestID(), func() (err error) {
		done, err = f()
		panicked = false
		return err
	})
	if !panicked {
		return done, err
	}
	c.broken = status.Error(codes.Internal, err.Error())
	_ = guarded(c.s.o.Log, "the end of a stream", c.machine.RequestID(), func() error {
		c.machine.Fail(c.s.o.Now(), err.Error(), &c.fx)
		return nil
	})
	c.fx.Reset()
	return true, c.broken
}

// step plays what was received, or why nothing was. It says whether the stream
// is over, and with which gRPC status. The lock is held.
func (c *served) step(ctx context.Context, in *extprocv3.ProcessingRequest, err error) (bool, error) {
	switch {
	case c.broken != nil:
		return true, c.broken
	case errors.Is(err, errEvicted):
		return c.evict()
	case err != nil:
		return true, c.gone(err)
	}
	c.input(in)
	for c.decide {
		c.decide = false
		c.ask(ctx)
	}
	return c.result()
}

// ask lets the picker decide, without the lock: a deadline may pass meanwhile,
// and then the decision comes too late and is ignored.
func (c *served) ask(ctx context.Context) {
	r := c.machine.Request()
	func() {
		c.mu.Unlock()
		defer c.mu.Lock()
		c.k.decide(ctx, r)
	}()
	if w, ok := r.Owner.(*waiter); ok && r.Evictable() {
		c.evicted = w.evicted
	}
	c.machine.Decide(c.s.o.Now(), &c.fx)
	c.play()
	c.note()
}

// note takes the figures of a decision, once it is on its way.
func (c *served) note() {
	r := c.machine.Request()
	if c.sent || r == nil || r.Request == nil {
		return
	}
	c.sent = true
	c.k.note(r)
	if r.Decision != nil && r.Err == nil {
		c.k.o.Metrics.dispatched(r)
	}
}

// over is called when the stream is, before the picker takes back what the
// request held.
func (c *served) over() {
	c.note() // the client may have left before
	if r := c.machine.Request(); r != nil && r.Decision != nil && r.Decision.Err == nil {
		c.k.o.Metrics.ended(r, c.s.o.Now(), c.spent)
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
func (c *served) receive(ctx context.Context) (*extprocv3.ProcessingRequest, error) {
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
// not when the response was whole already. The lock is held.
func (c *served) evict() (bool, error) {
	c.evicted = nil
	if c.machine.Result() == stream.Running {
		c.machine.Evict(c.s.o.Now(), &c.fx)
		c.play()
	}
	return c.result()
}

// play sends effects and keeps the machine's deadline. The lock is held.
func (c *served) play() {
	for i := range c.fx.List {
		e := &c.fx.List[i]
		if e.Kind == stream.Decide {
			c.decide, c.whole = true, time.Now()
			continue
		}
		c.send(e)
	}
	c.fx.Reset()
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
}

func (c *served) deadline() {
	_, err := c.turn(func() (bool, error) {
		if c.machine.Result() != stream.Running {
			return false, nil
		}
		now := c.s.o.Now()
		if now < c.wakeAt { // an older alarm, which rang while a decision moved the deadline
			c.timer.Reset((c.wakeAt - now).Duration())
			return false, nil
		}
		c.machine.Advance(now, &c.fx)
		c.play()
		if c.machine.Result() != stream.Running {
			c.cancel() // a picker that still thinks may stop
		}
		return false, nil
	})
	if err != nil { // who reads waits for Envoy, so Envoy has to end it
		_, _ = c.turn(func() (bool, error) {
			c.cancel()
			a := stream.Answer{Status: 500, Body: []byte(status.Convert(err).Message())}
			return true, c.wire.Send(c.output(&stream.Effect{Kind: stream.SendAnswer, Answer: a}))
		})
	}
}

func (c *served) send(e *stream.Effect) {
	if e.Kind == stream.Fail || c.sendErr != nil {
		return
	}
	c.sendErr = c.wire.Send(c.output(e))
	c.giveBack()
	if !c.answered {
		c.answered = true
		if !c.whole.IsZero() {
			c.s.m.processing.Observe(time.Since(c.whole).Seconds())
		}
	}
}

// result tells whether the stream is over, and with which gRPC status.
func (c *served) result() (bool, error) {
	if c.sendErr != nil {
		c.tell(stream.Message{Kind: stream.PeerGone, Reason: "the stream to Envoy broke: " + c.sendErr.Error()})
		return true, c.sendErr
	}
	switch c.machine.Result() {
	case stream.Running, stream.PassedThrough: // Envoy closes a stream that is over
		return false, nil
	case stream.Failed:
		if r := c.machine.Request(); r != nil && r.Err != nil { // a plug-in panicked over the response
			return true, status.Error(codes.Internal, r.Err.Message)
		}
		return true, status.Error(codes.Aborted, "the request did not finish")
	}
	return true, nil
}

// tell gives the machine a message and plays what comes of it. The lock is held.
func (c *served) tell(m stream.Message) {
	c.in = m
	c.machine.Input(c.s.o.Now(), &c.in, &c.fx)
	c.play()
}

// gone ends a stream on which nothing more can be read. The lock is held.
func (c *served) gone(err error) error {
	if c.machine.Result() == stream.PassedThrough || c.machine.Result() == stream.Answered {
		return nil
	}
	reason := ""
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK && s.Code() != codes.Canceled {
		reason = "the stream to Envoy broke: " + s.Message()
	}
	c.tell(stream.Message{Kind: stream.PeerGone, Reason: reason})
	return status.Error(codes.Canceled, "the request was given up")
}

func (c *served) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}
