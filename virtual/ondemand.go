package virtual

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// onDemand brings what the scrapes of a data source bring, but only when somebody looks: nothing
// happens at the times of the scrapes themselves. What a page says is how a
// server stood in the middle of the scrape's hop. It is worked out before the
// server changes, or when the picker looks at it, whichever is first.
type onDemand struct {
	k        *picking
	source   int
	interval machine.Time
	list     []*reading // in the order of their turns
	next     int64      // of all servers' turns, the first that is still to come
	flying   []*reading // those whose turn has come, and whose page may not have
	pages    *metrics.Collector
	said     map[standing]read // what pages said lately
}

// standing is all that a page depends on of a server without adapters, besides its
// configuration.
type standing struct {
	kind                              int
	running, waiting, pulling, blocks int
	sleep                             int
}

// kindOfServer is what of a configuration a page depends on.
type kindOfServer struct {
	batching              engine.Batching
	block, blocks, onHost int
	uncached              bool
	labels                string
}

// read is what the picker makes of a page.
type read struct {
	values   picker.Metrics
	readable bool
}

// mostSaid bounds what is remembered of pages.
const mostSaid = 1 << 14

// reading is what is known of one server.
type reading struct {
	f       *onDemand
	server  *server
	target  *epp.Target
	done    int64        // the number of the last turn whose page is known
	due     machine.Time // when the next comes
	said    stats.Moment // of the newest page, which is known
	known   bool
	held    bool         // it is on its way
	arrives machine.Time // then
	kind    int          // of server
	like    *server      // the first of that kind
	read
}

// newOnDemand is nil where every page has to be made at its time: somebody is told
// of each, pages count or measure what happens, or a scrape may fail, or take
// longer than its interval.
func newOnDemand(k *picking, endpoints []*picker.Endpoint) *onDemand {
	of, w := k.pool, k.pool.w
	slows := slices.ContainsFunc(of.Incidents, func(x plan.Incident) bool { return x.Kind == plan.SlowMetrics })
	if w.eachPage || of.Picker.Dies || of.varies() || slows || k.m.FlowControl() != nil || of.kv != nil ||
		w.rec != nil &&
			of.servers[0].Server.Steps != lifecycle.NoSteps {
		return nil
	}
	source, sources := -1, k.m.Sources()
	for i := range sources {
		switch {
		case len(sources[i].Extractors) == 0: // it only asks whether somebody is there
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

// begin reads the first pages: the picker has been up for long enough to know
// the endpoints, which it was told just now.
func (f *onDemand) begin(endpoints []*picker.Endpoint) {
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
			r.server.told.Remember()
		}
		r.kind = kinds[kind]
		r.like = first[r.kind]
		f.list[r.target.Place()], r.server.readings = r, append(r.server.readings, r)
		r.look(0)
		r.tell(0)
		r.due = r.turn(1)
	}
}

// upTo brings the picker's metrics up to date, as they were before what happens
// now.
func (f *onDemand) upTo(now machine.Time) {
	if f.list[0] == nil {
		return // the picker is being told of the endpoints
	}
	flying := f.flying
	f.flying = f.flying[:0]
	for _, r := range flying {
		f.bring(r, now)
	}
	n := int64(len(f.list))
	turn := func() machine.Time { return f.list[f.next%n].turn(1 + f.next/n) }
	if late := now - 1 - turn(); late > 2*f.interval { // one turn of each is enough
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

// hop is when the page of a turn says how it stands, and when the picker has it.
func (r *reading) hop(number int64) (made, arrives machine.Time) {
	asked := r.turn(number)
	took := r.f.k.w.hops.scrapes(r.f.source, r.target.Place(), len(r.f.list), number)
	return asked + took/2, asked + took
}

// upTo is called before the picker looks, and before the server changes.
func (r *reading) upTo(now machine.Time) {
	if r.held && r.arrives < now {
		r.held = false
		r.tell(r.arrives)
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
	if arrives >= now && number > r.done+1 { // the one before is there
		made, arrives := r.hop(number - 1)
		r.look(made)
		r.tell(arrives)
	}
	r.look(made)
	r.done, r.due = number, r.turn(number+1)
	if r.held, r.arrives = arrives >= now, arrives; !r.held {
		r.tell(arrives)
	}
}

// look reads the page that is made at a time since which the server has not
// changed, but for what its engine computes.
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
	x.Server = &r.like.told
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

// tell gives the picker the metrics of the newest page, which came at a time.
func (r *reading) tell(arrives machine.Time) {
	if r.readable {
		r.f.k.m.Refresh(arrives, r.target, r.values)
	}
}
