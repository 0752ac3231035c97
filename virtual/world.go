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
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/header"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/openai"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/core/tokens"
	"github.com/windtunnel/windtunnel/core/workload"
	"github.com/windtunnel/windtunnel/report"
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
	queue         machine.Queue[event]
	now           machine.Time
	rec           flow.Recorder
	load          *workload.Config
	arrivals      *workload.Arrivals // of an open loop
	stream        stream.Config
	hops          hops
	model         string
	adapters      map[string]engine.AdapterID
	voc           *tokens.Vocabulary
	heads         map[responseKind]header.List // of responses
	msg           stream.Message               // the last one to an EPP's stream
	verbose       bool                         // sidecars go on from what answers say
	eachPage      bool                         // every page of metrics is made at its time, whether or not anybody looks
	picking       *picking
	outside       outside
	kv            *kvWire  // of model servers that publish KV events
	sessions      int      // that each sidecar remembers
	prefillers    []string // whom sidecars call in session mode
	net           *network // between model servers
	servers       []*server
	byHost        map[string]*server
	byAddr        map[string]*server
	draws         lifecycle.Draws
	chat          openai.Chat // the chat being read
	faults        lifecycle.Faults
	modes         modes
	timeout       machine.Time
	chunked       bool                     // bodies are sent without their length
	limit         int                      // conversations in flight at the most
	planned       int                      // requests of conversations that have arrived
	conversations int                      // conversations that have arrived
	flying        int                      // conversations in flight
	overdue       []*workload.Conversation // those that wait for the limit
	done          int                      // requests that have ended
	messages      []*message               // that have arrived, to be used again
	head          header.List              // the last one to a model server
	memories      []*memory                // that are to be used again
	limits        limits
	mute          *mute        // rec, where requests may be direct
	explained     int          // endpoints of a decision, in the record
	lives         flow.Lives   // takes those of direct requests; may be nil
	straight      bool         // requests may be direct
	directs       []*direct    // all that were made
	spares        []*direct    // those that are to be used again
	ending        []*request   // that have ended in this event
	moved         machine.Time // when something last happened but the picker asking endpoints how they are
	asking        int          // events in the queue that are nothing else
}

// Run plays a scenario and reports every event to rec, in the order of time.
// A progress function may be nil; it is told how many requests have ended, and
// stops the run by returning false.
func Run(s *scenario.Scenario, rec flow.Recorder, progress func(done int) bool) error {
	_, err := Play(s, rec, Options{Progress: progress})
	return err
}

// Options are how a scenario is played.
type Options struct {
	// Progress is as in Run.
	Progress func(done int) bool
	// Bytes has all requests and answers spelt out as they would be sent, which
	// takes longer and changes nothing.
	Bytes bool
}

// Play is Run, and tells what the picker's indexes of KV blocks came to.
func Play(s *scenario.Scenario, rec flow.Recorder, o Options) ([]report.IndexSummary, error) {
	w, err := build(s, rec)
	if err != nil {
		return nil, err
	}
	if o.Bytes {
		w.load.Write()
	}
	if err := w.run(o.Progress); err != nil || w.busy() {
		return nil, err
	}
	return w.kv.check(w), nil
}

// run plays until nothing is left to happen, or progress stops it.
func (w *world) run(progress func(done int) bool) error {
	w.start()
	return w.goOn(progress)
}

