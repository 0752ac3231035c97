// Package virtual plays a scenario in virtual time. One event queue, ordered by time, class and sequence, drives the
// same machines that live/ drives with goroutines and sockets. Begin to read at Play.
//
// A request is a few calls: the client's bytes enter the EPP's stream machine, its effects enter the sidecar's request
// or the model server's session and engine, and their effects return. Each message arrives after the time of the
// scenario's hops. The record has the same steps as a live one, except Envoy's own log.
package virtual

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/scenario"
)

// event is an entry of the queue.
type event struct {
	kind kind
	of   any // a pointer or a function, by kind
}

// requestRef refers to a request from an event that rarely takes place: its client gives up. It is empty once the
// request has ended, so that the event does not keep the request's memory.
type requestRef struct{ r *request }

type kind uint8

const (
	wake kind = iota
	arrive
	giveUp
	leave
	nextTurn
	arrives
	then  // calls a function
	looks // calls a function that only refreshes the picker's view of endpoints
	decides
	enters
	seesEnd
	getsEnd
)

// world is the state of one virtual run.
type world struct {
	readers
	reused

	queue      machine.Queue[event]
	now        machine.Time
	load       *workload.Config
	loop       *workload.Loop
	hops       hops
	pools      []*pool
	fit        Fitter    // of latency predictors; may be nil
	front      *front    // the Gateway of manifests; nil without manifests
	routes     bbr.Table // the pools of models
	timeout    machine.Time
	chunked    bool                  // clients send bodies without content-length
	several    bool                  // there are several pools
	troubled   bool                  // some pool has incidents
	late       machine.Time          // further time of each message from or to a client
	open       map[*request]struct{} // requests of clients, if incidents break their connections
	closing    machine.Time          // from the cut of an answer until the client notices
	limit      int                   // of conversations in flight
	sent, done int                   // numbers of requests that were sent, and that have ended
	over       machine.Time          // of the last end of a request
	limits     limits
	servers    uint32       // number of servers of all pools so far
	ending     []*request   // requests that have ended in this event
	moved      machine.Time // of the last event other than periodic wake-ups and looks
	asking     int          // number of such events in the queue
}

// readers determine how much of a run is reported, and to whom.
type readers struct {
	rec   record.Recorder
	brief bool // rec ignores details
	// every page of metrics is made at its time, even if no picker reads it
	eachPage   bool
	stepByStep bool
	gaps       engine.Gaps
	answers    func(request string, piece []byte) // Options.Answers
	logged     int                                // number of pickers with a log of their inputs
	mute       *mute                              // rec, if requests may be direct
	explained  int                                // endpoints of a decision, in the record
	choices    bool                               // of a decision, only the choice is read
	lives      record.Lives                       // takes the lives of direct requests; may be nil
}

// reused is memory that later requests use again, and values that are read before the next one is written.
type reused struct {
	heads       map[responseKind]header.List // of responses
	msg         stream.Message               // the last one to an EPP's stream
	chat        openai.Chat                  // the chat being read
	head        header.List                  // the last one to a model server
	reading     modelserver.Head             // of the request being read
	messages    []*message                   // that have arrived
	memories    []*memory                    // of requests
	directs     []*direct                    // all
	freeDirects []*direct                    // those not in flight
	talks       []*workload.Conversation     // that are over
}

// Run plays a scenario and reports every event to rec, in the order of time. The progress function may be nil. It gets
// the number of requests that have ended, and stops the run if it returns false.
func Run(s *scenario.Scenario, rec record.Recorder, progress func(done int) bool) error {
	_, err := Play(s, rec, Options{Progress: progress})
	return err
}

// Options configure how a scenario is played.
type Options struct {
	// Progress is as in Run.
	Progress func(done int) bool
	// Bytes writes all requests and answers in full, except the tokens in the middle of answers, which are only
	// counted. It takes longer and does not change the results.
	Bytes bool
	// StepByStep makes engines play every step separately, even if nothing happens between several steps. It takes
	// longer and does not change the results.
	StepByStep bool
	// Answers, if not nil, gets the bytes of each answer, piece by piece as its client gets them, with every token.
	Answers func(request string, piece []byte)
	// Fit fits the trees of latency predictors. Without it, pools have no predictor that learns, as in wall time
	// without Python.
	Fit Fitter
	// Gaps gets the times between tokens. Served gets the load of the model servers at the end. Either may be nil.
	Gaps   engine.Gaps
	Served func([]report.ServerLoad)
	// Used gets the use of all other parts at the end; may be nil.
	Used func([]constraint.Use)
	// Trained gets the final status of each pool's latency predictor; may be nil.
	Trained func(predictor.Status)

	eachPage  bool // see readers
	eachScore bool // every decision scores every endpoint, even if nothing has changed
}

// Play plays a scenario as Run does, and returns how the picker's indexes of KV blocks compare with the engines.
func Play(s *scenario.Scenario, rec record.Recorder, o Options) ([]report.IndexSummary, error) {
	w, err := newWorld(s, rec, o)
	if err != nil {
		return nil, err
	}
	if o.Bytes || o.Answers != nil {
		w.load.Write()
	}
	if w.answers = o.Answers; o.Answers != nil {
		for _, p := range w.pools {
			p.verbose = true
		}
	}
	err = w.run(o.Progress)
	if o.Served != nil {
		o.Served(w.loads())
	}
	if o.Used != nil {
		o.Used(w.uses())
	}
	if err != nil || w.busy() {
		return nil, err
	}
	var checks []report.IndexSummary
	for _, p := range w.pools {
		if p.predicting != nil && o.Trained != nil {
			o.Trained(p.predicting.m.Status())
		}
		checks = append(checks, p.kv.check()...)
	}
	return checks, nil
}

