package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// legs are those that a sidecar sends for a direct request: perhaps a prefill leg, and
// then the decode leg, which is what the request asks its own server for. At the sidecar nothing is
// decided about them (disagg.Course).
type legs struct {
	d         *direct
	life      record.SidecarLife
	course    *disagg.Course
	prefiller *server // nil: there is no prefill leg
	prefill   computed
	ways      [2]ways // by disagg.LegKind
	before    way     // what the answer takes from the sidecar to the EPP, before any of it went there
}

// courses are those that requests of a pool take, by what their bodies have in common
// and whether there is a prefill leg.
type courses struct {
	of *bounded.Store[course, *disagg.Course] // nil: each has its own way
}

type course struct {
	fields  *described.Fields
	prefill bool
}

// maxCourses bounds how many are kept.
const maxCourses = 256

// course is that of a request; nil where it has its own.
func (x *pool) course(d *direct, prefiller string) *disagg.Course {
	if x.courses.of == nil {
		x.courses.of = bounded.New[course, *disagg.Course](bounded.Limits{Entries: maxCourses}, nil)
	}
	key := course{d.Described.Fields, prefiller != ""}
	c, known := x.courses.of.Get(key)
	if known {
		return c
	}
	var to *disagg.Target
	if prefiller != "" {
		to = &disagg.ParseTargets(prefiller)[0]
	}
	if found, ok := d.server.sidecar.config.Course(d.Path, &d.Described, to); ok {
		c = &found
	}
	x.courses.of.Put(key, c, 0)
	return c
}

// takesLegs says whether the request's legs may be direct, and makes them ready.
func (d *direct) takesLegs() bool {
	w, x := d.w, d.pool
	prefiller := d.picked.Decision.Set.Get(picker.HeaderPrefiller)
	l := d.newLegs()
	if l.prefiller = x.byAddr[prefiller]; prefiller != "" && (l.prefiller == nil || l.prefiller == d.server) {
		return false
	}
	if l.course = x.course(d, prefiller); l.course == nil {
		return false
	}
	read := func(c *computed, prefills bool, fields *described.Fields, leg modelserver.Leg) bool {
		return c.Read(&x.first(prefills).reader, d.reads(), modelserver.APIOf(d.Path), d.Described.With(fields), leg,
			w.rec != nil)
	}
	if l.prefiller != nil &&
		!(read(&l.prefill, true, l.course.Prefill, modelserver.Prefill) &&
			read(&d.asked, false, l.course.Decode, modelserver.Decode) &&
			d.asked.MayFetch(&d.server.reader, l.prefiller.host())) {
		return false
	}
	l.life = record.NewSidecarLife(d.server.behind(), prefiller)
	l.life.Prompt = l.prefill.PromptTokens()
	d.leg, d.life.Sidecar = l, &l.life
	return true
}

// newLegs are none yet.
func (d *direct) newLegs() *legs {
	l := &legs{d: d}
	l.prefill.d = d
	return l
}

// open sends a leg with this number from the sidecar.
func (l *legs) open(kind disagg.LegKind, number int) {
	ways := &l.ways[kind]
	*ways = l.d.w.hops.open(l.d.ID, number)
	l.d.goes(ways.up.passes(l.d.w.now, l.by(kind)), enters)
}

// by is what a leg passes.
func (l *legs) by(kind disagg.LegKind) *route {
	if kind == disagg.Prefill {
		return &l.d.w.hops.pods
	}
	return &l.d.w.hops.pod
}

// enter is the request at the sidecar, the prefill leg at its server, or its answer at the
// sidecar. It is false where the decode leg is at its server, to fetch what the other has left.
func (l *legs) enter() bool {
	now := l.d.w.now
	switch x := &l.life; {
	case x.Reached == machine.Never:
		if x.Reached = now; l.prefiller == nil {
			l.open(disagg.Decode, 1)
		} else {
			l.open(disagg.Prefill, 1)
		}
		return true
	case l.prefiller == nil:
		return false
	case x.PrefillReached == machine.Never:
		x.PrefillReached = now
		l.prefill.submit(l.prefiller)
		return true
	case x.Prefilled == machine.Never:
		x.Prefilled = now
		l.open(disagg.Decode, 2)
		return true
	}
	var kept *connector.Kept
	if h := l.prefill.Sequence.Hold; h != nil {
		kept = &connector.Kept{EngineID: l.prefiller.core.Config().EngineID, RequestID: l.d.ID,
			Host: l.prefiller.host(), Port: l.prefiller.pool.SideChannel, Blocks: h.Blocks}
	}
	l.d.asked.Fetch(l.course.Fetch(kept))
	return false
}

