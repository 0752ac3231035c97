package modelserver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/flow"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/tokens"
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
	recorder flow.Recorder
	log      *slog.Logger
	loop     *loop
	draws    atomic.Pointer[lifecycle.Draws]
	http     *http.Server
	listener net.Listener
	host     string // by which others are told of the server, once it listens
	endpoint string // that and its port
	served   bool
	serving  *serve.Group // the fleet's
	inFlight gauge
	started  time.Time
	told     stats.Server // in the metrics
	adapters adapters
	store    *store
	reader   modelserver.Reader

	fleet     *Fleet
	network   *network
	peers     peers
	side      sideChannel
	meeting   sideChannel
	publisher KVPublisher
	feed      kvFeed
	seen      seenMedia
	leaving   chan struct{} // closed when the server begins to stop
	pages     pageCache
	injector  injector
	fake      atomic.Pointer[stats.FakeMetrics]
	dead      atomic.Bool // the engine crashed or lost a rank
	crashes   sync.WaitGroup
	ctx       context.Context // ends with the server
	cancel    context.CancelFunc

	sleepLevel   atomic.Int32 // 0 is awake
	imagePercent atomic.Int32 // of the chats, see ServerOptions.ImagePercent
}

func newServer(o *Options, so ServerOptions, index int, clock func() machine.Time) (*Server, error) {
	if so.Listen == "" {
		so.Listen = "127.0.0.1:0"
	}
	if len(so.Models) == 0 {
		so.Models = []string{modelserver.DefaultModel}
	}
	if so.MaxBodyBytes == 0 {
		so.MaxBodyBytes = DefaultMaxBody
	}
	if so.Version == "" {
		so.Version = DefaultVersion
	}
	if so.Tokenizer == nil {
		so.Tokenizer = tokens.Packed{}
	}
	so.Engine.KVEvents = so.Engine.KVEvents || so.KVEvents != nil
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
	core, err := enginecore.New(enginecore.Config{Engine: so.Engine, Index: index, EngineID: engineID, ViaStore: o.Transfer.Profile.ViaStore,
		PeerTimeout: machine.FromDuration(so.PeerTimeout), Ranks: so.TensorParallel, Publish: so.KVEvents != nil, OutOfMemory: so.OutOfMemory})
	if err != nil {
		return nil, err
	}
	s := &Server{name: so.Name, opts: so, seed: o.Seed, index: index, cfg: core.Engine().Config(), clock: clock, started: time.Now(),
		recorder: o.Recorder, log: o.Logger, endpoint: so.Listen}
	s.reader = modelserver.Reader{State: state{s}, Config: &modelserver.Config{
		Seed: o.Seed, Engine: s.cfg, Models: so.Models, Tokenizer: so.Tokenizer, Template: tokens.TemplateFor(so.Models[0]), Vocabulary: tokens.NewVocabulary(so.Tokenizer),
		Content: so.Content, Dataset: so.Dataset, Tools: so.Tools, IgnoreFaultHeader: so.IgnoreFaultHeader, CacheHitThreshold: so.CacheHitThreshold,
		Dimensions: so.Dimensions, EncoderOnly: so.EncoderOnly, Omni: so.Omni, ImageTime: so.ImageTime, PromptTokensDetails: so.PromptTokensDetails,
		FullStatus: so.FullStatus, KVRole: so.KVRole, EngineID: engineID, TensorParallel: so.TensorParallel,
	}}
	s.told = stats.Server{Engine: s.cfg, Model: so.Models[0], MemoryBytes: so.MemoryBytes, TensorParallel: so.TensorParallel, SpeculativeTokens: so.SpeculativeTokens}
	s.adapters.known, s.adapters.next = known.known, known.next
	s.store, s.leaving = newStore(), make(chan struct{})
	s.draws.Store(&lifecycle.Draws{Seed: o.Seed, Prefill: so.Prefill, TokenTime: so.TokenTime, OutputTokens: so.OutputTokens})
	s.loop = newLoop(core, clock, s.act)
	s.peers.calls, s.peers.asked = map[enginecore.Call]*peerCall{}, map[enginecore.Inquiry]chan<- enginecore.Answer{}
	if timer, ok := so.Engine.Timer.(*latency.Timer); ok {
		s.loop.steps.Timer = timer
	}
	s.loop.steps.Recorder, s.loop.steps.Detail = o.Recorder, so.Steps
	s.side.s, s.meeting.s = s, s
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(so.TLS == nil)
	protocols.SetHTTP2(so.TLS != nil)
	s.http = &http.Server{
		Handler:           so.Body.Handler(s.guard(s.direct(s.routes()))),
		Protocols:         &protocols,
		TLSConfig:         so.TLS,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1 << 20},
		ReadHeaderTimeout: time.Minute,
		IdleTimeout:       10 * time.Minute,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	s.SetFakeMetrics(so.FakeMetrics)
	s.imagePercent.Store(int32(so.ImagePercent))
	return s, s.Inject(so.Inject)
}

