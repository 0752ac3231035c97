package virtual

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/core/wire/described"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// sidecar is the routing sidecar before a decode server.
type sidecar struct {
	config   disagg.Config
	requests uint64
	busy     map[*sidecarRequest]uint64 // its requests, with their numbers
}

// sidecarRequest is a request at a sidecar: core/sidecar/disagg, with direct calls of model servers instead of sockets.
type sidecarRequest struct {
	slot[disagg.Message, *disagg.Effects]

	r    *request
	at   *server // the sidecar's own decode server
	x    *disagg.ClientRequest
	fx   disagg.Effects
	legs map[int]*leg
	body disagg.Start
	// later are progress reports of legs that arrived while effects were carried out.
	later []func()
}

// leg is the sidecar's own request at a model server. Its answer goes to the sidecar.
type leg struct {
	disagg.Leg
	p       *sidecarRequest
	sub     *request
	hasHead bool // the machine has the head of the answer
	ways    ways // between sidecar and server, up and down
	by      *route
	dropped bool // the sidecar does not wait for it
	deliver bool // the answer goes to the client, not to the machine
	change  disagg.Changer
	whole   []byte // the answer, if it is collected
	kind    string // the answer's content type
	bytes   int
}

// startSidecars puts a sidecar before each decode server.
func (x *pool) startSidecars() error {
	cars := x.Sidecars
	if cars == nil {
		return nil
	}
	for i, sv := range x.servers {
		if sv.Prefills() {
			x.prefillers = append(x.prefillers, disagg.ParseTargets(sv.endpoint)...)
			continue
		}
		c := cars.Config
		c.StandIns = true
		c.Seed, c.Recorder, c.Endpoint, c.Engines = cars.Seed+uint64(i), x.w.rec, sv.endpoint, disagg.NewEngines()
		if cars.Direct {
			c.Frontend = &disagg.Frontend{
				Reader: &modelserver.Reader{Config: sv.reader.Config, State: onlooker{state{sv}}}, Worker: x.worker}
			if cars.Routes {
				c.Frontend.Router = router{x}
			}
		}
		car := &sidecar{config: c, busy: map[*sidecarRequest]uint64{}}
		if err := car.forget(cars.Sessions); err != nil {
			return err
		}
		sv.sidecar = car
	}
	return nil
}

// router is the pool's Dynamo router for the frontends before its model servers.
type router struct{ x *pool }

func (r router) Route(id string, tokens []uint32) (worker, prefill string) {
	return r.x.frontend.Route(id, tokens)
}
func (r router) ReportProgress(id string, over bool) { r.x.frontend.ReportProgress(id, over) }

// worker returns the address of the worker with an instance id, behind its frontend.
func (x *pool) worker(id string) (disagg.Target, bool) {
	for _, sv := range x.servers {
		if dynamo.IDOf(sv.Name).String() == id {
			return disagg.Target{Host: sv.host(), Port: sv.Port}, true
		}
	}
	return disagg.Target{}, false
}

// forget clears the session cache, as a restart does.
func (x *sidecar) forget(sessions int) error {
	if sessions == 0 {
		return nil
	}
	var err error
	x.config.Sessions, err = disagg.NewSessions(sessions, nil)
	return err
}

// sessionPrefillers returns the targets of sidecars in session mode.
func (x *pool) sessionPrefillers() []disagg.Target { return x.prefillers }

// enter hands a request to the sidecar.
func (r *request) enter(at *server, head header.List) {
	x := at.sidecar
	x.requests++
	p := &sidecarRequest{r: r, at: at, legs: map[int]*leg{}}
	r.sidecar = p
	x.busy[p] = x.requests
	p.x = disagg.New(&x.config,
		disagg.Request{Number: x.requests, ID: r.ID, Attempt: modelserver.ReadHead(head.Get).Attempt, Method: "POST",
			Path:       r.target(),
			Prefillers: x.config.Prefillers(head.Get(picker.HeaderPrefiller), r.pool.sessionPrefillers),
			Session:    r.Header.Get(disagg.SessionHeader),
			Routed:     disagg.ReadRouted(head.Get)})
	p.class, p.carried = machine.ClassTimer, p.handleReports
	p.open(r.w, p.x, &p.fx, func(i int) { p.act(p.fx.List[i].Do) })
}

