package upstream

import (
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
)

// exchange is one request with its attempts and its answer.
type exchange struct {
	gateway.Attempts
	number   uint64
	named    []string // not tried yet
	draw     machine.Draw
	attempt  int
	host     *host   // the attempt's host; nil between two attempts
	tried    []*host // hosts tried so far
	waits    bool    // the attempt waits for a connection
	sent     bool    // all of the request has been sent
	begun    bool    // the answer has begun
	retrying bool    // the attempt counts as a retry
	left     int     // remaining retries
	backoff  time.Duration
	whole    machine.Time // the deadline of the exchange, or Never
	until    machine.Time // the attempt's deadline, or the start of the next one
	timer    machine.Handle
}

// Reselections is how often Envoy draws again to find an endpoint that it has not tried
// (host_selection_retry_max_attempts).
const Reselections = 5

func (x *Cluster) startExchange(m *RequestHeaders) {
	if x.exchanges[m.Request] != nil {
		return
	}
	e := &exchange{Attempts: m.Attempts, number: m.Request, named: m.Named,
		draw: machine.DrawFor(x.c.Seed, "envoy", "back-off", m.ID), left: m.Retries, backoff: m.Base,
		whole: machine.Never, until: machine.Never}
	x.exchanges[e.number] = e
	x.try(e)
}

// try begins the next attempt.
func (x *Cluster) try(e *exchange) {
	e.attempt++
	h := x.choose(e)
	if h == nil {
		x.answer(e, proxy.NoServer())
		return
	}
	e.tried = append(e.tried, h)
	x.connect(e, h)
}

// choose returns the host of the next attempt. It is the next of the picker's endpoints, whether healthy or not;
// without one, it is the next healthy endpoint in turn. It returns nil where there is none.
func (x *Cluster) choose(e *exchange) (h *host) {
	for range 1 + Reselections {
		if h = x.pick(e); h == nil || !slices.Contains(e.tried, h) {
			break
		}
	}
	return h
}

func (x *Cluster) pick(e *exchange) *host {
	for len(e.named) > 0 {
		h := x.host(e.named[0])
		if e.named = e.named[1:]; h != nil {
			return h
		}
	}
	var well []*host
	for _, h := range x.hosts {
		if !h.ejected && !h.failing {
			well = append(well, h)
		}
	}
	if len(well) == 0 {
		return nil
	}
	x.turn++
	d := machine.NewDraw(x.c.Seed, "envoy", "balancer", x.turn)
	switch x.c.Limits.Balances() {
	case gateway.Random:
		return well[d.Intn(len(well))]
	case gateway.LeastRequest:
		a, b := well[d.Intn(len(well))], well[d.Intn(len(well))]
		if b.streams < a.streams {
			return b
		}
		return a
	}
	return well[(x.turn-1)%uint64(len(well))]
}

// sent handles the end of the request. The request's timeouts begin there.
func (x *Cluster) sent(e *exchange) {
	e.sent = true
	if e.Whole > 0 {
		e.whole = x.now.Add(machine.FromDuration(e.Whole))
	}
	if e.host != nil && !e.waits && !e.begun {
		x.limit(e)
	}
	x.rearm(e)
}

// limit sets the attempt's deadline.
func (x *Cluster) limit(e *exchange) {
	if e.Try > 0 {
		e.until = x.now.Add(machine.FromDuration(e.Try))
	}
}

func (x *Cluster) rearm(e *exchange) {
	if at := min(e.whole, e.until); at == machine.Never {
		x.timers.Remove(&e.timer)
	} else {
		x.await(&e.timer, at, timer{of: e})
	}
}

// due handles an exchange's timer: the deadline of the exchange or of the attempt, or the end of the wait before the
// next one.
func (x *Cluster) due(e *exchange) {
	switch {
	case e.whole <= x.now:
		begun := e.begun
		if h := e.host; h != nil && !e.waits && !begun {
			x.local(h, true)
			x.failed(h, proxy.StatusTimedOut)
		}
		x.drop(e)
		if begun {
			x.say(Effect{Kind: Cut, Request: e.number})
			x.end(e)
			return
		}
		x.answer(e, proxy.TimedOut())
	case e.host == nil:
		e.until = machine.Never
		x.rearm(e)
		x.try(e)
	default:
		h := e.host
		x.drop(e)
		x.local(h, true)
		x.failed(h, proxy.StatusTimedOut)
		if !x.again(e, e.resets(false)) {
			x.answer(e, proxy.TimedOut())
		}
	}
}