// Name is the server's name in logs.
func (s *Server) Name() string { return s.name }

// Address is where others reach the server, host:port. Before Start it is what
// was asked for.
func (s *Server) Address() string { return s.endpoint }

// URL is the base of the server's API.
func (s *Server) URL() string {
	if s.opts.TLS != nil {
		return "https://" + s.endpoint
	}
	return "http://" + s.endpoint
}

func (s *Server) listen() error {
	l, err := serve.Listen("a model server", s.opts.Listen)
	if err != nil {
		return err
	}
	s.listener = l
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if s.host, err = serve.Advertised(host, s.opts.Advertise, noEnvironment); err != nil {
		return err
	}
	s.endpoint = net.JoinHostPort(s.host, port)
	s.loop.steps.Endpoint = s.endpoint
	if s.opts.SideChannel != "" {
		s.side.mu.Lock()
		defer s.side.mu.Unlock()
		if err := s.side.listen(s.opts.SideChannel); err != nil {
			return err
		}
	}
	if err := s.openMeeting(); err != nil {
		return err
	}
	if s.opts.KVEvents != nil {
		if s.publisher, err = s.opts.KVEvents(s.opts.Models[0], s.endpoint); err != nil {
			return fmt.Errorf("KV events: %w", err)
		}
	}
	return nil
}

// listenHost is the host that the server listens on.
func (s *Server) listenHost() string {
	host, _, _ := net.SplitHostPort(s.opts.Listen)
	return host
}

// noEnvironment: what is to be known of it is in the options.
func noEnvironment(string) (string, bool) { return "", false }

// abandon undoes listen.
func (s *Server) abandon() {
	if s.listener != nil {
		_ = s.listener.Close() // the error that led here is the one to tell
	}
	s.cancel()
	s.side.close()
	s.meeting.close()
	if s.publisher != nil {
		s.publisher.Close()
	}
}

func (s *Server) serve() {
	s.served = true
	if s.opts.OutOfMemory != nil {
		s.crashes.Go(s.crashLoop)
	}
	s.serving.Go("model server "+s.name+" at "+s.listener.Addr().String(), func() error {
		if s.opts.TLS != nil {
			return s.http.ServeTLS(s.listener, "", "")
		}
		return s.http.Serve(s.listener)
	})
	s.log.Debug("model server listens", "server", s.name, "address", s.endpoint, "models", s.opts.Models)
}

func (s *Server) stop(ctx context.Context) {
	if !s.served {
		return
	}
	close(s.leaving)
	s.loop.send(&enginecore.Control{Control: engine.Control{Op: engine.OpDrain}})
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // the time is up: what is left is cut
	}
	s.inFlight.wait()
	s.cancel()
	s.crashes.Wait()
	s.loop.stop()
	s.peers.done.Wait()
	s.side.close()
	s.meeting.close()
	if s.publisher != nil {
		s.publisher.Close()
	}
}

// InFlight is how many requests the server is serving, in whatever phase.
func (s *Server) InFlight() int { return s.inFlight.value() }

// EngineStats reads the engine's counters. After Stop they are zero.
func (s *Server) EngineStats() engine.Stats {
	var st engine.Stats
	s.loop.ask(func(machine.Time) { st = s.loop.eng.Stats() })
	return st
}
