package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/report"
)

// picking drives a replica of a pool's endpoint picker, core/epp. Its calls get their answers at once.
type picking struct {
	slot[epp.Message, *epp.Effects]

	*plan.Replica
	connections
	pool    *pool
	replica int                   // its index among the pool's pickers
	down    bool                  // it has died
	has     map[*request]struct{} // its streams, if it may die

	m  *epp.Machine
	fx epp.Effects
	// service is the picker's time for each request; nil: no time.
	service *slot[*epp.Request, *machine.Effects[epp.Attended]]
	number  uint64

	samples  []*metrics.Collector // of each data source
	onDemand bool                 // see onDemand
	turns    [][]int64            // number of scrapes by data source and endpoint
}

func newPicking(of *pool, r *plan.Replica, number int) (*picking, error) {
	k := &picking{Replica: r, pool: of, replica: number}
	k.connections = connections{breakAll: func() { k.breakOff("") }, changed: k.check}
	if of.Picker.Dies {
		k.has = map[*request]struct{}{}
	}
	return k, k.start()
}

// start starts an empty picker.
func (k *picking) start() error {
	of, p := k.pool, &k.pool.Picker
	w := of.w
	cfg, err := config.Read(p.File, p.Config)
	if err != nil {
		return err
	}
	built, err := picker.New(cfg, plugins.Builtin(),
		picker.Options{Seed: k.Seed, AllowExperimental: true, Readiness: p.Readiness, Detail: !w.brief,
			Brief: w.choices, OwnNames: w.brief && w.explained == 0 && of.kv == nil,
			Predictor: of.predicting.service(of.Predictor)})
	if err != nil {
		return err
	}
	streams := k.Stream
	streams.Recorder, streams.Brief, streams.StandIns = w.rec, w.brief, true
	k.m, err = epp.New(epp.Config{Picker: built, Replica: k.replica, Replicas: len(p.Replicas), Stream: streams,
		RecordOnly: true, DocumentHeaders: true, Explain: w.explained, Describe: w.explained > 0})
	if err != nil {
		return fmt.Errorf("%s: %w", p.File, err)
	}
	if k.Service.Given() {
		k.service = &slot[*epp.Request, *machine.Effects[epp.Attended]]{class: machine.ClassTimer}
		fx := new(machine.Effects[epp.Attended])
		k.service.open(w, epp.NewService(k.Service), fx, func(i int) { k.attended(fx.List[i].Request) })
	}
	k.class, k.while = machine.ClassTimer, w.busy // scrapes have no end
	k.open(w, k.m, &k.fx, func(i int) { k.effect(k.fx.List[i]) })
	endpoints := of.endpoints()
	if r, ok := w.rec.(recording); ok && r.Inputs() != nil {
		x, text := r.Inputs(), string(p.Config)
		w.logged++
		h := inputlog.Header{Picker: w.logged, Replica: k.RecordName, Name: p.File, Config: &text, Seed: k.Seed,
			AllowExperimental: true, Readiness: p.Readiness, Detail: true, Predictor: of.predicting != nil,
			Bodies: x.Bodies, Version: x.Version}
		if w.several {
			h.Pool = of.Name
		}
		// the recording keeps a failure, and reports it when it is closed
		inputlog.New(k.m, h, func(lines []byte) { _, _ = x.To.Write(lines) }).Start()
	}
	k.samples, k.turns = nil, nil
	for i := range k.m.Sources() {
		k.samples = append(k.samples, metrics.NewCollector(k.m.Sources()[i].Wants))
		k.turns = append(k.turns, make([]int64, len(of.servers)))
	}
	if !slices.ContainsFunc(stats.UsageFamilies, k.wanted) {
		for _, sv := range of.servers {
			sv.core.Stats().SkipUsage()
		}
	}
	if w.now == 0 {
		of.kv.connect(k)
	}
	if slices.ContainsFunc(of.replicaSets, func(f *replicaSet) bool { return f.scaler != nil }) {
		k.m.KeepMetrics(func(name string) bool {
			return slices.ContainsFunc(of.replicaSets,
				func(f *replicaSet) bool { return f.scaler != nil && f.scaler.m.Wants(name) })
		})
	}
	if p.Objects != nil {
		k.Input(epp.Objects{Selection: *p.Objects, KeepEndpoints: true})
	}
	f, read := newOnDemand(k, endpoints), built.ReadsMetrics()
	for i := range k.m.Sources() {
		if !read && (f != nil && i == f.source || k.settled(i, endpoints)) {
			k.m.Pull(i, nil)
		}
	}
	k.onDemand = f != nil
	if read = read && f != nil; read {
		k.m.Pull(f.source, f.upTo)
	}
	k.Input(epp.Endpoints{List: endpoints})
	if read {
		f.start(endpoints)
	}
	return nil
}

