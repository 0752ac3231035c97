package modelserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
	"github.com/windtunnel/windtunnel/live/modelserver/kvtransfer"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Fleet is a number of model servers in one process.
type Fleet struct {
	servers  []*Server
	network  *kvtransfer.Network
	log      *slog.Logger
	serving  serve.Group
	stopOnce sync.Once
}

// New checks the options and builds the servers. They do not listen yet.
func New(o Options) (*Fleet, error) {
	if o.Origin.IsZero() {
		o.Origin = time.Now()
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	f := &Fleet{log: o.Logger, serving: serve.Group{Log: o.Logger}}
	clock := drive.Since(o.Origin)
	var errs []error
	for i, so := range o.Servers {
		s, err := newServer(&o, so, i, clock)
		if err != nil {
			errs = append(errs, fmt.Errorf("server %d (%s): %w", i, so.Name, err))
			continue
		}
		s.fleet, s.serving = f, &f.serving
		f.servers = append(f.servers, s)
	}
	var engines []*enginedrive.Engine
	for _, s := range f.servers {
		engines = append(engines, s.engine)
	}
	o.Transfer.Seed = o.Seed
	n, err := kvtransfer.NewNetwork(o.Transfer, engines, clock)
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	f.network = n
	for _, s := range f.servers {
		s.reader.Connector = *n.Profile()
		host, _, _ := net.SplitHostPort(s.opts.Listen)
		s.kv = kvtransfer.New(s.ctx, n,
			kvtransfer.Options{Name: s.name, Engine: s.engine, Profile: n.Profile(), KVRole: s.opts.KVRole,
				EngineID: s.reader.EngineID,
				Keeps:    s.cfg.KVHoldTimeout, ListenHost: host, SideChannel: s.opts.SideChannel,
				Meeting:   s.opts.Meeting,
				Announced: s.serving, Log: s.log})
	}
	return f, errors.Join(errs...)
}

// Start listens on every address and serves until Stop, or until ctx ends. After an error, no server listens.
func (f *Fleet) Start(context.Context) error {
	for _, s := range f.servers {
		if err := s.listen(); err != nil {
			for _, l := range f.servers {
				l.abandon()
			}
			f.serving.Wait()
			return fmt.Errorf("model server %s: %w", s.name, err)
		}
	}
	for _, s := range f.servers {
		s.serve()
	}
	return nil
}

// Servers returns the servers in the order of Options.
func (f *Fleet) Servers() []*Server { return f.servers }

// Addresses returns the servers' listening addresses, once they have started.
func (f *Fleet) Addresses() []string {
	var out []string
	for _, s := range f.servers {
		out = append(out, s.Address())
	}
	return out
}

// Stop takes no new connections, lets requests in flight finish until ctx ends, and then cuts the rest. When it
// returns, no goroutine of the fleet runs.
func (f *Fleet) Stop(ctx context.Context) {
	f.stopOnce.Do(func() { f.stop(ctx) })
}

func (f *Fleet) stop(ctx context.Context) {
	done := make(chan struct{})
	for _, s := range f.servers {
		go func() { s.stop(ctx); done <- struct{}{} }()
	}
	for range f.servers {
		<-done
	}
	f.serving.Wait()
	f.network.Stop()
}

// LoseTransfers loses the KV caches that are on their way to or from a server and, with stay, those whose transfer
// starts before MendTransfers.
func (f *Fleet) LoseTransfers(server int, stay bool) {
	f.network.Send(enginecore.Break{Of: server, Stay: stay})
}

// MendTransfers ends the losses that LoseTransfers began.
func (f *Fleet) MendTransfers(server int) { f.network.Send(enginecore.Mend{Of: server}) }

// Failed delivers the error of the first server that ended by itself.
func (f *Fleet) Failed() <-chan error { return f.serving.Failed() }

// Load returns the load of the server's engine up to now, and false after Stop.
func (s *Server) Load() (l engine.Load, ok bool) {
	ok = s.engine.With(func(now machine.Time) { l = s.engine.Core.Engine().Load(now) })
	return l, ok
}

// Holds returns the engine's counters and the number of KV blocks in use. It returns false while the engine is dead,
// and after Stop.
func (s *Server) Holds() (st engine.Stats, blocks int, alive bool) {
	s.engine.With(func(machine.Time) {
		st, blocks, alive = s.engine.Core.Engine().Stats(), s.engine.Core.Engine().KVBlocksUsed(), !s.engine.Core.Dead()
	})
	return st, blocks, alive
}
