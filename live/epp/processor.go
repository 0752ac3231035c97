package epp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/extproc"
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
	p.s.m.add(metric.Streams, 1)
	defer func() { p.s.m.ended(time.Since(began), err) }()
	p.s.active.Add(1)
	p.s.checks.lastRequest.Store(began.UnixNano())
	defer p.s.active.Add(-1)
	k, done := p.s.o.Pickers.Take()
	defer done()
	return newServed(p.s, k, wire, wire.Context()).run()
}

// wire is a stream's two directions, for messages that codec knows.
type wire interface {
	RecvMsg(m any) error
	SendMsg(m any) error
}

// served is one stream's goroutine and its machine, which live/drive drives.
type served struct {
	s       *Server
	k       *Picking
	out     outbox
	drive   *drive.Driver[*stream.Message, *machine.Effects[stream.Effect]]
	machine *core.Stream // the driver's
	peer    context.Context
	ended   atomic.Bool // the stream is over, or broken: result knows how

	// The machine's lock guards the following fields.
	patience context.Context // ends when nobody waits for an answer; nil until a plug-in asks
	cancel   context.CancelFunc
	left     bool // nobody waits for an answer
	fx       machine.Effects[stream.Effect]
	broken   error            // what a panic ended the stream with
	sent     bool             // the decision's metrics are taken
	spent    time.Duration    // on the response
	room     [3]stream.Effect // for fx, which rarely holds more

	// And these for the stream's goroutine.
	in       stream.Message
	heard    extproc.In
	modes    stream.Modes
	decide   bool // the next step asks the picker
	lastAt   machine.Time
	evicted  <-chan struct{} // nil when the request cannot be evicted
	arrivals chan arrival    // nil until receive needs it
}

func newServed(s *Server, k *Picking, wire wire, peer context.Context) *served {
	c := &served{s: s, k: k, out: outbox{wire: wire, m: s.m}, peer: peer,
		machine: core.NewStream(k.m, k, k.number.Add(1))}
	c.fx.List = c.room[:0]
	c.machine.Over = func() {
		_ = guarded(s.o.Log, "the metrics", c.machine.RequestID(), c.over)
	}
	c.drive = drive.New(drive.Options[*stream.Message, *machine.Effects[stream.Effect]]{Machine: c.machine,
		Effects: &c.fx,
		Now:     s.o.Now, Carry: c.carry, Panicked: c.panicked, Rang: c.rang})
	return c
}

func (c *served) run() error {
	defer func() { // nothing is sent once the handler has returned
		c.drive.Stop()
		_ = guarded(c.s.o.Log, deciding, c.machine.RequestID(), c.flush)
		c.leave()
	}()
	for {
		in, err := c.receive()
		if done, err := c.turn(in, err); done {
			return err
		}
	}
}

// waits is a context that ends when the client has left or has been answered. Few
// requests have to wait for anything but their next message, so it is made for who
// asks.
func (c *served) waits() context.Context {
	var patience context.Context
	c.locked(func(machine.Time, *machine.Effects[stream.Effect]) {
		if c.patience == nil {
			if c.patience, c.cancel = context.WithCancel(c.peer); c.left {
				c.cancel()
			}
		}
		patience = c.patience //nolint:fatcontext // taken over once, not nested
	})
	return cmp.Or(patience, c.peer)
}

// leave cancels the wait: a picker that still computes may stop. The caller holds the machine, or it has stopped.
func (c *served) leave() {
	if c.left = true; c.cancel != nil {
		c.cancel()
	}
}

// turn is step. A panic in it (plug-ins have guards of their own) breaks this
// stream off and no other.
func (c *served) turn(in *extproc.In, err error) (done bool, _ error) {
	panicked := guarded(c.s.o.Log, deciding, c.machine.RequestID(), func() { done, err = c.step(in, err) })
	if panicked == nil {
		return done, err
	}
	c.drive.With(func(now machine.Time, _ *machine.Effects[stream.Effect]) { c.breakOff(now, panicked.Error()) })
	return c.result()
}

// deciding names the part that panicked.
const deciding = "the endpoint picker"

// panicked handles a panic while the machine is locked, and in its timer.
func (c *served) panicked(now machine.Time, v any, rang bool) {
	logPanic(c.s.o.Log, deciding, c.machine.RequestID(), v)
	c.breakOff(now, fmt.Sprintf("%s failed: panic: %v", deciding, v))
	if rang { // the reader waits for Envoy, so Envoy must end the stream
		c.leave()
		a := stream.Answer{Status: 500, Body: []byte(status.Convert(c.broken).Message())}
		c.out.add(&stream.Effect{Kind: stream.SendAnswer, Answer: a}, c.modes) // or it has ended it already
	}
}

// rang sends what a deadline has brought about. Whoever reads the stream may wait
// for Envoy meanwhile, in either direction.
func (c *served) rang() {
	if err := guarded(c.s.o.Log, deciding, "", c.flush); err != nil {
		c.drive.With(func(now machine.Time, _ *machine.Effects[stream.Effect]) {
			c.breakOff(now, err.Error())
			c.leave()
		})
	}
}

// flush sends the queue. The caller must not hold the machine, since Envoy may take its time.
func (c *served) flush() {
	if c.out.flush() != nil {
		c.ended.Store(true)
	}
}

// breakOff ends the stream with an error, and gives back what its request holds.
func (c *served) breakOff(now machine.Time, reason string) {
	c.broken = status.Error(codes.Internal, reason)
	c.ended.Store(true)
	c.fx.Reset()
	_ = guarded(c.s.o.Log, "the end of a stream", c.machine.RequestID(),
		func() { c.machine.Fail(now, reason, &c.fx) })
	c.fx.Reset()
}

