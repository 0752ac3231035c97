package upstream

import (
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Look is how often pickers are told which endpoints are out.
const Look = 200 * time.Millisecond

// Config is what a Cluster is made of.
type Config struct {
	// Seed and requests' ids are what is drawn from.
	Seed uint64
	// Endpoints are there from the beginning, and known to be well.
	Endpoints []string
	// Streams is how many requests a connection takes at once: 1 with HTTP/1.
	Streams int
	// Limits are the policy's, nil for none.
	Limits *gateway.Limits
	// Health is how endpoints are probed; nil is not.
	Health *objects.Health
	// Lost is what Envoy calls a connection that ended.
	Lost string
}

// Kind is what an Effect says.
type Kind uint8

// The kinds of effects.
const (
	// Try sends a request to Endpoint, as its attempt number Attempt.
	Try Kind = iota
	// Pass lets the answer of the attempt pass.
	Pass
	// Drop ends the attempt, of which nothing is wanted any more.
	Drop
	// Answered answers the request with Answer, in place of the endpoint.
	Answered
	// Cut breaks the answer off that has begun.
	Cut
	// Out says that Endpoints are those which no picker should choose: they are
	// ejected, or fail their health checks.
	Out
	// Probe asks Endpoint how it is, as the probe number Attempt.
	Probe
)

// Effect is one thing to do.
type Effect struct {
	At        machine.Time
	Kind      Kind
	Request   uint64
	Attempt   int
	Endpoint  string
	Answer    stream.Answer
	Endpoints []string
}

// Due is when it was due.
func (e Effect) Due() machine.Time { return e.At }

// Message is what a Cluster is told.
type Message interface{ message() }

// Begin says that a request's headers are here, which the picker has decided about.
type Begin struct {
	// Request is a number that no other in flight has, ID what is drawn from.
	Request uint64
	ID      string
	gateway.Attempts
	// Named are the picker's endpoints, in the order in which they are to be tried; any
	// other is tried where there is none of them any more.
	Named []string
}

// Whole says that all of a request has been sent.
type Whole struct{ Request uint64 }

// Head is the head of an attempt's answer. Code is the status of a call by gRPC that ends with
// it, 0 for none.
type Head struct {
	Request      uint64
	Attempt      int
	Status, Code int
	End          bool // nothing comes behind it
}

// Ended says that an attempt's answer is whole.
type Ended struct {
	Request uint64
	Attempt int
}

// Broken says that the connection of an attempt broke, or that none was made: it was
// Refused.
type Broken struct {
	Request uint64
	Attempt int
	Refused bool
}

// Left says that nobody waits for a request any more.
type Left struct{ Request uint64 }

// Endpoints says which endpoints there are from now on.
type Endpoints struct{ List []string }

// Probed is what came of a probe: the endpoint is well, or answered something else, or
// not at all.
type Probed struct {
	Endpoint       string
	Probe          int
	Well, Answered bool
}

func (Begin) message()     {}
func (Whole) message()     {}
func (Head) message()      {}
func (Ended) message()     {}
func (Broken) message()    {}
func (Left) message()      {}
func (Endpoints) message() {}
func (Probed) message()    {}

// Cluster is a machine.Machine[Message, *machine.Effects[Effect]].
type Cluster struct {
	c      Config
	now    machine.Time
	fx     *machine.Effects[Effect] // the caller's, during a call
	timers machine.Heap[timer]
	timed  uint64 // timers so far

	hosts     []*host
	turn      uint64 // of round robin
	exchanges map[uint64]*exchange
	out       []string // as was said last

	// What breakers count.
	connections, pending, requests, retries int
	ejected                                 int    // hosts
	drawn                                   uint64 // ejections that were drawn for
	interval                                machine.Handle
}

// timer is something by the clock: of an exchange, of a host's probes, or of ejections where it
// has neither.
type timer struct {
	of   *exchange
	host *host
}

// host is one endpoint.
type host struct {
	endpoint             string
	gone                 bool
	connections, streams int
	waiting              []*exchange // for a connection
	record
	health
}

// New is a Cluster at the time 0.
func New(c Config) *Cluster {
	if c.Limits == nil {
		c.Limits = &gateway.Limits{}
	}
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

// InFlight is how many requests there are, and Timed whether any of them waits for the clock.
func (x *Cluster) InFlight() int { return len(x.exchanges) }

// Timed says whether a request waits for something by the clock.
func (x *Cluster) Timed() bool {
	for _, e := range x.exchanges {
		if e.timer != 0 {
			return true
		}
	}
	return false
}

// Next is when the cluster wants to be advanced.
func (x *Cluster) Next() (machine.Time, bool) {
	if x.timers.Len() == 0 {
		return machine.Never, false
	}
	k, _ := x.timers.Peek()
	return machine.Time(k.First), true
}

// Advance plays what is due by now.
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

// Input takes a message. One about a request that is not there, or of an attempt that is
// over, does nothing.
func (x *Cluster) Input(now machine.Time, m Message, fx *machine.Effects[Effect]) {
	x.Advance(now, fx)
	x.fx = fx
	switch m := m.(type) {
	case Begin:
		x.begin(&m)
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

// flying is the request whose attempt this is, as long as it is under way.
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

// join adds an endpoint. One that is probed is out until it is known to be well.
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

// follow takes the endpoints that there are. What is under way to one that has gone goes on;
// its connections count no more.
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
	x.tell()
}

// tell says which endpoints are out, where that has changed.
func (x *Cluster) tell() {
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

// Usable are those of a list that are not out; where that is none of them all are, since
// somebody must answer.
func Usable[E any](list []E, out []string, endpoint func(E) string) []E {
	usable := slices.DeleteFunc(slices.Clone(list), func(e E) bool { return slices.Contains(out, endpoint(e)) })
	if len(usable) == 0 {
		return list
	}
	return usable
}