// read takes a piece of the request's body. The last piece starts the machine.
func (p *sidecarRequest) read(body []byte, d *described.Body, end bool) {
	p.body.Described = cmp.Or(d, p.body.Described)
	p.body.Body = append(p.body.Body, body...)
	if end {
		p.handle(p.body)
	}
}

// act carries out an action of the sidecar.
func (p *sidecarRequest) act(a disagg.Action) {
	switch a := a.(type) {
	case disagg.Call:
		p.call(a.Leg)
	case disagg.Deliver:
		l := p.legs[a.Leg]
		l.deliver, l.change = true, a.Change
		if kind := a.Head.Get("content-type"); kind != "" {
			l.kind = kind
		}
		if len(a.Before) > 0 {
			l.handOn(200, a.Before, nil, false)
		}
	case disagg.Drop:
		p.legs[a.Leg].drop("the client left")
	case disagg.Answer:
		if disagg.EndsLegs(a.Status) {
			p.drop("the client left")
		}
		if p.r.whole = a.Status < 300; a.Verbatim > 0 {
			p.r.tokens = p.legs[a.Verbatim].sub.tokens
		}
		p.r.respond(a.Status, jsonType, a.Body, true)
	}
}

func (p *sidecarRequest) handle(m disagg.Message) {
	p.input(m)
	if p.x.Over() {
		delete(p.at.sidecar.busy, p)
		p.end()
	}
}

// call starts a leg at its model server.
func (p *sidecarRequest) call(d disagg.Leg) {
	w := p.r.w
	l := &leg{Leg: d, p: p, ways: w.hops.open(p.r.ID, d.ID), by: &w.hops.pods, sub: &request{w: w, pool: p.r.pool}}
	p.legs[d.ID] = l
	to := p.at
	switch front := p.at.sidecar.config.Frontend != nil; {
	case d.Target.Host != "" && front: // behind that server's frontend
		to = p.r.pool.byHost[d.Target.Host]
	case d.Target.Host != "":
		to = p.r.pool.byAddr[d.Target.String()]
	}
	if d.Kind == disagg.Bootstrap {
		to = p.r.pool.byHost[d.Target.Host]
	}
	if to == p.at {
		l.by = &w.hops.pod
	}
	if to == nil || d.Kind == disagg.Bootstrap {
		l.send(func() {
			l.back(true, func() {
				if to == nil {
					p.handle(disagg.Failed{Leg: d.ID, Reason: "nobody listens on " + d.Target.String(), Refused: true})
					return
				}
				p.handle(disagg.Head{Leg: d.ID, Status: 200, ContentType: jsonType})
				_, body := connector.Answer(d.Path, to.core.Config().EngineID)
				p.handle(disagg.Whole{Leg: d.ID, Body: body})
			})
		})
		return
	}
	l.sub = &request{Request: workload.Request{ID: p.r.ID, Path: cmp.Or(d.Path, p.r.target()), Body: d.Body}, w: w,
		pool: p.r.pool, serverSide: serverSide{server: to, leg: l}}
	if d.Described != nil {
		l.sub.Described = *d.Described
	} else if d.Original && p.body.Described != nil {
		l.sub.Body = p.body.Described.Bytes()
	} else if d.Original {
		l.sub.Body = p.body.Body
	}
	if past := p.r.past; past != nil {
		l.ways = past.d.leg.ways[d.Kind]
	}
	endpoint := to.endpoint
	if to == p.at || d.Kind == disagg.Decode { // behind its sidecar
		endpoint = to.behind()
	}
	head := header.Of("content-type", "application/json", "x-request-id", p.r.ID)
	l.send(func() {
		l.sub.reach(to, endpoint, head)
		l.sub.serverBody(l.sub.Body, l.sub.description(), true)
	})
}

// handleReports handles the progress reports of legs that had to wait.
func (p *sidecarRequest) handleReports() {
	p.playing = false
	for len(p.later) > 0 {
		report := p.later[0]
		p.later = p.later[1:]
		report()
	}
}

// send sends a message to the leg's server.
func (l *leg) send(f func()) { l.pass(&l.ways.up, call(f)) }

// back sends a message to the sidecar, which drops it if it does not wait. end marks the last one.
func (l *leg) back(end bool, f func()) {
	l.pass(&l.ways.down, message{do: (*message).call, end: end, f: func() {
		if !l.dropped {
			f()
		}
	}})
}

