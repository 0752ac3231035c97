package stack

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/envoy"
	"github.com/windtunnel/windtunnel/live/replicas"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// fleet is servers of a pool that come and go, with what decides how many there are.
type fleet struct {
	of      *Pool
	d       *plan.Deployment
	leaving map[int]leaving // pods that finish what they have

	mu  sync.Mutex
	run *replicas.Driver // nil where nothing comes or goes
}

// leaving is a server that finishes what it has; cut is how many requests broke off, once gone
// is closed.
type leaving struct {
	kill context.CancelFunc
	gone chan struct{}
	cut  *int
}

// newFleets are those of a pool whose servers come and go; which are there at first is known
// from then on.
func (s *Pool) newFleets() {
	if !s.pool.Lives {
		return
	}
	s.absent, s.lived = make([]bool, len(s.pool.Servers)), make([]bool, len(s.pool.Servers))
	for k := range s.pool.Deployments {
		d := &s.pool.Deployments[k]
		f := &fleet{of: s, d: d, leaving: map[int]leaving{}}
		s.fleets = append(s.fleets, f)
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

// everThere says whether a server has been an endpoint at some time.
func (s *Pool) everThere(i int) bool {
	s.lives.Lock()
	defer s.lives.Unlock()
	return s.absent == nil || !s.absent[i] || s.lived[i]
}

// endpointsFileOfEnvoy is where Envoy reads a pool's endpoints, where it has to know those that
// come and go; "" where it need not.
func (s *Pool) endpointsFileOfEnvoy() string {
	if s.fleets == nil || !s.pool.Picker.Asking.FailOpen && s.pool.Picked() {
		return ""
	}
	return filepath.Join(s.Dir, "endpoints-"+s.pool.Name+".yaml")
}

// follow has a server be an endpoint, or none any more, for Envoy and the pickers: Envoy
// knows one before a picker may choose it, and forgets it afterwards.
func (s *Pool) follow(i int, absent bool) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	tell := func() error {
		if s.tellEnvoy != nil {
			return s.tellEnvoy(s.ready())
		}
		if file := s.endpointsFileOfEnvoy(); file != "" {
			return envoy.WriteEndpoints(file, s.pool.Name, s.ready())
		}
		return nil
	}
	s.lives.Lock()
	s.absent[i], s.lived[i] = absent, true
	s.lives.Unlock()
	if !absent {
		if err := tell(); err != nil {
			return err
		}
	}
	err := s.tellPickers()
	if err == nil && absent {
		err = tell()
	}
	if err == nil && s.o.EPP.given() {
		err = s.writeEndpoints()
	}
	return err
}

// tellPickers tells which endpoints may be chosen; Pool.changing is around it.
func (s *Pool) tellPickers() error {
	for _, k := range s.Pickers {
		list, err := s.pickerEndpoints() // each picker has its own
		if err != nil {
			return err
		}
		if !k.down {
			k.now().SetEndpoints(list)
		}
	}
	return nil
}

// begin has servers come and go from now on.
func (f *fleet) begin() {
	s := f.of
	for i := range f.d.Config.Replicas {
		f.record(deployment.Effect{Kind: deployment.Started, Pod: i}, 0)
		f.record(deployment.Effect{Kind: deployment.Joined, Pod: i}, 0)
	}
	o := replicas.Options{Deployment: deployment.New(f.d.Config), Happens: f.happens,
		Scaler: f.d.Scaler, Scaled: f.scaled, Log: s.o.Log,
		Pickers: func() (out []replicas.Target) {
			for _, k := range s.Pickers {
				out = append(out, replicas.Target{Name: k.plan.Name, Address: k.MetricsAddr()})
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
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run = replicas.Start(o)
}

// driver is what has servers come and go; nil where nothing does.
func (f *fleet) driver() *replicas.Driver {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.run
}

// end lets nothing come or go any more.
func (f *fleet) end() {
	if run := f.driver(); run != nil {
		run.Stop()
		f.mu.Lock()
		f.run = nil
		f.mu.Unlock()
	}
}

func (f *fleet) record(e deployment.Effect, cut int) {
	s, i := f.of, f.d.First+e.Pod
	if step, details := e.Recorded(f.d.Config.Name, s.Names[i], cut); step != "" && s.o.Recorder != nil {
		s.o.Recorder.Record(record.Event{Time: s.Now(), Hop: record.Server, Step: step, Endpoint: s.Endpoints[i],
			Details: details})
	}
}

// happens carries out what happens to a server.
func (f *fleet) happens(e deployment.Effect) {
	s, i := f.of, f.d.First+e.Pod
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
		f.stop(e.Pod)
	case deployment.Killed:
		if x, ok := f.leaving[e.Pod]; ok {
			x.kill()
			<-x.gone
			cut = *x.cut
			delete(f.leaving, e.Pod)
		}
	case deployment.Ended:
		delete(f.leaving, e.Pod)
	}
	f.record(e, cut)
	if err != nil {
		s.o.Log.Error("a server did not come or go as it should", "server", s.Names[i], "error", err)
	}
}

// join has the server with this index begin anew.
func (s *Pool) join(i int) error {
	if err := s.Fleet.Servers()[i].Join(); err != nil {
		return err
	}
	if i < len(s.Sidecars) {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		return s.restartSidecar(now, i)
	}
	return nil
}

// stop has a server finish what it has.
func (f *fleet) stop(pod int) {
	s, i, run := f.of, f.d.First+pod, f.driver()
	var car *sidecar.Sidecar // which may have a decode leg still to send
	if i < len(s.Sidecars) {
		car = s.Sidecars[i]
	}
	killed, kill := context.WithCancel(context.Background())
	x := leaving{kill, make(chan struct{}), new(int)}
	f.leaving[pod] = x
	run.Go(func(ctx context.Context) {
		defer kill()
		defer context.AfterFunc(ctx, kill)()
		for car != nil && car.InFlight() > 0 && killed.Err() == nil {
			pause.For(killed, 10*time.Millisecond)
		}
		*x.cut = s.Fleet.Servers()[i].Leave(killed)
		close(x.gone)
		if killed.Err() == nil {
			run.Tell(deployment.Idle{Pod: pod})
		}
	})
}

// scaled records another number of servers.
func (f *fleet) scaled(e autoscaler.Effect) {
	if s := f.of; s.o.Recorder != nil {
		s.o.Recorder.Record(record.Event{Time: s.Now(), Hop: record.Server, Step: record.Scaled,
			Details: e.Details(f.d.Config.Name)})
	}
}
