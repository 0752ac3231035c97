package upstream

import (
	"cmp"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Look is the interval at which pickers learn which endpoints are out.
const Look = 200 * time.Millisecond

// Config has the parts of a Cluster.
type Config struct {
	// Seed and the requests' ids key all random values.
	Seed uint64
	// Endpoints exist from the beginning and count as healthy.
	Endpoints []string
	// Streams is the number of concurrent requests on one connection: 1 with HTTP/1.
	Streams int
	// Limits are the policy's limits, or nil.
	Limits *gateway.Limits
	// Health configures the health checks of endpoints; nil turns them off.
	Health *objects.Health
	// Lost is Envoy's term for a connection that ended.
	Lost string
}

// Kind is the type of an Effect.
type Kind uint8

// The kinds of effects.
const (
	// Try sends a request to Endpoint, as its attempt number Attempt.
	Try Kind = iota
	// Pass passes the attempt's answer on to the client.
	Pass
	// Drop ends an attempt whose result is no longer needed.
	Drop
	// Answered answers the request with Answer instead of the endpoint's answer.
	Answered
	// Cut breaks off an answer that has begun.
	Cut
	// Out lists in Endpoints those that no picker should choose, because they are ejected or fail their health checks.
	Out
	// Probe sends Endpoint a health check, with the probe number Attempt.
	Probe
)

// Effect is one thing for the driver to do.
type Effect struct {
	At        machine.Time
	Kind      Kind
	Request   uint64
	Attempt   int
	Endpoint  string
	Answer    stream.Answer
	Endpoints []string
}

// Due returns At.
func (e Effect) Due() machine.Time { return e.At }

// Message is an event that the driver reports to a Cluster.
type Message interface{ message() }

// RequestHeaders reports a request's headers, after the picker's decision.
type RequestHeaders struct {
	// Request is a number that no other request in flight has. ID keys the request's random values.
	Request uint64
	ID      string
	gateway.Attempts
	// Named are the picker's endpoints, in the order of attempts. When none of them is left, the Cluster tries any
	// other one.
	Named []string
}

// Whole reports that all of a request has been sent.
type Whole struct{ Request uint64 }

// Head is the head of an attempt's answer. Code is the gRPC status, if the head ends a gRPC call, and otherwise 0.
type Head struct {
	Request      uint64
	Attempt      int
	Status, Code int
	End          bool // nothing follows it
}

// Ended reports that an attempt's answer is complete.
type Ended struct {
	Request uint64
	Attempt int
}

// Broken reports that an attempt's connection broke, or could not be made (Refused).
type Broken struct {
	Request uint64
	Attempt int
	Refused bool
}

// Left reports that the client no longer waits for a request.
type Left struct{ Request uint64 }

// Endpoints replaces the list of endpoints.
type Endpoints struct{ List []string }

// Probed is the result of a probe: the endpoint is healthy, gave another answer, or gave none.
type Probed struct {
	Endpoint       string
	Probe          int
	Well, Answered bool
}

func (RequestHeaders) message() {}
func (Whole) message()          {}
func (Head) message()           {}
func (Ended) message()          {}
func (Broken) message()         {}
func (Left) message()           {}
func (Endpoints) message()      {}
func (Probed) message()         {}

// Cluster is a machine.Machine[Message, *machine.Effects[Effect]].
type Cluster struct {
	c      Config
	now    machine.Time
	fx     *machine.Effects[Effect] // the caller's, during a call
	timers machine.Heap[timer]
	timed  uint64 // number of timers so far

	hosts     []*host
	turn      uint64 // position of round robin
	exchanges map[uint64]*exchange
	out       []string // as last reported

	// Counters for the circuit breakers.
	connections, pending, requests, retries int
	ejected                                 int    // number of ejected hosts
	drawn                                   uint64 // number of draws for ejections
	interval                                machine.Handle
}

// timer belongs to an exchange, to a host's health checks or, if both are nil, to outlier detection.
type timer struct {
	of   *exchange
	host *host
}

// host is the state of one endpoint.
type host struct {
	endpoint             string
	gone                 bool
	connections, streams int
	waiting              []*exchange // for a connection
	record
	health
}

// New returns a Cluster at time 0.
func New(c Config) *Cluster {
	c.Limits = cmp.Or(c.Limits, &gateway.Limits{})
	x := &Cluster{c: c, exchanges: map[uint64]*exchange{}}
	d := machine.NewDraw(c.Seed, "envoy", "round robin", 0)
	x.turn = d.Uint64() >> 1
	for _, e := range c.Endpoints {
		x.join(e, true)
	}
	if x.c.Limits.Outlier != nil {
		x.await(&x.interval, machine.Time(x.outlier().interval), timer{})
	}
	return x
}

// InFlight returns the number of requests.
func (x *Cluster) InFlight() int { return len(x.exchanges) }

// Timed reports whether any request waits for a timer.
func (x *Cluster) Timed() bool {
	for _, e := range x.exchanges {
		if e.timer != 0 {
			return true
		}
	}
	return false
}

// Next returns the time at which the cluster must be advanced.
func (x *Cluster) Next() (machine.Time, bool) {
	if x.timers.Len() == 0 {
		return machine.Never, false
	}
	k, _ := x.timers.Peek()
	return machine.Time(k.First), true
}

// Advance performs everything that is due by now.
func (x *Cluster) Advance(now machine.Time, fx *machine.Effects[Effect]) {
	until := max(now, x.now)
	x.fx = fx
	for {
		at, ok := x.Next()
		if !ok || at > until {
			break
		}
		_, t := x.timers.Pop()
		switch x.now = at; {
		case t.of != nil:
			t.of.timer = 0
			x.due(t.of)
		case t.host != nil:
			t.host.timer = 0
			x.look(t.host)
		default:
			x.interval = 0
			x.judge()
			x.await(&x.interval, x.now+machine.Time(x.outlier().interval), timer{})
		}
	}
	x.now, x.fx = until, nil
}

// Input takes a message. It ignores messages about unknown requests and about attempts that have ended.
func (x *Cluster) Input(now machine.Time, m Message, fx *machine.Effects[Effect]) {
	x.Advance(now, fx)
	x.fx = fx
	switch m := m.(type) {
	case RequestHeaders:
		x.startExchange(&m)
	case Whole:
		if e := x.exchanges[m.Request]; e != nil && !e.sent {
			x.sent(e)
		}
	case Head:
		if e := x.flying(m.Request, m.Attempt); e != nil && !e.begun {
			x.head(e, &m)
		}
	case Ended:
		if e := x.flying(m.Request, m.Attempt); e != nil && e.begun {
			x.release(e, e.sent)
			x.end(e)
		}
	case Broken:
		if e := x.flying(m.Request, m.Attempt); e != nil {
			x.broken(e, m.Refused)
		}
	case Left:
		if e := x.exchanges[m.Request]; e != nil {
			x.drop(e)
			x.end(e)
		}
	case Endpoints:
		x.follow(m.List)
	case Probed:
		if h := x.host(m.Endpoint); h != nil && h.probing && h.probe == m.Probe {
			x.probed(h, m.Well, m.Answered)
		}
	}
	x.fx = nil
}

// flying returns the request of an attempt, if the attempt is in flight.
func (x *Cluster) flying(request uint64, attempt int) *exchange {
	if e := x.exchanges[request]; e != nil && e.attempt == attempt && e.host != nil && !e.waits {
		return e
	}
	return nil
}

func (x *Cluster) say(e Effect) {
	e.At = x.now
	x.fx.Add(e)
}

func (x *Cluster) await(h *machine.Handle, at machine.Time, t timer) {
	x.timed++
	x.timers.Put(h, machine.Key{First: int64(at), Second: x.timed}, t)
}

func (x *Cluster) host(endpoint string) *host {
	for _, h := range x.hosts {
		if h.endpoint == endpoint {
			return h
		}
	}
	return nil
}

// join adds an endpoint. If the cluster has health checks, the endpoint is out until one succeeds or well is true.
func (x *Cluster) join(endpoint string, well bool) {
	h := &host{endpoint: endpoint}
	x.hosts = append(x.hosts, h)
	if x.c.Health == nil {
		return
	}
	h.failing = !well
	if at := x.now; well {
		x.await(&h.timer, at.Add(machine.FromDuration(x.c.Health.Interval)), timer{host: h})
	} else {
		x.look(h)
	}
}

// follow replaces the list of endpoints. Attempts at a removed endpoint continue, and its connections no longer count.
func (x *Cluster) follow(list []string) {
	x.hosts = slices.DeleteFunc(x.hosts, func(h *host) bool {
		if slices.Contains(list, h.endpoint) {
			return false
		}
		h.gone = true
		if x.connections -= h.connections; h.ejected {
			x.ejected--
		}
		x.timers.Remove(&h.timer)
		return true
	})
	for _, e := range list {
		if x.host(e) == nil {
			x.join(e, false)
		}
	}
	x.reportOut()
}

// The cluster reports the endpoints that are out each time they change.
func (x *Cluster) reportOut() {
	var out []string
	for _, h := range x.hosts {
		if h.ejected || h.failing {
			out = append(out, h.endpoint)
		}
	}
	if !slices.Equal(out, x.out) {
		x.out = out
		x.say(Effect{Kind: Out, Endpoints: out})
	}
}

// Usable returns the entries of a list that are not out. Where all are out it returns the whole list, since one of them
// must serve the request.
func Usable[E any](list []E, out []string, endpoint func(E) string) []E {
	usable := slices.DeleteFunc(slices.Clone(list), func(e E) bool { return slices.Contains(out, endpoint(e)) })
	if len(usable) == 0 {
		return list
	}
	return usable
}