// run plays until the queue is empty, or progress stops it.
func (w *world) run(progress func(done int) bool) error {
	for _, p := range w.pools {
		for _, f := range p.replicaSets {
			f.start()
		}
	}
	w.start()
	return w.playAll(progress)
}

func (w *world) playAll(progress func(done int) bool) error {
	for events := 1; w.queue.Len() > 0; events++ {
		at, e := w.queue.Pop()
		w.now = max(w.now, at)
		if w.idles(&e) {
			return w.stuck()
		}
		w.play(e)
		w.recycle()
		if progress != nil && events%4096 == 0 && !progress(w.done) {
			w.interrupted()
			return nil
		}
	}
	return w.settled()
}

// settled checks the invariants of every run: each request has ended once, no engine has a request or holds blocks, and
// the tokens that engines made are those of the requests that they ended.
func (w *world) settled() error {
	if w.loop.InFlight()+w.loop.Waiting() > 0 {
		return w.stuck()
	}
	if w.done != w.sent {
		return fault("%d requests were sent and %d ended", w.sent, w.done)
	}
	if len(w.open) > 0 {
		return fault("%d requests that have ended still have a connection", len(w.open))
	}
	for _, p := range w.pools {
		if err := p.settled(); err != nil {
			return err
		}
	}
	return nil
}

// fault is an error in windtunnel itself.
func fault(format string, args ...any) error {
	return fmt.Errorf("virtual: "+format+"; this is a fault of windtunnel", args...)
}

// patience is how long only periodic events may take place while requests wait, before the run counts as stuck.
const patience = machine.Time(10 * time.Minute)

// idles reports whether the run is stuck: e and the rest of the queue are periodic events that change nothing.
func (w *world) idles(e *event) bool {
	if e.kind != looks && (e.kind != wake || !e.of.(*place).asks) {
		w.moved = w.now
		return false
	}
	w.asking--
	if w.now-w.moved <= patience || w.loop.InFlight() == 0 || w.queue.Len() > w.asking {
		return false
	}
	return !slices.ContainsFunc(w.pools, (*pool).expects)
}

// stuck returns an error that says which requests wait, and where.
func (w *world) stuck() error {
	var where []string
	add := func(n int, what string) {
		if n > 0 {
			where = append(where, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(w.loop.Waiting(), "conversations that wait for the limit of those in flight")
	for _, p := range w.pools {
		p.waiting(add)
	}
	if len(where) == 0 {
		where = []string{"none of them in flow control or at a model server"}
	}
	return fmt.Errorf("virtual: at %v nothing more happens, and %d conversations have not ended: %s; set "+
		"workload.timeout if they wait for what never comes, else this is a fault of windtunnel",
		w.moved, w.loop.InFlight(), strings.Join(where[:min(len(where), 10)], ", "))
}

// start schedules the first conversations.
func (w *world) start() {
	if w.loop.Open() {
		w.awaitArrival()
		return
	}
	for range w.loop.First() {
		w.queue.Push(0, machine.ClassArrival, event{kind: arrive})
	}
}

func newWorld(s *scenario.Scenario, rec record.Recorder, o Options) (*world, error) {
	if len(s.Pools) == 0 {
		return nil, errors.New("virtual: expected a pool, the scenario has none")
	}
	p, err := s.Plan()
	if err != nil {
		return nil, err
	}
	w := &world{readers: readers{rec: rec, brief: !record.Detailed(rec), eachPage: o.eachPage, gaps: o.Gaps,
		stepByStep: o.StepByStep}, reused: reused{heads: map[responseKind]header.List{}}, fit: o.Fit,
		load:    p.Load.Requests,
		timeout: machine.FromDuration(p.Load.Timeout),
		limit:   p.Load.Concurrency, chunked: p.Load.Chunked, several: len(p.Pools) > 1}
	w.troubled = slices.ContainsFunc(p.Pools, func(x *plan.Pool) bool { return len(x.Incidents) > 0 })
	w.loop = workload.NewLoop(w.load, w.limit)
	r, logs := rec.(recording)
	if logs = logs && r.Inputs() != nil; logs {
		w.eachPage = true
	}
	w.explained = record.Explained(rec)
	w.choices = w.brief && w.explained == 0 && !logs && !plugins.Extended() && !o.eachScore
	if w.lives = record.LivesOf(rec); w.lives != nil {
		w.mute = &mute{Recorder: rec}
		w.rec = w.mute
	}
	w.front = newFront(w, p.Gateway.Front)
	w.hops = newHops(p.Seed, &p.Hops, p.Gateway.BodyRouter || w.front != nil && w.front.router != nil)
	w.routes = p.Gateway.Routes
	if !p.Load.HTTP2 {
		w.closing = machine.FromDuration(proxy.DelayedClose)
	}
	for _, x := range p.Pools {
		if err := w.newPool(p, x); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) play(e event) {
	switch e.kind {
	case arrive:
		w.arrived()
	case wake:
		p := e.of.(*place)
		if p.at = 0; p.slot != nil {
			p.slot.wake()
		}
	case giveUp:
		w.limits.wake(w)
	case leave:
		if r := e.of.(*requestRef).r; r != nil {
			r.leaves()
		}
	case nextTurn:
		w.send(e.of.(*workload.Conversation))
	case arrives:
		w.arrive(e.of.(*message))
	case then, looks:
		e.of.(func())()
	case decides, enters, seesEnd, getsEnd:
		e.of.(*direct).play(e.kind)
	}
}

// busy reports whether requests are in flight or still to come.
func (w *world) busy() bool { return !w.loop.Over() }
