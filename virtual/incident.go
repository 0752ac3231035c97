package virtual

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
)

// incident is an incident of a pool.
type incident struct {
	*plan.Incident
	pool *pool
}

// happen plays the incident, unless all requests have ended.
func (x *incident) happen() {
	w := x.pool.w
	if !w.busy() {
		return
	}
	x.record(record.IncidentBegan)
	x.went(x.Apply(x.pool.Pool, x.pool))
	if x.For > 0 {
		w.queue.Push(w.now.Add(machine.FromDuration(x.For)), machine.ClassTimer, event{then, x.recover})
	}
}

// recover ends an incident.
func (x *incident) recover() {
	if x.pool.w.busy() {
		x.record(record.IncidentEnded)
	}
	x.went(x.Revert(x.pool))
}

// went panics after an error: the plan only has incidents that can happen.
func (x *incident) went(err error) {
	if err != nil {
		panic(fmt.Sprintf("virtual: %s: %v", x.Kind, err))
	}
}

func (x *incident) record(step record.Step) {
	if w := x.pool.w; w.rec != nil {
		w.rec.Record(x.Event(w.now, step, x.pool.servers[x.Server].endpoint))
	}
}

// The pool is a plan.Victim.

func (x *pool) Control(server int, c engine.Control) error {
	x.servers[server].control(c)
	x.check()
	return nil
}

func (x *pool) SlowMetrics(server int, delay time.Duration) error {
	x.servers[server].delay = machine.FromDuration(delay)
	return nil
}

func (x *pool) LoseTransfers(server int, stay bool) {
	x.net.input(enginecore.Break{Of: server, Stay: stay})
}
func (x *pool) MendTransfers(server int) { x.net.input(enginecore.Mend{Of: server}) }

func (x *pool) AddServers(index, n int) {
	f := x.replicaSets[index]
	f.input(deployment.Scale{Replicas: f.m.Status().Wanted + n})
}

// Drain makes a server leave. An autoscaler replaces it.
func (x *pool) Drain(index, pod int, grace machine.Time) {
	f := x.replicaSets[index]
	f.input(deployment.Evict{Pod: pod, Grace: grace, Replace: f.scaler != nil})
}

func (x *pool) LoseIndexes() {
	for _, k := range x.pickers {
		k.Input(epp.LoseIndexes{})
	}
}

func (x *pool) StopPicker(replica int)        { x.pickers[replica].kill() }
func (x *pool) StartPicker(replica int) error { return x.pickers[replica].revive() }

func (x *pool) StopFrontend() error {
	x.frontend.kill()
	return nil
}

func (x *pool) StartFrontend() error {
	x.frontend.start(x.w)
	return nil
}

// RestartSidecar breaks off a sidecar's requests, and restarts it without its sessions.
func (x *pool) RestartSidecar(server int) error {
	car := x.servers[server].sidecar
	car.breakOff()
	return car.forget(x.Sidecars.Sessions)
}

// breakOff breaks off a sidecar's requests.
func (x *sidecar) breakOff() {
	for _, p := range x.serves() {
		p.leave("the client left")
		p.r.lost()
	}
}

// KillServer ends a server's process. Sidecars and pickers find out by themselves, and Envoy by its health checks.
func (x *pool) KillServer(server int) error {
	sv := x.servers[server]
	if sv.gone() {
		return nil
	}
	sv.kill()
	sv.killed = true
	x.check()
	return nil
}

// StartServer begins another process, unless a Deployment has done so.
func (x *pool) StartServer(server int) error {
	if sv := x.servers[server]; sv.killed && !sv.gone() {
		sv.restart()
	}
	x.servers[server].killed = false
	x.check()
	return nil
}

func (x *pool) PauseServer(server int, stopped bool) { x.servers[server].pause(stopped) }

func (x *pool) PausePicker(replica int, stopped bool) {
	if k := x.pickers[replica]; !k.down {
		k.pause(stopped)
	}
}

func (x *pool) FalsifyMetrics(server int, yes bool) {
	sv := x.servers[server]
	sv.idleLook, sv.pages = yes, nil
}

func (x *pool) LoseEvents(server int, yes bool) { x.servers[server].mute = yes }

// JumpClock makes everything that was due meanwhile late.
func (x *pool) JumpClock(by time.Duration) error {
	x.w.now = x.w.now.Add(machine.FromDuration(by))
	return nil
}

func (x *pool) ServerConnections(server int) plan.Connections { return &x.servers[server].connections }
func (x *pool) PickerConnections(replica int) plan.Connections {
	return &x.pickers[replica].connections
}
func (x *pool) ClientConnections() plan.Connections { return clientConnections{x.w} }

// connections are those to a server, or from Envoy to a picker: a plan.Connections.
type connections struct {
	cut      bool         // new ones are refused
	late     machine.Time // further time of each message on them
	breakAll func()
	changed  func() // Envoy finds out by its health checks
}

func (c *connections) Cut(stay bool) error {
	c.breakAll()
	c.cut = stay
	c.changed()
	return nil
}

func (c *connections) Mend() error {
	c.cut = false
	c.changed()
	return nil
}

func (c *connections) Delay(by time.Duration) error {
	c.late = machine.FromDuration(by)
	return nil
}

// clientConnections are those of all clients to Envoy: a plan.Connections.
type clientConnections struct{ w *world }

func (x clientConnections) Cut(bool) error {
	open := slices.SortedFunc(maps.Keys(x.w.open), func(a, b *request) int { return cmp.Compare(a.Index, b.Index) })
	for _, r := range open {
		f := r.facts()
		r.finish(f.Broke("the connection to Envoy broke"))
		r.left()
	}
	return nil
}

func (x clientConnections) Mend() error { return nil }

func (x clientConnections) Delay(by time.Duration) error {
	x.w.late = machine.FromDuration(by)
	return nil
}
