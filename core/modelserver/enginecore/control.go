package enginecore

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// life is the Core's state of service.
type life struct {
	controls []*Control // not answered yet
	dead     bool
	sleeps   int
}

// Dead reports whether the server is unhealthy: the engine has crashed, has lost a rank, or never fitted into its
// memory.
func (s *Core) Dead() bool { return s.dead || s.c.OutOfMemory != nil }

// SleepLevel returns the level of sleep; 0 is awake.
func (l *life) SleepLevel() int { return l.sleeps }

// CheckFailure returns the reason why a Control is not a valid failure of this server.
func (c *Config) CheckFailure(f engine.Control) error {
	if f.Op == engine.OpPace || f.Op == engine.OpCrash || f.Op == engine.OpFailRank && f.Rank >= 0 &&
		f.Rank < max(1, c.Ranks) {
		return nil
	}
	return fmt.Errorf("operation %v on rank %d is no failure of an engine with %d ranks", f.Op, f.Rank, max(1, c.Ranks))
}

func (s *Core) control(m *Control) {
	if m.Op == engine.OpFailRank && s.c.CheckFailure(m.Control) != nil {
		s.do(nil, Controlled{m, false})
		return
	}
	s.controls = append(s.controls, m)
	s.input(m.Control)
}

// controlled answers the oldest Control that waits for this operation.
func (s *Core) controlled(f *engine.Effect) {
	i := slices.IndexFunc(s.controls, func(m *Control) bool { return m.Op == f.Op })
	if i < 0 {
		return
	}
	m, done := s.controls[i], f.Kind == engine.ControlDone
	s.controls = slices.Delete(s.controls, i, i+1)
	if done {
		switch m.Op {
		case engine.OpCrash, engine.OpFailRank:
			s.dead = true
		case engine.OpRestart:
			s.dead, s.sleeps = false, 0
		case engine.OpSleep:
			s.sleeps = max(1, m.Level)
		case engine.OpWake:
			s.sleeps = 0
		}
	}
	s.do(nil, Controlled{m, done})
}

// A server that does not fit into its memory is killed while it starts, and Kubernetes restarts it: at once, and then
// after pauses that double from 10 s to 5 min (CrashLoopBackOff). It never serves.
const (
	firstBackOff = 10 * machine.Second
	lastBackOff  = 300 * machine.Second
)

// Kills returns the number of times that such a server was killed within a time after its first start, and the pause
// after the last time.
func Kills(since machine.Time) (n int, backOff machine.Time) {
	for at := machine.Time(0); at <= since; at += backOff {
		n, backOff = n+1, min(max(firstBackOff, 2*backOff), lastBackOff)
	}
	return n, backOff
}

// Refuses returns the answer to every request at a server that was started at the beginning of time and does not fit
// into its memory; nil if the server fits.
func (s *Core) Refuses(now machine.Time) *openai.Error {
	if s.c.OutOfMemory == nil {
		return nil
	}
	n, _ := Kills(now)
	return openai.Errorf(503, "", "OOMKilled (CrashLoopBackOff, %d restarts): %v.", n-1, s.c.OutOfMemory)
}