// step plays a received message, or the error in its place. It reports whether the stream is over, and with which gRPC
// status.
func (c *served) step(in *extproc.In, err error) (bool, error) {
	switch {
	case errors.Is(err, errEvicted):
		c.evicted = nil
		c.drive.With(func(now machine.Time, fx *machine.Effects[stream.Effect]) {
			if c.machine.Result() == stream.Running { // else the response was whole already
				c.machine.Evict(now, fx)
			}
		})
	case err != nil:
		return true, c.gone(err)
	default:
		if in.Known && (in.Kind == stream.Body && in.End || in.Kind == stream.Trailers) {
			c.out.whole()
		}
		c.input(in)
	}
	c.flush()
	for c.decide {
		c.decide = false
		c.ask()
	}
	return c.result()
}

// ask lets the picker decide. A deadline may pass meanwhile, and then the decision
// comes too late and is ignored.
func (c *served) ask() {
	r := c.machine.Request()
	c.k.decide(c.waits, r)
	if w, ok := r.Owner.(*waiter); ok && r.Evictable() {
		c.evicted = w.evicted
	}
	c.drive.With(c.machine.Decide)
	c.flush()
	c.drive.With(func(machine.Time, *machine.Effects[stream.Effect]) {
		c.note()
		if c.machine.Result() == stream.Left { // no plug-in looks at the response, so Envoy waits for nothing
			c.ended.Store(true)
		}
	})
}

// note takes the metrics of a decision, once it is on its way.
func (c *served) note() {
	r := c.machine.Request()
	if c.sent || r == nil || r.Request == nil {
		return
	}
	c.sent = true
	_ = guarded(c.k.o.Log, "the metrics", r.ID, func() { c.k.measure(r) })
	if r.Decision != nil && r.Err == nil {
		c.k.o.Metrics.dispatched(r)
	}
}

// over is called when the stream is, before the picker takes back what the
// request held.
func (c *served) over() {
	c.note() // the client may have left before
	if r := c.machine.Request(); r != nil && r.Decision != nil && r.Decision.Err == nil {
		c.k.o.Metrics.ended(c.k.o.Picker, r, c.s.o.Now(), c.spent)
	}
}

// errEvicted is receive's error for a request that must end early.
var errEvicted = errors.New("the request is evicted")

type arrival struct {
	in  *extproc.In
	err error
}

// receive is the next message. Of a request that can be evicted a goroutine of
// its own waits for messages, since Recv cannot be left otherwise.
func (c *served) receive() (*extproc.In, error) {
	if c.arrivals == nil && c.evicted == nil {
		return &c.heard, c.out.wire.RecvMsg(&c.heard)
	}
	ctx := c.waits()
	if c.arrivals == nil {
		c.arrivals = make(chan arrival)
		go func() {
			for {
				in := new(extproc.In)
				err := c.out.wire.RecvMsg(in)
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
	case <-ctx.Done(): // the goroutine may have noticed first and left
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// carry carries an effect out: it is queued for Envoy, but for the decision, which
// is for the stream's goroutine to ask for.
func (c *served) carry(_ machine.Time, fx *machine.Effects[stream.Effect], i int) {
	e := &fx.List[i]
	switch e.Kind {
	case stream.Decide:
		c.decide = true
		return
	case stream.Fail:
		c.ended.Store(true)
		return
	}
	c.out.add(e, c.modes)
	if e.Kind == stream.SendAnswer {
		c.ended.Store(true)
		c.leave()
	}
}

// result reports whether the stream is over, and with which gRPC status.
func (c *served) result() (done bool, err error) {
	if !c.ended.Load() {
		return false, nil
	}
	c.locked(func(now machine.Time, fx *machine.Effects[stream.Effect]) {
		done, err = true, c.broken
		if c.broken != nil {
			return
		}
		if err = c.out.failed(); err != nil {
			c.machine.Input(now, &stream.Message{Kind: stream.PeerGone,
				Reason: c.cause("the stream to Envoy broke: " + err.Error())}, fx)
			return
		}
		switch c.machine.Result() {
		case stream.Running, stream.PassedThrough: // Envoy closes a stream that is over
			done = false
		case stream.Failed:
			err = status.Error(codes.Aborted, "the request did not finish")
			if r := c.machine.Request(); r != nil && r.Err != nil { // a plug-in panicked over the response
				err = status.Error(codes.Internal, r.Err.Message)
			}
		}
	})
	return done, err
}

// locked runs f while it holds the machine, even if effects that were due before panic: that has broken the stream, and
// f sees it.
func (c *served) locked(f func(now machine.Time, fx *machine.Effects[stream.Effect])) {
	ran := false
	for tries := 0; tries < 2 && !ran; tries++ {
		c.drive.With(func(now machine.Time, fx *machine.Effects[stream.Effect]) { ran = true; f(now, fx) })
	}
}

// cause returns why the stream to Envoy ended: the picker's end, if it was killed, and else the given reason.
func (c *served) cause(reason string) string {
	if c.s.killed.Load() {
		return stream.Killed
	}
	return reason
}

// gone ends a stream on which nothing more can be read.
func (c *served) gone(err error) (result error) {
	reason := ""
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK && s.Code() != codes.Canceled {
		reason = "the stream to Envoy broke: " + s.Message()
	}
	result = status.Error(codes.Canceled, "the request was given up")
	c.locked(func(now machine.Time, fx *machine.Effects[stream.Effect]) {
		switch r := c.machine.Result(); {
		case c.broken != nil:
			result = c.broken
		case r == stream.PassedThrough || r == stream.Answered:
			result = nil
		default:
			c.machine.Input(now, &stream.Message{Kind: stream.PeerGone, Reason: c.cause(reason)}, fx)
		}
	})
	return result
}