// head takes the head of an attempt's answer, and passes it on or retries.
func (x *Cluster) head(e *exchange, m *Head) {
	h := e.host
	x.local(h, true)
	x.answered(h, m)
	x.retried(e)
	if x.may(e, e.answers(m)) {
		if m.End {
			x.release(e, true)
		} else {
			x.drop(e)
		}
		x.back(e)
		return
	}
	e.begun, e.until = true, machine.Never
	x.rearm(e)
	x.say(Effect{Kind: Pass, Request: e.number, Attempt: e.attempt})
}

// broken handles the end of an attempt's connection.
func (x *Cluster) broken(e *exchange, refused bool) {
	h := e.host
	if !refused {
		x.local(h, true)
	}
	x.failed(h, proxy.StatusLost)
	x.release(e, false)
	if e.begun {
		x.say(Effect{Kind: Cut, Request: e.number})
		x.end(e)
		return
	}
	reason := x.c.Lost
	if refused {
		reason = proxy.Refused
	}
	x.lose(e, e.resets(refused), reason)
}

// lose handles an attempt without an answer: it retries, or Envoy answers.
func (x *Cluster) lose(e *exchange, again bool, reason string) {
	if x.again(e, again) {
		return
	}
	x.answer(e, proxy.Lost(reason, e.attempt))
}

// answers reports whether an answer with this head asks for a retry.
func (e *exchange) answers(m *Head) bool {
	on := func(name string) bool { return slices.Contains(e.On, name) }
	return on("5xx") && m.Status >= 500 || on("gateway-error") && (m.Status >= 502 && m.Status <= 504) ||
		on("retriable-4xx") && m.Status == 409 ||
		on("retriable-status-codes") && slices.Contains(e.Codes, m.Status) || m.Code > 0 && on(calls[m.Code])
}

// calls maps gRPC statuses to the retry conditions of gRPC.
var calls = map[int]string{1: "cancelled", 4: "deadline-exceeded", 8: "resource-exhausted", 13: "internal",
	14: "unavailable"}

// resets reports whether a reset or refused attempt asks for a retry.
func (e *exchange) resets(refused bool) bool {
	return slices.ContainsFunc(e.On, func(on string) bool {
		return on == "reset" || on == "5xx" || on == "gateway-error" || refused &&
			(on == "connect-failure" || on == "reset-before-request")
	})
}

// again retries an attempt if it may, and reports whether it does.
func (x *Cluster) again(e *exchange, wanted bool) bool {
	x.retried(e)
	if !x.may(e, wanted) {
		return false
	}
	x.back(e)
	return true
}

// retried ends a retry, for the breaker and the budget.
func (x *Cluster) retried(e *exchange) {
	if e.retrying {
		e.retrying = false
		x.retries--
	}
}

// may reports whether the request is retried: it has retries left, and the cluster allows one more.
func (x *Cluster) may(e *exchange, wanted bool) bool {
	if !wanted || e.left == 0 {
		return false
	}
	e.left--
	if !x.retryable() {
		return false
	}
	e.retrying = true
	x.retries++
	return true
}

// retryable reports whether the cluster allows one more retry. With a budget, retries may be a share of the active
// requests. Without one, the circuit breaker limits them.
func (x *Cluster) retryable() bool {
	l := x.c.Limits
	if l.Budget == nil {
		return below(x.retries, l.Retries)
	}
	least := gateway.Or(l.Least, 3) // Envoy's default of min_retry_concurrency
	return x.retries < max(int(*l.Budget/100*float64(x.requests+x.pending)), least)
}

// below reports whether one more is allowed.
func below(n int, most *int) bool { return most == nil || n < *most }

// back starts the wait before the next attempt.
func (x *Cluster) back(e *exchange) {
	wait := e.draw.Intn(int(e.backoff / time.Millisecond))
	e.backoff = min(2*e.backoff, e.Max)
	e.until = x.now.Add(machine.Time(wait) * machine.Millisecond)
	if e.until > x.now {
		x.rearm(e)
		return
	}
	e.until = machine.Never
	x.rearm(e)
	x.try(e)
}

func (x *Cluster) answer(e *exchange, a stream.Answer) {
	x.say(Effect{Kind: Answered, Request: e.number, Answer: a})
	x.end(e)
}

// drop ends the current attempt, if there is one.
func (x *Cluster) drop(e *exchange) {
	switch h := e.host; {
	case h == nil:
	case e.waits:
		h.waiting = slices.DeleteFunc(h.waiting, func(o *exchange) bool { return o == e })
		x.pending--
		e.host, e.waits = nil, false
	default:
		x.say(Effect{Kind: Drop, Request: e.number, Attempt: e.attempt})
		x.release(e, false)
	}
	e.until = machine.Never
}

// end removes the exchange.
func (x *Cluster) end(e *exchange) {
	x.retried(e)
	x.timers.Remove(&e.timer)
	delete(x.exchanges, e.number)
}
