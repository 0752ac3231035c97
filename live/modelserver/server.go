package modelserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
	"github.com/windtunnel/windtunnel/live/modelserver/enginedrive"
	"github.com/windtunnel/windtunnel/live/modelserver/grpcapi"
	"github.com/windtunnel/windtunnel/live/modelserver/kvtransfer"
	"github.com/windtunnel/windtunnel/live/modelserver/stored"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Server is one simulated model server.
type Server struct {
	name     string
	opts     ServerOptions
	seed     uint64
	index    int
	cfg      engine.Config // with defaults
	clock    func() machine.Time
	recorder record.Recorder
	log      *slog.Logger
	engine   *enginedrive.Engine
	draws    atomic.Pointer[lifecycle.Draws]
	listening
	inFlight gauge
	started  time.Time
	exposed  stats.Server // what the metrics page says of the server
	adapters adapters
	store    *stored.Store
	reader   modelserver.Reader

	fleet     *Fleet
	kv        *kvtransfer.End
	publisher KVPublisher
	feed      *grpcapi.Feed // nil without a publisher
	seen      seenMedia
	leaving   chan struct{} // closed when the server begins to stop
	watches   *bodyWatches
	injector  injector
	shown
	crashes sync.WaitGroup
	ctx     context.Context // ends when the server stops
	cancel  context.CancelFunc

	imagePercent atomic.Int32 // percentage of chats, see ServerOptions.ImagePercent
}

// listening is a server's listeners, and the address by which others reach it.
type listening struct {
	http     *http.Server
	listener net.Listener
	also     net.Listener // for ServerOptions.ListenAlso, or nil
	endpoint string       // host and port that the server gives to others, set once it listens
	served   bool
	serving  *serve.Group // the fleet's
}

// shown holds the parts of a server's metrics page that do not come from its engine.
type shown struct {
	pages   pageCache
	traffic traffic
	fake    atomic.Pointer[stats.FakeMetrics]
}

func newServer(o *Options, so ServerOptions, index int, clock func() machine.Time) (*Server, error) {
	so.Listen = cmp.Or(so.Listen, "127.0.0.1:0")
	if len(so.Models) == 0 {
		so.Models = []string{modelserver.DefaultModel}
	}
	so.MaxBodyBytes = cmp.Or(so.MaxBodyBytes, DefaultMaxBody)
	so.Version = cmp.Or(so.Version, DefaultVersion)
	so.Tokenizer = cmp.Or[tokens.Tokenizer](so.Tokenizer, tokens.Packed{})
	so.Engine.KVEvents = so.Engine.KVEvents || so.KVEvents != nil || so.KVCacheMetricsSample > 0
	so.Engine.Seed, so.Engine.Index = o.Seed, uint64(index)
	loading := []any{"server", so.Name, "model", so.Models[0], "tensor_parallel_size", max(1, so.TensorParallel)}
	if timer, ok := so.Engine.Timer.(*latency.Timer); ok && timer.Hardware() != nil {
		loading = append(loading, "weights_gib", float64(timer.Hardware().WeightBytes())/(1<<30))
	}
	o.Logger.Info("Loading model", loading...)
	var known adapters
	for _, a := range so.Adapters {
		so.Engine.Adapters = append(so.Engine.Adapters, known.add(a))
	}
	engineID := modelserver.EngineID(o.Seed, index)
	core, err := enginecore.New(
		enginecore.Config{Engine: so.Engine, Index: index, EngineID: engineID, ViaStore: o.Transfer.Profile.ViaStore,
			PeerTimeout: machine.FromDuration(so.PeerTimeout), Ranks: so.TensorParallel, Publish: so.KVEvents != nil,
			OutOfMemory:  so.OutOfMemory,
			SampleBlocks: so.KVCacheMetricsSample})
	if err != nil {
		return nil, err
	}
	s := &Server{name: so.Name, opts: so, seed: o.Seed, index: index, cfg: core.Engine().Config(), clock: clock,
		started: time.Now(), recorder: o.Recorder, log: o.Logger, listening: listening{endpoint: so.Listen}}
	s.reader = modelserver.Reader{State: state{s}, Config: &modelserver.Config{
		Seed: o.Seed, Engine: s.cfg, Models: so.Models, Tokenizer: so.Tokenizer,
		Template: tokens.TemplateFor(so.Models[0]), ChatTemplate: so.ChatTemplate,
		Vocabulary: tokens.NewVocabulary(so.Tokenizer),
		Content:    so.Content, Dataset: so.Dataset, Tools: so.Tools, IgnoreFaultHeader: so.Faults.IgnoreHeader,
		CacheHitThreshold: so.CacheHitThreshold,
		Dimensions:        so.Dimensions, EncoderOnly: so.EncoderOnly, Omni: so.Omni, ImageTime: so.ImageTime,
		PromptTokensDetails: so.PromptTokensDetails, StoreResponses: so.StoreResponses,
		FullStatus: so.FullStatus, KVRole: so.KVRole, KVPeers: so.KVPeers, EngineID: engineID,
		TensorParallel: so.TensorParallel,
		Forms:          &forms{kept: modelserver.NewForms()},
	}}
	s.exposed = stats.Server{Engine: s.cfg, Model: so.Models[0], MemoryBytes: so.MemoryBytes,
		TensorParallel: so.TensorParallel, SpeculativeTokens: so.SpeculativeTokens,
		Transfers: o.Transfer.Profile.Metrics, KVConsumer: so.KVRole != connector.RoleProducer}
	if so.SGLang {
		s.exposed.SGLang = sglangType(so.KVRole)
	}
	s.adapters.known, s.adapters.next = known.known, known.next
	s.store, s.leaving = stored.New(so.MaxBodyBytes, so.StoreResponses), make(chan struct{})
	s.watches = newBodyWatches(s.leaving)
	if so.KVEvents != nil {
		s.feed = new(grpcapi.Feed)
	}
	s.draws.Store(&lifecycle.Draws{Seed: o.Seed, Prefill: so.Prefill, TokenTime: so.TokenTime,
		OutputTokens: so.OutputTokens})
	s.engine = enginedrive.New(core, clock, s.act)
	if timer, ok := so.Engine.Timer.(*latency.Timer); ok {
		s.engine.Steps.Timer = timer
	}
	s.engine.Changed = so.Changed
	s.engine.Steps.Recorder, s.engine.Steps.Detail = o.Recorder, so.Steps
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = s.server()
	s.SetFakeMetrics(so.FakeMetrics)
	s.imagePercent.Store(int32(so.ImagePercent))
	return s, s.Inject(so.Faults.Inject)
}

