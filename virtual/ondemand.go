package virtual

import (
	"fmt"
	"net/url"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// onDemand gives a picker the metrics of a data source's scrapes without an event for each scrape. A page has the state
// of a server in the middle of the scrape's hop. onDemand computes it before the server changes, or when the picker
// reads the metrics, whichever is first.
type onDemand struct {
	k        *picking
	source   int
	interval machine.Time
	list     []*reading // in the order of the scrapes
	next     int64      // the next scrape of all servers'
	flying   []*reading // servers with a scrape under way
	pages    *metrics.Collector
	said     map[standing]read // recent pages, by the state of the server
}

// standing is the state of a server without adapters that determines its page, with its kind.
type standing struct {
	kind                              int
	running, waiting, pulling, blocks int
	sleep                             int
}

// kindOfServer is the part of a configuration that determines a page.
type kindOfServer struct {
	batching              engine.Batching
	block, blocks, onHost int
	uncached              bool
	labels                string
}

// read is a page as the picker reads it.
type read struct {
	values   picker.Metrics
	readable bool
}

// mostSaid bounds the remembered pages.
const mostSaid = 1 << 14

// reading is the state of the scrapes of one server.
type reading struct {
	f       *onDemand
	server  *server
	target  *epp.Target
	done    int64        // number of the last scrape whose page is known
	due     machine.Time // time of the next scrape
	said    stats.Moment // state of the server in the newest page
	known   bool         // there is a page
	held    bool         // the page is on its way to the picker
	arrives machine.Time // its arrival
	kind    int          // of server
	like    *server      // the first of that kind
	read
}

// newOnDemand returns nil if every page has to be made at its time: it is recorded, it counts or measures events, or a
// scrape may fail or take longer than its interval.
func newOnDemand(k *picking, endpoints []*picker.Endpoint) *onDemand {
	of, w := k.pool, k.pool.w
	if w.eachPage || w.troubled || of.varies() || k.m.FlowControl() != nil ||
		w.rec != nil &&
			of.servers[0].Server.Steps != lifecycle.NoSteps {
		return nil
	}
	source, sources := -1, k.m.Sources()
	for i := range sources {
		switch {
		case len(sources[i].Extractors) == 0: // it only checks for an answer
		case source >= 0:
			return nil
		default:
			source = i
		}
	}
	if source < 0 {
		return nil
	}
	src := &sources[source]
	if _, probes := src.Source.(picker.Prober); probes || src.Path != "/metrics" ||
		w.hops.scrape.longest() >= src.Interval {
		return nil
	}
	f := &onDemand{k: k, source: source, interval: src.Interval, list: make([]*reading, len(endpoints)),
		pages: metrics.NewCollector(src.Wants)}
	for i, e := range endpoints {
		_, sv, err := of.outside.reach(&url.URL{Scheme: src.Scheme, Host: src.Address(&epp.Target{Endpoint: e})})
		if err != nil || sv != of.servers[i] {
			return nil
		}
	}
	x := of.servers[0].look(0)
	x.Write(f.pages)
	all := len(f.pages.Take())
	if x.WriteNow(f.pages); len(f.pages.Take()) != all {
		return nil
	}
	return f
}

// start reads the first pages: the picker started long enough before the run to know its endpoints.
func (f *onDemand) start(endpoints []*picker.Endpoint) {
	f.said = map[standing]read{}
	kinds, first := map[kindOfServer]int{}, []*server(nil)
	for i, e := range endpoints {
		r := &reading{f: f, server: f.k.pool.servers[i], target: f.k.m.Target(e.ID())}
		c := r.server.engine.Config()
		kind := kindOfServer{c.Batching, c.BlockSize, c.NumGPUBlocks, c.NumCPUBlocks, c.DisablePrefixCaching,
			fmt.Sprint(e.Labels)}
		if _, known := kinds[kind]; !known {
			kinds[kind] = len(kinds)
			first = append(first, r.server)
			r.server.metrics.Remember()
		}
		r.kind = kinds[kind]
		r.like = first[r.kind]
		f.list[r.target.Place()], r.server.readings = r, append(r.server.readings, r)
		r.look(0)
		r.refresh(0)
		r.due = r.turn(1)
	}
}

// upTo updates the picker's metrics to the time before the events of now.
func (f *onDemand) upTo(now machine.Time) {
	if f.list[0] == nil {
		return // the picker is getting its endpoints
	}
	flying := f.flying
	f.flying = f.flying[:0]
	for _, r := range flying {
		f.bring(r, now)
	}
	n := int64(len(f.list))
	turn := func() machine.Time { return f.list[f.next%n].turn(1 + f.next/n) }
	if late := now - 1 - turn(); late > 2*f.interval { // only the latest scrapes matter
		f.next += n * int64(late/f.interval-1)
	}
	for ; turn() < now; f.next++ {
		f.bring(f.list[f.next%n], now)
	}
}

func (f *onDemand) bring(r *reading, now machine.Time) {
	if r.upTo(now); r.held || r.due < now {
		f.flying = append(f.flying, r)
	}
}

func (r *reading) turn(number int64) machine.Time {
	return r.f.k.m.Turn(r.target, r.f.source, number)
}

// hop returns the time of a scrape's page, and its arrival at the picker.
func (r *reading) hop(number int64) (made, arrives machine.Time) {
	asked := r.turn(number)
	took := r.f.k.w.hops.scrapes(r.f.source, r.target.Place(), len(r.f.list), number)
	return asked + took/2, asked + took
}

// upTo updates the picker's metrics of the server. Callers call it before the picker reads them, and before the server
// changes.
func (r *reading) upTo(now machine.Time) {
	if r.held && r.arrives < now {
		r.held = false
		r.refresh(r.arrives)
	}
	if r.due >= now {
		return
	}
	number := r.done + 1 + int64((now-1-r.due)/r.f.interval)
	made, arrives := r.hop(number)
	if made >= now {
		if number--; number == r.done {
			return
		}
		made, arrives = r.hop(number)
	}
	if arrives >= now && number > r.done+1 { // the previous page has arrived
		made, arrives := r.hop(number - 1)
		r.look(made)
		r.refresh(arrives)
	}
	r.look(made)
	r.done, r.due = number, r.turn(number+1)
	if r.held, r.arrives = arrives >= now, arrives; !r.held {
		r.refresh(arrives)
	}
}

// look makes the page of an earlier time. Since then, only the engine's computation has changed the server.
func (r *reading) look(made machine.Time) {
	s := r.server
	if s.engine.InFlight() > 0 {
		s.m.Advance(made, s.fx)
		s.play()
	}
	at := s.core.Stats().Moment(made, s.engine)
	if r.known && at == r.said {
		return
	}
	r.known, r.said = true, at
	x := s.look(made)
	as := standing{r.kind, x.Engine.Running, x.Engine.Waiting, x.Engine.Pulling, x.KVBlocks, x.SleepLevel}
	if said, known := r.f.said[as]; known && x.Adapters == nil {
		r.read = said
		return
	}
	x.Server = &r.like.metrics
	x.WriteNow(r.f.pages)
	page := r.f.pages.Take()
	r.values, r.readable = r.f.k.m.Read(r.target, r.f.source, page)
	r.f.pages.Reuse(page)
	if len(r.f.said) == mostSaid {
		clear(r.f.said)
	}
	if x.Adapters == nil && r.readable {
		r.f.said[as] = r.read
	}
}

// refresh gives the picker the metrics of the newest page, which arrives at a time.
func (r *reading) refresh(arrives machine.Time) {
	if r.readable {
		r.f.k.m.Refresh(arrives, r.target, r.values)
	}
}