// settled reports whether a data source only checks whether endpoints answer, and all of them answer in the whole run.
func (k *picking) settled(source int, endpoints []*picker.Endpoint) bool {
	src := &k.m.Sources()[source]
	if len(src.Extractors) > 0 || src.Path == "/metrics" || k.w.eachPage || k.w.troubled ||
		k.pool.varies() {
		return false
	}
	return !slices.ContainsFunc(endpoints, func(e *picker.Endpoint) bool {
		_, err := k.page(&epp.Target{Endpoint: e}, source)
		return err != nil
	})
}

// recording is a recorder that also takes the log of the pickers' inputs.
type recording interface{ Inputs() *report.Inputs }

// wanted reports whether any data source reads a family of metrics.
func (k *picking) wanted(family string) bool {
	return slices.ContainsFunc(k.m.Sources(), func(s epp.Source) bool { return s.Wants(family) })
}

// Input implements epp.Door. A dead picker ignores messages.
func (k *picking) Input(m epp.Message) {
	if !k.down {
		k.input(m)
	}
}

func (k *picking) effect(e epp.Effect) {
	switch e.Kind {
	case epp.Ask:
		if d, direct := e.Request.Owner.(*direct); direct {
			d.takeSteps(true)
		} else {
			k.ask(e.Request)
		}
	case epp.Decided:
		e.Request.Owner.(interface{ decided() }).decided()
	case epp.Evict:
		e.Request.Owner.(*request).evicted()
	case epp.Send:
		for i := range e.Needs {
			if n := &e.Needs[i]; n.Key == plugins.KeyProgress {
				k.pool.frontend.send(n)
			} else {
				k.pool.predicting.send(n)
			}
		}
	case epp.Scrape:
		k.scrape(e.Target, e.Source)
	case epp.Dial:
		k.dial(e.Source, e.Target)
	}
}

// scrape fetches a page, with the state of the middle of the hop. It takes no time at the beginning, since the picker
// started before the run, and does nothing after the last request.
func (k *picking) scrape(t *epp.Target, source int) {
	if !k.w.busy() {
		return
	}
	took := machine.Time(0)
	if k.w.now > 0 {
		place := t.Place()
		if k.pool.varies() { // places vary, too
			place = k.pool.byAddr[t.HostPort()].Index
		}
		n := &k.turns[source][place]
		*n++
		took = k.w.hops.scrapes(source, place, len(k.pool.servers), *n)
	}
	late := false
	if sv := k.pool.byAddr[t.HostPort()]; sv != nil && (sv.delay+sv.late > 0 || sv.paused) {
		limit := k.m.Sources()[source].Timeout
		took += sv.delay + 2*sv.late
		if late = took > limit || sv.paused; late {
			took = limit
		}
	}
	asked := k.m
	k.look(k.w.now.Add(took/2), func() {
		page, err := k.page(t, source)
		if late {
			page, err = nil, errLate
		}
		k.look(k.w.now.Add(took-took/2), func() {
			if k.m == asked { // otherwise the picker has restarted
				k.Input(epp.Scraped{Target: t, Source: source, Page: page, Err: err})
			}
		})
	})
}

// errLate is the error of a page that takes longer than the picker waits.
var errLate = errors.New("the page did not come in time")

// look calls f at a time, as the last event of that time; at the beginning at once.
func (k *picking) look(at machine.Time, f func()) {
	if at == 0 {
		f()
		return
	}
	k.w.asking++
	k.w.queue.Push(at, machine.ClassLook, event{looks, f})
}

// decide gives a request to the picker.
func (k *picking) decide(r *request) {
	x := r.stream.Request()
	x.Owner = r
	switch {
	case k.service != nil:
		r.attended = true
		k.service.input(x)
	case !r.direct:
		k.Input(epp.Arrive{Request: x})
	case x.Asking():
		k.ask(x)
	default:
		r.decided()
	}
}

// ask makes the calls of plug-ins about a request.
func (k *picking) ask(x *epp.Request) {
	far, late := k.far(x)
	var answers []picker.Answer
	question := func() {
		for i := range x.Needs {
			answers = append(answers, k.pool.outside.answer(x.Owner.(*request), &x.Needs[i]))
		}
	}
	answer := func() { k.Input(k.m.Answer(x, answers)) }
	if far == 0 {
		question()
		answer()
		return
	}
	asked, id := k.m, x.ID
	after := func(d machine.Time, f func()) {
		k.w.queue.Push(k.w.now.Add(d), machine.ClassTimer, event{then, func() {
			if k.m == asked && x.ID == id && x.Asking() { // otherwise the request no longer waits
				f()
			}
		}})
	}
	after(far/2, func() {
		question()
		for i := range answers {
			if late && answers[i].Key == plugins.KeyRoute {
				answers[i].Value, answers[i].Err = nil, context.DeadlineExceeded
			}
		}
		after(far-far/2, answer)
	})
}

// attended gives a request to the picker after its service time, unless the picker got it before.
func (k *picking) attended(x *epp.Request) {
	if r := x.Owner.(*request); r.attended {
		r.attended = false
		k.Input(epp.Arrive{Request: x})
	}
}
