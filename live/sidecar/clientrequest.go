package sidecar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// clientRequest drives one disagg.ClientRequest. Legs run in the request's own goroutine, one after another. Only
// concurrent and detached legs have goroutines of their own. The results of concurrent legs arrive through the inbox.
type clientRequest struct {
	k      *rank
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	ctx    context.Context
	cancel context.CancelFunc

	drive *drive.Driver[disagg.Message, *disagg.Effects]
	x     *disagg.ClientRequest // guarded by the driver's lock
	fx    disagg.Effects

	mu      sync.Mutex // guards todo and due
	todo    []disagg.Action
	due     chan struct{} // receives when todo has an action; nil until the request waits for the machine
	answers map[int]*http.Response

	flying map[int]context.CancelFunc // concurrent legs without an answer
	open   []context.CancelFunc       // concurrent legs with an answer that is still being read
	inbox  chan arrival

	wrote int // bytes sent to the client
	begun bool
	ok    atomic.Bool // the client has a whole answer whose status is not 5xx
}

func (e *clientRequest) run() {
	defer e.end()
	e.drive = drive.New(drive.Options[disagg.Message, *disagg.Effects]{Machine: e.x, Effects: &e.fx, Now: e.k.s.now,
		Carry: e.carry})
	e.input(disagg.Start{})
	for {
		for a := e.next(); a != nil; a = e.next() {
			e.play(a)
		}
		waits, over := e.waits()
		if !e.idle() {
			continue // an action became due just now
		}
		if over || !waits && len(e.flying) == 0 {
			return
		}
		select {
		case <-e.due:
		case a := <-e.inbox:
			e.arrived(a)
		case <-e.ctx.Done():
			e.gone("the client left")
		}
	}
}

// carry queues an action for the request's goroutine, because the action may wait.
func (e *clientRequest) carry(_ machine.Time, fx *disagg.Effects, i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.todo = append(e.todo, fx.List[i].Do)
	if e.due != nil {
		pause.Wake(e.due)
	}
}

// next returns the next action, or nil.
func (e *clientRequest) next() disagg.Action {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.todo) == 0 {
		return nil
	}
	a := e.todo[0]
	e.todo = e.todo[1:]
	return a
}

func (e *clientRequest) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.todo) == 0
}

// waits reports whether the machine has something to do later, and whether it has ended.
func (e *clientRequest) waits() (waits, over bool) {
	e.drive.With(func(machine.Time, *disagg.Effects) {
		over = e.x.Over()
		_, waits = e.x.Next()
	})
	if waits && e.due == nil {
		e.mu.Lock()
		e.due = make(chan struct{}, 1)
		e.mu.Unlock()
	}
	return waits, over
}

func (e *clientRequest) input(m disagg.Message) { e.drive.Input(m) }

// gone ends the request without an answer: the client has left, or the request broke off.
func (e *clientRequest) gone(reason string) {
	e.input(disagg.Gone{Reason: reason})
	e.cancel()
}

// end closes everything that is open, and updates the metrics.
func (e *clientRequest) end() {
	e.recall()
	for _, a := range e.answers {
		_ = a.Body.Close() // its reader is done
	}
	e.drive.With(func(now machine.Time, _ *disagg.Effects) {
		e.k.s.metrics.ended(e.x, e.x.Times(now), e.ok.Load(), e.k.s.o.BlockBytes)
	})
	broke := e.ctx.Err() != nil && e.r.Context().Err() == nil
	if !e.ok.Load() {
		e.cancel() // ends the detached legs, which nothing needs now
	}
	if s := e.k.c.Sessions; s != nil {
		e.k.s.locked(func() { e.k.s.metrics.sessions.Set(float64(s.Len())) })
	}
	if broke && e.begun {
		panic(http.ErrAbortHandler) // the client sees that the answer is cut
	}
}

func (e *clientRequest) play(a disagg.Action) {
	switch fx := a.(type) {
	case disagg.Call:
		if fx.Leg.Detached {
			e.k.s.detached.Add(1)
			e.k.s.inFlight.Add(1)
			go e.detached(fx.Leg)
			return
		}
		if fx.Leg.Concurrent {
			e.launch(fx.Leg)
			return
		}
		e.call(&fx.Leg)
	case disagg.Collect:
		body, err := readAll(e.answers[fx.Leg].Body)
		e.closeAnswer(fx.Leg)
		if err != nil {
			e.failed(fx.Leg, err)
			return
		}
		e.input(disagg.Whole{Leg: fx.Leg, Body: body})
	case disagg.Peek:
		e.peek(fx.Leg)
	case disagg.Deliver:
		e.deliver(fx)
	case disagg.Drop:
		if stop := e.flying[fx.Leg]; stop != nil {
			stop()
		}
		e.closeAnswer(fx.Leg)
	case disagg.Say:
		e.say(fx)
	case disagg.Answer:
		e.answer(fx)
	}
}

func (e *clientRequest) closeAnswer(leg int) {
	if a := e.answers[leg]; a != nil {
		_ = a.Body.Close()
	}
}

// call sends a leg and reports its status to the machine.
func (e *clientRequest) call(l *disagg.Leg) {
	resp, err := e.k.send(e.ctx, e, l) //nolint:bodyclose // closed by closeAnswer, or when the answer is delivered
	if err != nil {
		e.failed(l.ID, err)
		return
	}
	e.keep(l.ID, resp)
	e.input(headOf(l.ID, resp))
}

// headOf returns the head of an answer as the machine's message.
func headOf(leg int, resp *http.Response) disagg.Head {
	return disagg.Head{Leg: leg, Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"),
		Fetched: disagg.Transferred(resp.Header.Get(disagg.TransferHeader))}
}