// server returns a new HTTP server. An http.Server that was shut down cannot serve again.
func (s *Server) server() *http.Server {
	return serve.Requests(s.guard(s.measured(s.direct(s.routes()))), s.opts.Body, s.opts.TLS, s.log)
}

// Name returns the name that log lines use.
func (s *Server) Name() string { return s.name }

// Reader returns the reader of the server's requests.
func (s *Server) Reader() *modelserver.Reader { return &s.reader }

// Address returns the address where others reach the server, host:port. Before Start, it returns the configured
// address.
func (s *Server) Address() string { return s.endpoint }

// URL returns the base of the server's API.
func (s *Server) URL() string {
	if s.opts.TLS != nil {
		return "https://" + s.endpoint
	}
	return "http://" + s.endpoint
}

func (s *Server) listen() error {
	l, err := s.listenAt(s.opts.Listen)
	if err != nil {
		return err
	}
	s.listener = l
	if s.opts.ListenAlso != "" {
		if s.also, err = s.listenAt(s.opts.ListenAlso); err != nil {
			return err
		}
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if host, err = serve.Advertised(host, s.opts.Advertise, noEnvironment); err != nil {
		return err
	}
	s.endpoint = net.JoinHostPort(host, port)
	s.engine.Steps.Endpoint = s.endpoint
	if err := s.kv.Open(host); err != nil {
		return err
	}
	if s.opts.KVEvents != nil {
		if s.publisher, err = s.opts.KVEvents(s.opts.Models[0], s.endpoint); err != nil {
			return fmt.Errorf("KV events: %w", err)
		}
	}
	return nil
}

func (s *Server) listenAt(address string) (net.Listener, error) {
	l, err := serve.Listen("a model server", address)
	if err != nil {
		return nil, err
	}
	return s.opts.Line.Listener(l), nil
}

// noEnvironment hides the environment from a reader, because the options already have its values.
func noEnvironment(string) (string, bool) { return "", false }

// abandon undoes listen.
func (s *Server) abandon() {
	if s.listener != nil {
		_ = s.listener.Close() // the caller returns the error that led here
	}
	if s.also != nil {
		_ = s.also.Close()
	}
	s.cancel()
	s.kv.Close()
	if s.publisher != nil {
		s.publisher.Close()
	}
}

func (s *Server) serve() {
	s.served = true
	if s.opts.OutOfMemory != nil {
		s.crashes.Go(s.crashLoop)
	}
	s.accept()
}

// accept serves the listeners until the server is shut down.
func (s *Server) accept() {
	server := s.http
	s.serving.Go("model server "+s.name+" at "+s.listener.Addr().String(),
		func() error { return serve.On(server, s.listener, s.opts.TLS != nil) })
	if l := s.also; l != nil {
		s.serving.Go("model server "+s.name+" at "+l.Addr().String(), func() error { return server.Serve(l) })
	}
	s.log.Debug("model server listens", "server", s.name, "address", s.endpoint, "models", s.opts.Models)
}

func (s *Server) stop(ctx context.Context) {
	if !s.served {
		return
	}
	close(s.leaving)
	s.engine.Send(&enginecore.Control{Control: engine.Control{Op: engine.OpDrain}})
	_ = serve.Stop(ctx, s.http) // an error of closing an unused server
	s.inFlight.wait()
	s.cancel()
	s.crashes.Wait()
	s.engine.Stop()
	s.kv.HungUp()
	s.kv.Close()
	if s.publisher != nil {
		s.publisher.Close()
	}
}

// act carries out an effect that concerns no request. The caller holds the engine's lock.
func (s *Server) act(e *enginecore.Effect) {
	if x, ok := e.Do.(enginecore.Event); ok {
		s.publish(x.Event)
		return
	}
	s.kv.Act(e.Do)
}

// MeetingAddress returns the address of the server's meeting port, or "" without one.
func (s *Server) MeetingAddress() string { return s.kv.MeetingAddress() }

// InFlight returns how many requests the server is serving, in whatever phase.
func (s *Server) InFlight() int { return s.inFlight.value() }

// EngineStats returns the engine's counters. After Stop they are zero.
func (s *Server) EngineStats() engine.Stats {
	var st engine.Stats
	s.engine.With(func(machine.Time) { st = s.engine.Core.Engine().Stats() })
	return st
}