func (w *world) goOn(progress func(done int) bool) error {
	reported := 0
	for w.queue.Len() > 0 {
		at, e := w.queue.Pop()
		w.now = max(w.now, at)
		if w.idles(&e) {
			return w.stuck()
		}
		w.play(at, e)
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
	if w.flying+len(w.overdue) > 0 {
		return w.stuck()
	}
	if w.done != int(w.picking.number) {
		return fmt.Errorf("virtual: %d requests were sent and %d ended; this is a fault of windtunnel", w.picking.number, w.done)
	}
	if n := len(w.net.askers) + w.net.net.InFlight(); n > 0 {
		return fmt.Errorf("virtual: %d KV transfers never ended; this is a fault of windtunnel", n)
	}
	if n := w.picking.m.InFlight(); n > 0 {
		return fmt.Errorf("virtual: flow control still has %d requests; this is a fault of windtunnel", n)
	}
	for _, sv := range w.servers {
		st := sv.engine.Stats()
		if n := sv.core.Busy() + st.Running + st.Waiting + len(sv.calls); n > 0 || sv.engine.KVBlocksUsed() > 0 {
			return fmt.Errorf("virtual: %s still has %d requests and %d KV blocks, %d handles held; this is a fault of windtunnel",
				sv.name, n, sv.engine.KVBlocksUsed(), sv.core.Holds())
		}
		if st.Accepted != sv.ends || st.GenerationTokens != sv.made {
			return fmt.Errorf("virtual: %s accepted %d requests and made %d tokens, and ended %d with %d; this is a fault of windtunnel",
				sv.name, st.Accepted, st.GenerationTokens, sv.ends, sv.made)
		}
		if sv.sidecar != nil && len(sv.sidecar.busy) > 0 {
			return fmt.Errorf("virtual: the sidecar of %s still serves %d requests; this is a fault of windtunnel", sv.name, len(sv.sidecar.busy))
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
	if w.now-w.moved <= patience || w.flying == 0 || w.queue.Len() > w.asking {
		return false
	}
	if fc := w.picking.m.FlowControl(); fc != nil {
		if _, due := fc.Next(); due {
			return false
		}
	}
	return true
}

// stuck says that nothing more will happen, and which requests wait, and where.
func (w *world) stuck() error {
	var where []string
	add := func(n int, what string) {
		if n > 0 {
			where = append(where, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(len(w.overdue), "conversations that wait for the limit of those in flight")
	add(w.picking.m.InFlight(), "requests that flow control holds or has let go")
	for _, sv := range w.servers {
		if sv.sidecar != nil {
			add(len(sv.sidecar.busy), "at the sidecar of "+sv.name)
		}
		st := sv.engine.Stats()
		add(st.Running, "that run on "+sv.name)
		add(st.Waiting, "that wait in the engine of "+sv.name)
	}
	if len(where) == 0 {
		where = []string{"none of them in flow control or at a model server"}
	}
	return fmt.Errorf("virtual: at %v nothing more happens, and %d conversations have not ended: %s; set workload.timeout if they wait for what never comes, else this is a fault of windtunnel",
		w.moved, w.flying, strings.Join(where[:min(len(where), 10)], ", "))
}

// start has the first conversations begin, and what happens by the clock.
func (w *world) start() {
	if w.load.Rate > 0 {
		w.awaitArrival()
		return
	}
	for range min(w.limit, w.load.Requests) {
		w.queue.Push(0, machine.ClassArrival, event{kind: arrive})
	}
}

func build(s *scenario.Scenario, rec flow.Recorder) (*world, error) { return newWorld(s, rec, false) }

func newWorld(s *scenario.Scenario, rec flow.Recorder, eachPage bool) (*world, error) {
	if len(s.Pools) != 1 {
		return nil, fmt.Errorf("virtual: expected one pool, the scenario has %d", len(s.Pools))
	}
	p := &s.Pools[0]
	if len(p.Endpoints) > 0 {
		return nil, fmt.Errorf("virtual: pool %s has endpoints that someone else runs; virtual time can only play simulated model servers (replicas)", p.Name)
	}
	w := &world{rec: rec, eachPage: eachPage, load: s.Generator(), draws: s.Draws(p), byAddr: map[string]*server{}, byHost: map[string]*server{}, model: p.Model,
		voc: tokens.NewVocabulary(p.Tokenizer()), heads: map[responseKind]header.List{}, timeout: machine.FromDuration(s.Workload.Timeout), limit: s.Workload.Concurrency, chunked: s.Workload.ChunkedUpload}
	_, packed := p.Tokenizer().(tokens.Packed)
	w.arrivals = w.load.Arrivals()
	w.verbose = w.load.Turns != nil && !packed || p.Disaggregation.SessionCache > 0
	w.stream = s.Stream(p)
	w.stream.Brief, w.stream.StandIns = !flow.Detailed(rec), true
	w.explained = flow.Explained(rec)
	if w.lives = flow.LivesOf(rec); w.lives != nil {
		w.mute = &mute{Recorder: rec}
		w.rec = w.mute
	}
	w.stream.Recorder = w.rec
	w.modes = modesOf(p)
	w.hops = newHops(s.Seed, &s.Hops)
	w.kv = newKVWire(w, p)
	w.adapters = p.Adapters()
	var err error
	if w.faults, err = s.Faults(p); err != nil {
		return nil, err
	}
	for i := range p.Servers() {
		if _, err := w.newServer(s, p, i); err != nil {
			return nil, err
		}
	}
	if err := w.startSidecars(s, p); err != nil {
		return nil, err
	}
	if w.net, err = newNetwork(w, p); err != nil {
		return nil, err
	}
	// An incident is the last of its moment: who arrives then finds the server as
	// it was, and sees it die.
	for i := range p.Incidents {
		w.queue.Push(machine.FromDuration(p.Incidents[i].At), machine.ClassTimer, event{happens, &p.Incidents[i]})
	}
	w.outside.open(w, p)
	if w.picking, err = newPicking(w, s, p); err != nil {
		return nil, err
	}
	w.straight = w.mayBeDirect(s, p)
	return w, nil
}

func (w *world) newServer(s *scenario.Scenario, p *scenario.Pool, i int) (*server, error) {
	config, err := s.Engine(p, i)
	if err != nil {
		return nil, err
	}
	for id := range len(w.adapters) {
		config.Adapters = append(config.Adapters, engine.AdapterID(id+1))
	}
	core, err := enginecore.New(enginecore.Config{Engine: config, Index: i, EngineID: modelserver.EngineID(s.Seed, i), ViaStore: p.Link().ViaStore,
		Ranks: p.ModelServer.TensorParallelSize, Publish: w.kv != nil, OutOfMemory: p.OutOfMemory()})
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	sv := &server{index: i, name: p.ServerName(i), endpoint: address(i), core: core, engine: core.Engine(), calls: map[enginecore.Call]peer{}}
	if sv.fetched, err = simplelru.NewLRU[string, struct{}](modelserver.MaxStored, nil); err != nil {
		return nil, err
	}
	sv.told = stats.Server{Engine: sv.engine.Config(), Model: p.Model, MemoryBytes: p.MemoryTaken(), TensorParallel: p.ModelServer.TensorParallelSize}
	sv.class, sv.carried, sv.slot.changes = machine.ClassStepEnd, sv.tell, sv.changes
	sv.open(w, core, new(enginecore.Effects), func(i int) { sv.effect(sv.fx.List[i]) })
	sv.steps = lifecycle.EngineSteps{Recorder: w.rec, Endpoint: sv.endpoint, Detail: p.ModelServer.StepDetail()}
	sv.steps.Timer, _ = config.Timer.(*latency.Timer)
	sv.reader = modelserver.Reader{State: state{sv}, Config: &modelserver.Config{Seed: s.Seed, Engine: sv.engine.Config(), Models: []string{w.model},
		Tokenizer: p.Tokenizer(), Template: tokens.TemplateFor(w.model), ChatTemplate: p.Template(), Vocabulary: w.voc, EngineID: core.Config().EngineID, TensorParallel: max(1, p.ModelServer.TensorParallelSize),
		PromptTokensDetails: true, OwnNames: w.kv == nil && p.Sidecar != scenario.RoutingSidecar && !p.Link().ViaStore}}
	if c := sv.reader.Config; p.Sidecar == scenario.RoutingSidecar || p.ModelServer.KVEvents.Published() {
		c.Connector = p.Link()
		if c.KVRole = modelserver.RoleConsumer; p.Prefills(i) {
			c.KVRole = modelserver.RoleProducer
		}
	}
	w.servers = append(w.servers, sv)
	w.byAddr[sv.endpoint], w.byHost[sv.host()] = sv, sv
	return sv, nil
}

// Servers are the made-up addresses of a pool's servers, those that only prefill
// apart.
func Servers(p *scenario.Pool) (endpoints, prefill []string) {
	for i := range p.Servers() {
		if p.Prefills(i) {
			prefill = append(prefill, address(i))
		} else {
			endpoints = append(endpoints, address(i))
		}
	}
	return endpoints, prefill
}

// address is a made-up one that looks like a pod's.
func address(i int) string {
	return scenario.JoinPort(fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), scenario.PodPort)
}

func (w *world) play(at machine.Time, e event) {
	switch e.kind {
	case arrive:
		w.arrived()
	case wake:
		if p := e.of.(*place); p.slot != nil {
			p.slot.wake(at)
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
		w.happen(e.of.(*scenario.Incident))
	case ends:
		w.recover(e.of.(*scenario.Incident))
	case decides, enters, seesEnd, getsEnd:
		e.of.(*direct).play(e.kind)
	}
}

// busy is true while there are requests, or more to come.
func (w *world) busy() bool { return w.flying > 0 || w.planned < w.load.Requests }