func (l *leg) pass(on *way, m message) {
	r := l.p.r
	if r.past != nil {
		r.past.passesLeg(l, on, m)
		return
	}
	late := l.sub.server.lateBy()
	if l.sub.server == l.p.at { // on one pod
		late = 0
	}
	r.w.passLate(on, l.by, late, m)
}

// drop ends the leg.
func (l *leg) drop(reason string) {
	if !l.dropped {
		l.dropped = true
		l.send(func() { l.sub.dropServer(reason) })
	}
}

// respond sends a piece of the leg's answer to the sidecar.
func (l *leg) respond(status int, contentType string, body []byte, piece *described.Piece, end bool) {
	l.back(end, func() { l.responded(status, contentType, body, piece, end) })
}

// responded takes a piece of the answer at the sidecar.
func (l *leg) responded(status int, contentType string, body []byte, piece *described.Piece, end bool) {
	if l.p.playing {
		body = bytes.Clone(body)
		l.p.later = append(l.p.later, func() {
			if !l.dropped {
				l.responded(status, contentType, body, piece, end)
			}
		})
		return
	}
	if !l.hasHead {
		l.hasHead, l.kind = true, contentType
		l.p.handle(disagg.Head{Leg: l.ID, Status: status, ContentType: contentType})
	}
	if l.deliver {
		l.handOn(status, body, piece, end)
	} else if l.whole = append(l.whole, body...); end {
		l.p.handle(disagg.Whole{Leg: l.ID, Body: l.whole})
	}
}

// handOn passes the leg's answer on to the client.
func (l *leg) handOn(status int, body []byte, piece *described.Piece, end bool) {
	if piece != nil {
		if l.change != nil && !l.change.Piece(piece, end) {
			piece = nil
		}
	} else if l.change != nil {
		if len(body) > 0 {
			body = bytes.Clone(l.change.Write(body))
		}
		if end {
			body = append(body, l.change.End()...)
		}
	}
	n := len(body)
	if piece != nil {
		n = 1 // at least
	}
	first := l.bytes == 0 && n > 0
	l.bytes += n
	r := l.p.r
	if end {
		r.tokens, r.whole = l.sub.tokens, l.sub.whole
		if l.change != nil {
			r.tokens += l.change.Added()
		}
	}
	if first {
		l.p.handle(disagg.FirstByte{Bytes: n})
	}
	if end {
		l.p.handle(disagg.Delivered{Bytes: l.bytes})
	}
	if n > 0 || end {
		r.answer(status, l.kind, body, piece, end)
	}
}

// streams reports whether the leg's answer is streamed.
func (l *leg) streams() bool {
	q := l.sub.at.resp.Request()
	return q != nil && q.Stream
}

// broke reports to the sidecar that the connection to the leg's server broke.
func (l *leg) broke(reason string) {
	p := l.p
	if p.playing {
		p.later = append(p.later, func() {
			if !l.dropped {
				l.broke(reason)
			}
		})
		return
	}
	if !l.deliver {
		p.handle(disagg.Failed{Leg: l.ID, Reason: reason})
		return
	}
	const text = "the decode server's answer broke off: "
	p.handle(disagg.Gone{Reason: text + reason})
	p.drop("the client left")
	if l.bytes == 0 && l.change != nil && !l.streams() {
		// The sidecar collects and changes a whole answer, so the client has nothing of it yet.
		a := disagg.Failed{Reason: reason}.Answer()
		p.r.respond(a.Status, jsonType, a.Body, true)
		return
	}
	p.r.lost()
}

// serves returns the requests of a sidecar, in the order of their arrival.
func (x *sidecar) serves() []*sidecarRequest {
	return slices.SortedFunc(maps.Keys(x.busy),
		func(a, b *sidecarRequest) int { return cmp.Compare(x.busy[a], x.busy[b]) })
}

// leave ends a request and its legs, because no client waits.
func (p *sidecarRequest) leave(reason string) {
	if !p.x.Over() {
		p.handle(disagg.Gone{Reason: reason})
	}
	p.drop(reason)
}

func (p *sidecarRequest) drop(reason string) {
	for id := 1; p.legs[id] != nil; id++ {
		p.legs[id].drop(reason)
	}
}
