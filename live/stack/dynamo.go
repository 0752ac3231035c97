package stack

import (
	"context"
	"net/http"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	live "github.com/windtunnel/windtunnel/live/dynamo"
)

// startFrontend starts the Dynamo frontend of a scenario that has one, and the announcements of the model servers.
func (s *Pool) startFrontend(ctx context.Context) error {
	d := s.pool.Frontend
	if d == nil {
		return nil
	}
	if err := s.reviveFrontend(s.o.at(s.o.Ports.Frontend, 0, 0, anyPort)); err != nil {
		return err
	}
	a, err := live.Announce(ctx, s.frontend.Addr(), d.PushInterval, s.pushes, s.o.Log)
	if err == nil {
		s.announcer.Store(a)
	}
	return err
}

// changes pushes the state of a server when the number of its requests changes.
func (s *Pool) changes(name string) func() {
	id := dynamo.IDOf(name)
	return func() {
		if a := s.announcer.Load(); a != nil {
			a.Changed(id)
		}
	}
}

// reviveFrontend starts it without any knowledge.
func (s *Pool) reviveFrontend(at string) error {
	s.changing.Lock() // a picker's new configuration reads its address
	defer s.changing.Unlock()
	d := s.pool.Frontend
	frontend, err := live.Start(live.Options{Address: at, Router: d.NewRouter(), Model: s.pool.Model(),
		BlockSize: d.Router.BlockSize, RoundTrip: d.RoundTrip,
		Tokens: func(path string, h http.Header, body []byte) ([]uint32, error) {
			return s.Fleet.Servers()[0].Tokens(path, h, body)
		},
		MaxBodyBytes: int64(s.pool.Picker.MaxBodyBytes) + 1<<16, Now: s.Now, Log: s.o.Log})
	if err == nil { // otherwise the lost one still has the address
		s.frontend, s.lost = frontend, false
	}
	return err
}

// pushes are the current announcements of all workers.
func (s *Pool) pushes() []dynamo.Worker {
	out := []dynamo.Worker{}
	for i, server := range s.Fleet.Servers() {
		if st, blocks, alive := server.Holds(); alive && !s.isAbsent(i) {
			out = append(out, s.pool.Servers[i].Worker(st, blocks))
		}
	}
	return out
}

// killFrontend ends it like a crash, which cuts its requests.
func (s *Pool) killFrontend() error {
	s.changing.Lock()
	s.lost = true
	s.changing.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return s.frontend.Stop(ctx)
}

func (s *Pool) stopFrontend(ctx context.Context) error {
	if a := s.announcer.Load(); a != nil {
		a.Stop()
	}
	if s.frontend == nil {
		return nil
	}
	return s.frontend.Stop(ctx)
}

// router is the pool's Dynamo router as the frontends before its model servers ask it.
type router struct{ s *Pool }

// now is the frontend whose router it is; nil while there is none.
func (r router) now() *live.Server {
	r.s.changing.Lock()
	defer r.s.changing.Unlock()
	if r.s.lost {
		return nil
	}
	return r.s.frontend
}

func (r router) Route(id string, tokens []uint32) (worker, prefill string) {
	if f := r.now(); f != nil {
		return f.Route(id, tokens)
	}
	return "", ""
}

func (r router) ReportProgress(id string, over bool) {
	if f := r.now(); f != nil {
		f.ReportProgress(id, over)
	}
}