// told is what the server of the prefill leg has said of it; false where it was the other.
func (l *legs) told() bool {
	x := &l.prefill
	if l.prefiller == nil || l.life.PrefillEnded != machine.Never {
		return false
	}
	if l.life.PrefillStarted, l.life.Cached = x.StartedAt, x.Cached; x.EndedAt != machine.Never {
		l.life.PrefillEnded = l.d.w.now
		l.d.goes(l.ways[disagg.Prefill].down.passes(l.d.w.now, l.by(disagg.Prefill)), enters)
	}
	return true
}

func (l *legs) gotKV(took machine.Time, bytes int64) {
	l.life.Fetched = max(l.life.Fetched, took)
	l.life.FetchedBytes += bytes
}

// answers is when a piece of the answer that leaves now is at the sidecar.
func (l *legs) answers() machine.Time {
	return l.ways[disagg.Decode].down.passes(l.d.w.now, l.by(disagg.Decode))
}

// seesEnd is the answer's end at the sidecar; it is false where it was there before.
func (l *legs) seesEnd() bool {
	d, x := l.d, &l.life
	if x.LastSeen != machine.Never {
		return false
	}
	if x.LastSeen = d.w.now; !d.asked.Streams {
		x.FirstSeen = x.LastSeen
	}
	d.goes(d.ways.downBehind.passes(d.w.now, &d.w.hops.client), seesEnd)
	return true
}

// left says whether nothing refers to the legs any more.
func (l *legs) left() bool {
	return l.prefiller == nil || l.prefiller.core.Left(&l.prefill.Sequence.Sequence) &&
		l.d.server.core.Left(&l.d.asked.Sequence.Sequence)
}

// of is what a leg of one that takes every step is, idOf that leg's number; first and last
// say whether its first token and its end were told.
func (l *legs) of(x *leg) *computed {
	if x.Kind == disagg.Prefill {
		return &l.prefill
	}
	return &l.d.asked
}

func (l *legs) idOf(x *computed) int {
	if x == &l.prefill || l.prefiller == nil {
		return 1
	}
	return 2
}

func (l *legs) first(x *computed) bool {
	if x == &l.prefill {
		return l.life.PrefillEnded != machine.Never
	}
	return l.d.life.First != machine.Never
}

func (l *legs) last(x *computed) bool {
	if x == &l.prefill {
		return l.life.PrefillEnded != machine.Never
	}
	return l.d.life.Last != machine.Never
}

// of is what the engine has of the request, or of a leg of it.
func (p *past) of(r *request) *enginecore.Sequence {
	if r.leg != nil {
		return &p.d.leg.of(r.leg).Sequence.Sequence
	}
	return &p.d.asked.Sequence.Sequence
}

// passesLeg has a message between sidecar and server arrive at once that has arrived, or when
// it does.
func (p *past) passesLeg(l *leg, on *way, m message) {
	d, x := p.d, &p.d.leg.life
	at, arrived := d.due, false
	switch {
	case on == &l.ways.up && l.Kind == disagg.Prefill:
		arrived = x.PrefillReached != machine.Never
	case on == &l.ways.up:
		arrived = d.life.Reached != machine.Never
	case l.Kind == disagg.Prefill:
		arrived = x.Prefilled != machine.Never
	case m.end:
		arrived = x.LastSeen != machine.Never
	default:
		at, arrived = x.FirstSeen, x.FirstSeen <= d.w.now
	}
	if !arrived {
		d.w.due(at, on, m)
		return
	}
	m.do(&m)
}
