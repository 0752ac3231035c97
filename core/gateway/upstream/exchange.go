package upstream

import (
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/machine"
)

// exchange is one request with its answer.
type exchange struct {
	gateway.Attempts
	number   uint64
	named    []string // not tried yet
	draw     machine.Draw
	attempt  int
	host     *host   // of the attempt; nil between two
	tried    []*host // so far
	waits    bool    // for a connection
	sent     bool    // all of the request has been
	begun    bool    // the answer has
	retrying bool    // it counts as a retry
	left     int     // retries
	backoff  time.Duration
	whole    machine.Time // when all must be over; Never is never
	until    machine.Time // when the attempt must have answered, or the next one begins
	timer    machine.Handle
}

// Reselections is how often Envoy looks for an endpoint that has not been tried
// (host_selection_retry_max_attempts).
const Reselections = 5

func (x *Cluster) begin(m *Begin) {
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

// choose is where the attempt goes: to the next of the picker's endpoints, whatever is known
// of its health, else by turns to those that are well; nil where there is none.
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

// sent is the end of the request, from which its times count.
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

// limit bounds the attempt.
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

// due is an exchange's time: all of it is over, or the attempt, or the wait before the next.
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

// head is the head of an attempt's answer: it is passed on, or the attempt is made again.
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

// broken is the connection of an attempt breaking.
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

// lose is an attempt that came to nothing: it is made again, or Envoy answers.
func (x *Cluster) lose(e *exchange, again bool, reason string) {
	if x.again(e, again) {
		return
	}
	x.answer(e, proxy.Lost(reason, e.attempt))
}

// answers says whether an answer with this head is to be tried again.
func (e *exchange) answers(m *Head) bool {
	on := func(name string) bool { return slices.Contains(e.On, name) }
	return on("5xx") && m.Status >= 500 || on("gateway-error") && (m.Status >= 502 && m.Status <= 504) ||
		on("retriable-4xx") && m.Status == 409 ||
		on("retriable-status-codes") && slices.Contains(e.Codes, m.Status) || m.Code > 0 && on(calls[m.Code])
}

// calls are the conditions of calls by gRPC, by their status.
var calls = map[int]string{1: "cancelled", 4: "deadline-exceeded", 8: "resource-exhausted", 13: "internal",
	14: "unavailable"}

// resets says whether an attempt that was reset, or refused a connection, is to be tried
// again.
func (e *exchange) resets(refused bool) bool {
	return slices.ContainsFunc(e.On, func(on string) bool {
		return on == "reset" || on == "5xx" || on == "gateway-error" || refused &&
			(on == "connect-failure" || on == "reset-before-request")
	})
}

// again has an attempt be made again, and says whether it is.
func (x *Cluster) again(e *exchange, wanted bool) bool {
	x.retried(e)
	if !x.may(e, wanted) {
		return false
	}
	x.back(e)
	return true
}

// retried is the end of a retry, for those who count them.
func (x *Cluster) retried(e *exchange) {
	if e.retrying {
		e.retrying = false
		x.retries--
	}
}

// may says whether the request is tried again: it has retries left, and the cluster has room for
// one more.
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

// retryable says whether there is room for a retry: within the budget, a share of the
// requests that are active, where there is one, else below the breaker.
func (x *Cluster) retryable() bool {
	l := x.c.Limits
	if l.Budget == nil {
		return below(x.retries, l.Retries)
	}
	least := 3 // Envoy's own min_retry_concurrency
	if l.Least != nil {
		least = *l.Least
	}
	return x.retries < max(int(*l.Budget/100*float64(x.requests+x.pending)), least)
}

// below says whether there is room for one more.
func below(n int, most *int) bool { return most == nil || n < *most }

// back waits before the next attempt.
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

// drop ends the attempt that is under way, if there is one.
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

// end forgets the exchange.
func (x *Cluster) end(e *exchange) {
	x.retried(e)
	x.timers.Remove(&e.timer)
	delete(x.exchanges, e.number)
}
