// Package virtual plays a scenario in virtual time: the same machines that
// live/ drives with goroutines and sockets, driven by one event queue ordered
// by time, class and sequence.
//
// A request is a few calls here: the client's bytes go into the EPP's stream
// machine, its effects go to the sidecar's request or the model server's
// session and engine, and theirs back. What a network would carry arrives after
// the time that the scenario's hops take. The record has the same steps as a live
// one, except Envoy's own log.
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
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/constraint"
	"github.com/windtunnel/windtunnel/scenario"
)

// event is one slot of the queue: a machine's wake-up or the client's next
// move. The target decides which.
type event struct {
	kind kind
	of   any // a pointer or a function, by kind
}

// alarm is a request that something waits for which hardly ever comes: its client giving
// it up. It is empty once the request has ended, so that memory goes with the
// requests in flight.
type alarm struct{ r *request }

type kind uint8

const (
	wake kind = iota
	arrive
	giveUp
	leave
	nextTurn
	sendKV
	deliverKV
	arrives
	then
	looks
	happens
	ends
	decides
	enters
	seesEnd
	getsEnd
)

// world is everything in one virtual run.
type world struct {
	readers
	reused

	queue      machine.Queue[event]
	now        machine.Time
	load       *workload.Config
	loop       *workload.Loop
	hops       hops
	pools      []*pool
	fit        Fitter    // of latency predictors; nil where nobody can
	front      *front    // of manifests; nil without any
	routes     bbr.Table // of models to several pools
	timeout    machine.Time
	chunked    bool         // bodies are sent without their length
	several    bool         // there are several pools
	closing    machine.Time // before a client learns that its answer was cut
	limit      int          // conversations in flight at the most
	sent, done int          // requests, and those of them that have ended
	over       machine.Time // when the last of those that have ended did
	limits     limits
	servers    uint32       // that were made, of all pools
	ending     []*request   // that have ended in this event
	moved      machine.Time // when something last happened but the picker asking endpoints how they are
	asking     int          // events in the queue that are nothing else
}

// readers are those who want to know what happens in a run, and how much of it.
type readers struct {
	rec   record.Recorder
	brief bool // nobody reads details
	// every page of metrics is made at its time, whether or not anybody looks
	eachPage   bool
	stepByStep bool
	gaps       engine.Gaps
	answers    func(request string, piece []byte) // Options.Answers
	logged     int                                // pickers with a log of their inputs
	mute       *mute                              // rec, where requests may be direct
	explained  int                                // endpoints of a decision, in the record
	choices    bool                               // nobody reads more of a decision than what was chosen
	lives      record.Lives                       // takes those of direct requests; may be nil
}

// reused is memory that is used again, and values that are read before the next one is written.
type reused struct {
	heads    map[responseKind]header.List // of responses
	msg      stream.Message               // the last one to an EPP's stream
	chat     openai.Chat                  // the chat being read
	head     header.List                  // the last one to a model server
	reading  modelserver.Head             // of the one that is being read
	messages []*message                   // that have arrived
	memories []*memory                    // of requests
	directs  []*direct                    // all that were made
	spares   []*direct                    // those that are not in flight
	talks    []*workload.Conversation     // that are over
}

// Run plays a scenario and reports every event to rec, in the order of time.
// A progress function may be nil; it is told how many requests have ended, and
// stops the run by returning false.
func Run(s *scenario.Scenario, rec record.Recorder, progress func(done int) bool) error {
	_, err := Play(s, rec, Options{Progress: progress})
	return err
}

// Options are how a scenario is played.
type Options struct {
	// Progress is as in Run.
	Progress func(done int) bool
	// Bytes has all requests and answers spelt out as they would be sent, but for
	// the tokens in the middle of answers, which are counted. It takes longer and changes nothing.
	Bytes bool
	// StepByStep has engines play every step by itself, also where nothing happens between
	// several. It takes longer and changes nothing.
	StepByStep bool
	// Answers is told of the bytes of a request's answer, each piece as its client
	// gets it; every token is spelt out then. Nil tells nobody.
	Answers func(request string, piece []byte)
	// Fit fits the trees of latency predictors; without it one that is to learn is not
	// there, as where Python is missing in wall time.
	Fit Fitter
	// Gaps is told of the times between tokens, and Served in the end how full the model
	// servers were; either may be nil.
	Gaps   engine.Gaps
	Served func([]report.ServerLoad)
	// Used is told in the end how much of everything else was in use; may be nil.
	Used func([]constraint.Use)
	// Trained is told in the end what each pool's latency predictor came to; may be nil.
	Trained func(predictor.Status)

	eachPage  bool // every page of metrics is made at its time, whether or not anybody looks
	eachScore bool // every endpoint is scored at every decision, whether or not anything has changed
}

// Play is Run, and tells what the picker's indexes of KV blocks came to.
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

// run plays until nothing is left to happen, or progress stops it.
func (w *world) run(progress func(done int) bool) error {
	for _, p := range w.pools {
		for _, f := range p.fleets {
			f.begin()
		}
	}
	w.start()
	return w.playAll(progress)
}

func (w *world) playAll(progress func(done int) bool) error {
	reported := 0
	for w.queue.Len() > 0 {
		at, e := w.queue.Pop()
		w.now = max(w.now, at)
		if w.idles(&e) {
			return w.stuck()
		}
		w.play(e)
		w.recycle()
		if progress != nil && w.done >= reported+1000 {
			reported = w.done
			if !progress(w.done) {
				w.interrupted()
				return nil
			}
		}
	}
	return w.settled()
}

// settled is what must hold after every run: each request has ended once, no
// engine has one or keeps blocks for anybody, and the tokens that engines made
// are those of the requests that they ended.
func (w *world) settled() error {
	if w.loop.InFlight()+w.loop.Waiting() > 0 {
		return w.stuck()
	}
	if w.done != w.sent {
		return fmt.Errorf("virtual: %d requests were sent and %d ended; this is a fault of windtunnel", w.sent, w.done)
	}
	for _, p := range w.pools {
		if err := p.settled(); err != nil {
			return err
		}
	}
	return nil
}

// patience is how much longer than all else the picker may go on asking
// endpoints how they are while requests wait, before nothing is taken to come of
// it.
const patience = machine.Time(10 * time.Minute)

// idles says whether nothing comes any more of what is in the queue, of which e
// was the first.
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

// stuck says that nothing more will happen, and which requests wait, and where.
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

// start has the first conversations begin, and what happens by the clock.
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
		if r := e.of.(*alarm).r; r != nil {
			r.leaves()
		}
	case nextTurn:
		w.send(e.of.(*workload.Conversation))
	case sendKV:
		e.of.(*server).sendKV()
	case deliverKV:
		e.of.(*server).deliverKV()
	case arrives:
		w.arrive(e.of.(*message))
	case then, looks:
		e.of.(func())()
	case happens:
		e.of.(*incident).happen()
	case ends:
		e.of.(*incident).recover()
	case decides, enters, seesEnd, getsEnd:
		e.of.(*direct).play(e.kind)
	}
}

// busy is true while there are requests, or more to come.
func (w *world) busy() bool { return !w.loop.Over() }