func (e *clientRequest) keep(leg int, resp *http.Response) {
	if e.answers == nil {
		e.answers = map[int]*http.Response{}
	}
	e.answers[leg] = resp
}

// failed reports a leg without an answer. If the client has left, it reports that instead.
func (e *clientRequest) failed(leg int, err error) {
	if e.r.Context().Err() != nil {
		e.gone("the client left")
		return
	}
	e.k.s.metrics.connectionErrors.Inc()
	e.input(disagg.Failed{Leg: leg, Reason: err.Error(), Refused: isRefused(err)})
}

// detached runs a leg to its end whose answer no request waits for. The leg outlives the request only if the request
// had its answer.
func (e *clientRequest) detached(l disagg.Leg) {
	s := e.k.s
	defer s.detached.Done()
	defer s.inFlight.Add(-1)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stop := context.AfterFunc(e.ctx, func() {
		if !e.ok.Load() {
			cancel()
		}
	})
	defer stop()
	resp, err := e.k.send(ctx, e, &l)
	if err == nil {
		defer resp.Body.Close()
		e.input(headOf(l.ID, resp))
		var body []byte
		if body, err = readAll(resp.Body); err == nil {
			e.input(disagg.Whole{Leg: l.ID, Body: body})
			return
		}
	}
	if ctx.Err() == nil {
		s.metrics.connectionErrors.Inc()
	}
	e.input(disagg.Failed{Leg: l.ID, Reason: err.Error(), Refused: isRefused(err)})
}

var errTooLong = fmt.Errorf("the answer is longer than %d bytes", maxLegAnswer)

func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxLegAnswer+1))
	if err == nil && len(body) > maxLegAnswer {
		err = errTooLong
	}
	return body, err
}

// send sends a leg's request and waits for its status.
func (k *rank) send(ctx context.Context, e *clientRequest, l *disagg.Leg) (*http.Response, error) {
	s, in := k.s, e.r
	way := s.decodeWay
	u := *in.URL
	u.Scheme, u.Host = k.decoder.Scheme, k.decoder.Host
	if l.Target.Bad != "" {
		return nil, errors.New(l.Target.Bad)
	}
	switch l.Kind {
	case disagg.Decode:
		s.metrics.decodes.Inc()
		if l.Target.Host != "" { // a frontend's target in another pod
			way = s.proxies.to(&l.Target, &u)
		}
		if l.Rank > 0 && l.Rank < len(s.ranks) {
			u.Host = s.ranks[l.Rank].decoder.Host
		}
	case disagg.Encode:
		way = s.encoders.to(&l.Target, &u)
	default:
		if l.Kind == disagg.Prefill {
			s.metrics.prefills.Inc()
		}
		way = s.proxies.to(&l.Target, &u)
	}
	out := &http.Request{Method: in.Method, URL: &u, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: in.Header.Clone(), Host: in.Host}
	own := l.Kind == disagg.Bootstrap || l.Kind == disagg.Encode
	if own { // a request of the sidecar's own
		out.Method, out.Header, out.Host = l.Method, http.Header{}, ""
		u.Path, u.RawPath, u.RawQuery = l.Path, "", ""
	}
	if l.Path != "" {
		u.Path, u.RawPath = l.Path, ""
	}
	switch {
	case l.Kind == disagg.Bootstrap:
	case !l.Original:
		e.setBody(out, l.Body)
		delete(out.Header, "Accept-Encoding") // the sidecar must be able to read the answer
	case e.body != nil:
		e.setBody(out, e.body)
	case in.ContentLength != 0:
		out.Body, out.ContentLength = in.Body, in.ContentLength
	}
	trailers := serve.TakesTrailers(in)
	removeHop(out.Header)
	if trailers && !own {
		out.Header["Te"] = []string{"trailers"}
	}
	if !own {
		forwarded(out.Header, in.RemoteAddr)
	}
	if _, ok := out.Header["User-Agent"]; !ok && l.Kind != disagg.Bootstrap {
		out.Header["User-Agent"] = []string{""} // suppresses Go's own
	}
	for _, name := range l.Remove {
		delete(out.Header, name)
	}
	for _, h := range l.Set {
		out.Header.Set(h.Name, h.Value)
	}
	for _, h := range l.Add {
		out.Header.Add(h.Name, h.Value)
	}
	if l.Kind == disagg.Bootstrap {
		limited, cancel := context.WithTimeout(ctx, bootstrapTimeout)
		resp, err := way.RoundTrip(out.WithContext(limited))
		if err != nil {
			cancel()
			return nil, &url.Error{Op: "Get", URL: u.String(), Err: err}
		}
		resp.Body = &bounded{resp.Body, cancel}
		return resp, nil
	}
	return way.RoundTrip(out.WithContext(ctx))
}

// bounded is a body whose time limit ends when the body is closed.
type bounded struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *bounded) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

func (e *clientRequest) setBody(out *http.Request, body []byte) {
	out.Header.Set("Content-Length", strconv.Itoa(len(body)))
	out.ContentLength = int64(len(body))
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// peek passes an answer to the machine piece by piece until the machine has decided what to do with it.
func (e *clientRequest) peek(leg int) {
	buf := make([]byte, 32<<10)
	for e.idle() {
		n, err := e.answers[leg].Body.Read(buf)
		if n > 0 || errors.Is(err, io.EOF) {
			e.input(disagg.Part{Leg: leg, Data: buf[:n], End: err != nil})
		} else if err != nil {
			e.failed(leg, err)
			return
		}
	}
}
