// Package virtual plays a scenario in virtual time: the same machines that
// live/ drives with goroutines and sockets, driven by one event queue ordered
// by time, class and sequence.
//
// A request is a few calls here: the client's bytes go into the EPP's stream
// machine, its effects go to the model server's session and engine, and theirs
// back. What a network would carry is handed over at once, so a virtual run
// shows the time that the parts themselves need. The record has the same steps
// as a live one, except Envoy's own log.
package virtual

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/roundrobin"
	"github.com/windtunnel/windtunnel/core/serving"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/core/workload"
	"github.com/windtunnel/windtunnel/scenario"
)

// event is one slot of the queue: a machine's wake-up or the client's next
// move. The target decides which.
type event struct {
	kind    kind
	server  *server
	request *request
}

type kind uint8

const (
	wakeServer kind = iota
	wakeStream
	wakePicker
	scrape
	arrive
	giveUp
	sendKV
	deliverKV
	retryPrefill
	wakeNetwork
	afterFault
)

// world is everything in one virtual run.
type world struct {
	queue    machine.Queue[event]
	now      machine.Time
	rec      flow.Recorder
	load     *workload.Config
	stream   stream.Config
	picker   *roundrobin.Picker // of a pool without an EndpointPickerConfig
	picking  *picking           // of one with it
	kv       *kvWire            // of model servers that publish KV events
	sidecar  *disagg.Config     // of the sidecars before decode servers
	wires    *wires             // between servers that prefill and servers that decode
	numbered int                // requests at sidecars
	servers  []*server
	byName   map[string]*server
	byAddr   map[string]*server
	draws    serving.Draws
	faults   serving.Faults
	timeout  machine.Time
	requests int
	limit    int // requests in flight at the most
	sent     int
	flying   int
	overdue  int // arrivals that wait for the limit
	nextID   engine.RequestID
}

// Run plays a scenario and reports every event to rec, in the order of time.
// A progress function may be nil; it is told how many requests have ended, and
// stops the run by returning false.
func Run(s *scenario.Scenario, rec flow.Recorder, progress func(done int) bool) error {
	w, err := build(s, rec)
	if err != nil {
		return err
	}
	if w.load.Rate > 0 {
		w.queue.Push(w.load.Gap(0), machine.ClassArrival, event{kind: arrive})
	} else {
		for range min(w.limit, w.requests) {
			w.queue.Push(0, machine.ClassArrival, event{kind: arrive})
		}
	}
	reported := 0
	for w.queue.Len() > 0 {
		at, e := w.queue.Pop()
		w.now = max(w.now, at)
		w.play(at, e)
		if done := w.sent - w.flying; progress != nil && done >= reported+1000 {
			reported = done
			if !progress(done) {
				return nil
			}
		}
	}
	if w.flying > 0 {
		return fmt.Errorf("virtual: %d requests never ended; this is a fault of windtunnel", w.flying)
	}
	return nil
}

func build(s *scenario.Scenario, rec flow.Recorder) (*world, error) {
	if len(s.Pools) != 1 {
		return nil, fmt.Errorf("virtual: expected one pool, the scenario has %d", len(s.Pools))
	}
	p := &s.Pools[0]
	if len(p.Endpoints) > 0 {
		return nil, fmt.Errorf("virtual: pool %s has endpoints that someone else runs; virtual time can only play simulated model servers (replicas)", p.Name)
	}
	w := &world{rec: rec, load: s.Generator(), draws: s.Draws(p), byAddr: map[string]*server{}, byName: map[string]*server{},
		timeout: machine.FromDuration(s.Workload.Timeout), requests: s.Workload.Requests, limit: s.Workload.Concurrency}
	w.stream = s.Stream(p)
	w.stream.Recorder = rec
	w.kv = newKVWire(w, p)
	var err error
	if w.faults, err = faultsOf(s, p); err != nil {
		return nil, err
	}
	var addresses, names []string
	for i := range p.Servers() {
		config, err := s.Engine(p, i)
		if err != nil {
			return nil, err
		}
		eng, err := engine.New(config)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		sv := &server{w: w, index: i, name: p.ServerName(i), endpoint: address(i), engine: eng, requests: map[engine.RequestID]*request{}}
		sv.killed = p.OutOfMemory()
		sv.steps = serving.EngineSteps{Recorder: rec, Endpoint: sv.endpoint, Detail: p.ModelServer.StepDetail()}
		sv.steps.Timer, _ = config.Timer.(*latency.Timer)
		w.servers = append(w.servers, sv)
		w.byAddr[sv.endpoint], w.byName[sv.name] = sv, sv
		if !p.Prefills(i) {
			addresses, names = append(addresses, sv.endpoint), append(names, sv.name)
		}
	}
	if err := w.sidecars(s, p); err != nil {
		return nil, err
	}
	if p.EPP.Config.Text == nil {
		w.picker = roundrobin.New(w.stream.Errors, addresses, names)
		return w, nil
	}
	if w.picking, err = newPicking(w, s, p); err == nil {
		w.queue.Push(scrapeInterval, machine.ClassTimer, event{kind: scrape})
	}
	return w, err
}

// address is a made-up one that looks like a pod's.
func address(i int) string { return fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250+1) }

func (w *world) play(at machine.Time, e event) {
	switch e.kind {
	case arrive:
		w.arrived()
	case wakeServer:
		e.server.wake(at)
	case wakeStream:
		e.request.wake(at)
	case wakePicker:
		w.picking.pump()
	case scrape:
		w.picking.scrape()
		if w.flying > 0 || w.sent < w.requests {
			w.queue.Push(at+scrapeInterval, machine.ClassTimer, event{kind: scrape})
		}
	case giveUp:
		e.request.giveUp()
	case sendKV:
		e.server.sendKV()
	case deliverKV:
		e.server.deliverKV()
	case retryPrefill:
		e.request.passage.play(e.request.passage.x.Advance(w.now))
	case wakeNetwork:
		w.wakeWires(at)
	case afterFault:
		e.request.taken()
	}
}

// arrived sends the next request, or lets it wait for the limit.
func (w *world) arrived() {
	if w.sent+w.overdue >= w.requests {
		return
	}
	if w.load.Rate > 0 {
		if next := w.sent + w.overdue + 1; next < w.requests {
			w.queue.Push(w.now+w.load.Gap(next), machine.ClassArrival, event{kind: arrive})
		}
		if w.flying >= w.limit {
			w.overdue++
			return
		}
	}
	w.send()
}

func (w *world) send() {
	r := &request{w: w, Request: w.load.Request(w.sent)}
	w.sent++
	w.flying++
	r.begin()
}

// ended is told when a request has its outcome; a closed loop then sends the
// next one.
func (w *world) ended() {
	w.flying--
	switch {
	case w.overdue > 0:
		w.overdue--
		w.send()
	case w.load.Rate == 0 && w.sent < w.requests:
		w.queue.Push(w.now, machine.ClassArrival, event{kind: arrive})
	}
}
