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

// legs are the legs of a direct request at a sidecar: a prefill leg if the picker chose a prefiller, and the decode
// leg, which is the request at its own server. The sidecar decides nothing about them (disagg.Course).
type legs struct {
	d         *direct
	life      record.SidecarLife
	course    *disagg.Course
	prefiller *server // nil without a prefill leg
	prefill   computed
	ways      [2]ways // by disagg.LegKind
	before    way     // the request's ways.downBehind before the first piece of the answer
}

// course is the key of the Courses that requests of a pool share: the fields of their bodies, and whether there is a
// prefill leg.
type course struct {
	fields  *described.Fields
	prefill bool
}

// maxCourses bounds the kept Courses.
const maxCourses = 256

// course returns the Course of a request; nil if it has to be decided separately.
func (x *pool) course(d *direct, prefiller string) *disagg.Course {
	if x.courses == nil {
		x.courses = bounded.New[course, *disagg.Course](bounded.Limits{Entries: maxCourses}, nil)
	}
	key := course{d.Described.Fields, prefiller != ""}
	c, known := x.courses.Get(key)
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
	x.courses.Put(key, c, 0)
	return c
}

// takesLegs prepares the request's legs, and reports whether they may be direct.
func (d *direct) takesLegs() bool {
	w, x := d.w, d.pool
	prefiller := d.picked.Decision.Set.Get(picker.HeaderPrefiller)
	l := &legs{d: d}
	l.prefill.d = d
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

// open sends a leg with this number from the sidecar.
func (l *legs) open(kind disagg.LegKind, number int) {
	ways := &l.ways[kind]
	*ways = l.d.w.hops.open(l.d.ID, number)
	l.d.schedule(ways.up.passes(l.d.w.now, l.by(kind)), enters)
}

// by returns the route of a leg.
func (l *legs) by(kind disagg.LegKind) *route {
	if kind == disagg.Prefill {
		return &l.d.w.hops.pods
	}
	return &l.d.w.hops.pod
}

// enter takes the request at the sidecar, the prefill leg at its server, or that leg's answer at the sidecar. It is
// false if the decode leg arrives at its server, where it fetches the KV cache of the prefill leg.
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

// prefillUpdated takes the progress of the prefill leg; false if there was none, so that it is the decode leg's.
func (l *legs) prefillUpdated() bool {
	x := &l.prefill
	if l.prefiller == nil || l.life.PrefillEnded != machine.Never {
		return false
	}
	if l.life.PrefillStarted, l.life.Cached = x.StartedAt, x.Cached; x.EndedAt != machine.Never {
		l.life.PrefillEnded = l.d.w.now
		l.d.schedule(l.ways[disagg.Prefill].down.passes(l.d.w.now, l.by(disagg.Prefill)), enters)
	}
	return true
}

func (l *legs) gotKV(took machine.Time, bytes int64) {
	l.life.Fetched = max(l.life.Fetched, took)
	l.life.FetchedBytes += bytes
}

// answers returns when a piece of the answer that leaves now arrives at the sidecar.
func (l *legs) answers() machine.Time {
	return l.ways[disagg.Decode].down.passes(l.d.w.now, l.by(disagg.Decode))
}

// seesEnd takes the answer's end at the sidecar; false if it had arrived before.
func (l *legs) seesEnd() bool {
	d, x := l.d, &l.life
	if x.LastSeen != machine.Never {
		return false
	}
	if x.LastSeen = d.w.now; !d.asked.Streams {
		x.FirstSeen = x.LastSeen
	}
	d.schedule(d.ways.downBehind.passes(d.w.now, &d.w.hops.client), seesEnd)
	return true
}

// left reports whether no engine refers to the legs any more.
func (l *legs) left() bool {
	return l.prefiller == nil || l.prefiller.core.Left(&l.prefill.Sequence.Sequence) &&
		l.d.server.core.Left(&l.d.asked.Sequence.Sequence)
}

// of returns the direct leg for a leg of the request that replaces this one; idOf returns a leg's number.
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

// reported returns whether the first token, and the end, left the model server.
func (x *computed) reported() (first, last bool) {
	if leg := x.d.leg; leg != nil && x == &leg.prefill {
		ended := leg.life.PrefillEnded != machine.Never
		return ended, ended
	}
	return x.d.life.First != machine.Never, x.d.life.Last != machine.Never
}

// of returns the engine's sequence of the request, or of a leg of it.
func (p *past) of(r *request) *enginecore.Sequence {
	if r.leg != nil {
		return &p.d.leg.of(r.leg).Sequence.Sequence
	}
	return &p.d.asked.Sequence.Sequence
}

// passesLeg is passes for a message between sidecar and server.
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
