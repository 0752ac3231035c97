package epp

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
)

// Service models the time that a picker itself spends on each request. Its workers handle requests in the order of
// arrival. It stands before the Machine's Door: the driver submits a request (Arrive) when its service time is over, so
// that the decision uses what is known then. It is a machine.Machine[*Request, *machine.Effects[Attended]].
type Service struct {
	c       ServiceConfig
	now     machine.Time
	waiting []*Request
	working machine.Queue[*Request]
	busy    machine.Time // of all workers, with the whole time of requests that have begun
}

// ServiceConfig is the distribution of a picker's service time, in seconds, and its number of workers.
type ServiceConfig struct {
	Takes   dist.Dist
	Workers int // at least 1
	// Seed and the request's id determine its service time.
	Seed uint64
}

// Given reports whether a picker takes any time.
func (c *ServiceConfig) Given() bool { return c.Takes.Quantile(1) > 0 }

// Attended reports that a request's service time is over.
type Attended struct {
	At      machine.Time
	Request *Request
}

// Due returns the time at which the service time ended.
func (a Attended) Due() machine.Time { return a.At }

// NewService returns an idle Service.
func NewService(c ServiceConfig) *Service { return &Service{c: c} }

// Input takes a request.
func (s *Service) Input(now machine.Time, r *Request, fx *machine.Effects[Attended]) {
	s.Advance(now, fx)
	if s.working.Len() < s.c.Workers {
		s.serve(s.now, r)
		return
	}
	s.waiting = append(s.waiting, r)
}

func (s *Service) serve(at machine.Time, r *Request) {
	d := machine.DrawFor(s.c.Seed, "epp", "service", r.ID)
	takes := max(0, s.c.Takes.SampleTime(&d))
	s.busy += takes
	s.working.Push(at.Add(takes), machine.ClassTimer, r)
}

// Busy returns the share of its workers' time that requests took until now, from 0 to 1.
func (s *Service) Busy(now machine.Time) float64 {
	if now <= 0 {
		return 0
	}
	return min(1, float64(s.busy)/float64(now)/float64(s.c.Workers))
}

// Next returns when the next request's service time is over.
func (s *Service) Next() (machine.Time, bool) { return s.working.Next() }

// Advance emits the requests whose service time is over by now.
func (s *Service) Advance(now machine.Time, fx *machine.Effects[Attended]) {
	for {
		at, ok := s.working.Next()
		if !ok || at > now {
			break
		}
		_, r := s.working.Pop()
		fx.Add(Attended{at, r})
		if len(s.waiting) > 0 {
			s.serve(at, s.waiting[0])
			s.waiting[0] = nil
			s.waiting = s.waiting[1:]
		}
	}
	s.now = max(s.now, now)
}
