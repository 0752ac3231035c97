package stack

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/replicas"
)

// replicaSet is the servers of a deployment whose number changes, and the driver that decides how many run.
type replicaSet struct {
	of      *Pool
	d       *plan.Deployment
	leaving map[int]leaving                 // pods that finish their requests
	run     atomic.Pointer[replicas.Driver] // nil while the number is fixed
}

// leaving is a server that finishes its requests. Then cut receives how many of them were cut.
type leaving struct {
	kill context.CancelFunc
	cut  chan int
}

// newReplicaSets makes those of a pool whose servers come and go, and determines which servers are present at the
// start.
func (s *Pool) newReplicaSets() {
	if !s.pool.Lives {
		return
	}
	s.absent, s.lived = make([]bool, len(s.pool.Servers)), make([]bool, len(s.pool.Servers))
	for k := range s.pool.Deployments {
		d := &s.pool.Deployments[k]
		s.replicaSets = append(s.replicaSets, &replicaSet{of: s, d: d, leaving: map[int]leaving{}})
		for i := d.Config.Replicas; i < d.Config.Places; i++ {
			s.absent[d.First+i] = true
		}
	}
}

// ready are the addresses of the servers that pickers may choose from.
func (s *Pool) ready() (out []string) {
	for i, e := range s.Endpoints {
		if !s.isAbsent(i) {
			out = append(out, e)
		}
	}
	return out
}

func (s *Pool) isAbsent(i int) bool {
	s.lives.Lock()
	defer s.lives.Unlock()
	return s.absent != nil && s.absent[i]
}

// everThere says whether a server is or was an endpoint.
func (s *Pool) everThere(i int) bool {
	s.lives.Lock()
	defer s.lives.Unlock()
	return s.absent == nil || !s.absent[i] || s.lived[i]
}

// follow adds a server to the endpoints of Envoy and the pickers, or removes it: Envoy learns of a new one before a
// picker may choose it, and forgets one after no picker can.
func (s *Pool) follow(i int, absent bool) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	update := func() error {
		if s.updateEnvoy == nil {
			return nil
		}
		return s.updateEnvoy(s.ready())
	}
	s.lives.Lock()
	s.absent[i], s.lived[i] = absent, true
	s.lives.Unlock()
	var err error
	if !absent {
		err = update()
	}
	if err == nil {
		s.updatePickers()
	}
	if err == nil && absent {
		err = update()
	}
	if err == nil && s.o.EPP.given() {
		err = s.writeEndpoints()
	}
	return err
}

// updatePickers gives the pickers the endpoints that they may choose; the caller holds Pool.changing.
func (s *Pool) updatePickers() {
	for _, k := range s.Pickers {
		if !k.down {
			k.now().SetEndpoints(s.pickerEndpoints()) // each picker has its own list
		}
	}
}

// start lets the number of servers change from now on.
func (r *replicaSet) start() {
	s := r.of
	for i := range r.d.Config.Replicas {
		r.record(deployment.Effect{Kind: deployment.Started, Pod: i}, 0)
		r.record(deployment.Effect{Kind: deployment.Joined, Pod: i}, 0)
	}
	o := replicas.Options{Deployment: deployment.New(r.d.Config), Happens: r.happens,
		Scaler: r.d.Scaler, Scaled: r.scaled, Log: s.o.Log,
		Pickers: func() (out []replicas.Target) {
			for _, k := range s.Pickers {
				out = append(out, replicas.Target{Name: k.plan.Name, Address: k.Server().MetricsAddr()})
			}
			return out
		},
		Servers: func() (out []replicas.Target) {
			for i, name := range s.Names {
				t := replicas.Target{Name: name}
				if !s.isAbsent(i) {
					t.Address = s.Fleet.Servers()[i].Address()
				}
				out = append(out, t)
			}
			return out
		}}
	r.run.Store(replicas.Start(o))
}

// end fixes the number of servers.
func (r *replicaSet) end() {
	if run := r.run.Load(); run != nil {
		run.Stop()
		r.run.Store(nil)
	}
}

func (r *replicaSet) record(e deployment.Effect, cut int) {
	s, i := r.of, r.d.First+e.Pod
	if step, details := e.Recorded(r.d.Config.Name, s.Names[i], cut); step != "" {
		s.Happens(record.Event{Hop: record.Server, Step: step, Endpoint: s.Endpoints[i], Details: details})
	}
}

// happens carries out an effect on a server.
func (r *replicaSet) happens(e deployment.Effect) {
	s, i := r.of, r.d.First+e.Pod
	var err error
	cut := 0
	switch e.Kind {
	case deployment.Joined:
		if err = s.join(i); err == nil {
			err = s.follow(i, false)
		}
	case deployment.Left:
		if e.Was {
			err = s.follow(i, true)
		}
	case deployment.Stopped:
		r.stop(e.Pod)
	case deployment.Killed:
		if x, ok := r.leaving[e.Pod]; ok {
			x.kill()
			cut = <-x.cut
			delete(r.leaving, e.Pod)
		}
	case deployment.Ended:
		delete(r.leaving, e.Pod)
	}
	r.record(e, cut)
	if err != nil {
		s.o.Log.Error("a change of the number of servers failed", "server", s.Names[i], "error", err)
	}
}

// join restarts the server with this index.
func (s *Pool) join(i int) error {
	s.hold(i, false, nil)
	if err := s.Fleet.Servers()[i].Join(); err != nil {
		return err
	}
	s.setKilled(i, false)
	if s.Pods[i].Sidecar != nil {
		return s.Pods[i].RestartSidecar()
	}
	return nil
}

// stop lets a server finish its requests.
func (r *replicaSet) stop(pod int) {
	s, i, run := r.of, r.d.First+pod, r.run.Load()
	car := s.Pods[i].Sidecar // which may still have to send a decode leg
	killed, kill := context.WithCancel(context.Background())
	x := leaving{kill, make(chan int, 1)}
	r.leaving[pod] = x
	run.Go(func(ctx context.Context) {
		defer kill()
		defer context.AfterFunc(ctx, kill)()
		for car != nil && car.InFlight() > 0 && killed.Err() == nil {
			pause.For(killed, 10*time.Millisecond)
		}
		x.cut <- s.Fleet.Servers()[i].Leave(killed)
		if killed.Err() == nil {
			run.Input(deployment.Idle{Pod: pod})
		}
	})
}

// scaled records a new number of servers.
func (r *replicaSet) scaled(e autoscaler.Effect) {
	r.of.Happens(record.Event{Hop: record.Server, Step: record.Scaled, Details: e.Details(r.d.Config.Name)})
}
