package epp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/epp/inputlog"
	"github.com/windtunnel/windtunnel/core/epp/metric"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// StandaloneOptions configure an endpoint picker that runs by itself behind a user's Envoy: the real EPP's flags.
type StandaloneOptions struct {
	PickerOptions
	PoolOptions
	Serving
	Certificates
	// ConfigPath, when given, is the configuration's file: it is watched, and a change of it is taken over without
	// losing a request.
	ConfigPath string
	// Picking configures the picker of each configuration. The Standalone sets what PickerOptions and PoolOptions
	// contain, the clock and the metrics.
	Picking PickingOptions
	// Fill, if not nil, gives the picker of each configuration its endpoints, before requests reach it.
	Fill func(*Picking) error
	// Elected makes the picker not ready until Lead says that it leads.
	Elected bool
	// Profiling serves Go's profiles under /debug/pprof/ beside the metrics.
	Profiling bool
	// Origin is when its time began, from which events are timed; zero is now.
	Origin time.Time
	// BuildInfo is the version in the metrics, "" to leave it out.
	BuildInfo string
}

// ConfigError is an EndpointPickerConfig that the picker refuses.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns the picker's own error.
func (e *ConfigError) Unwrap() error { return e.Err }

// PickerOptions are a configuration and the options of its picker.
type PickerOptions struct {
	// Config is the EndpointPickerConfig's text, nil for the default one; ConfigName names it in errors.
	Config                          []byte
	ConfigName                      string
	AllowExperimental, IgnoreSubset bool
	// Readiness leaves out endpoints that fail Kubernetes' readiness probe (picker.Options).
	Readiness bool
	// ClientHeaders makes the plug-in client-headers act also where the configuration has none: its parameters as
	// JSON, "" to leave it out.
	ClientHeaders string
	// Predictor predicts latencies; nil is none.
	Predictor *picker.PredictorService
	Registry  picker.Registry // nil is the built-in one
	Seed      uint64
	// History is how many decisions are kept for people.
	History        int
	RefreshMetrics time.Duration
	Log            *slog.Logger
}

// Certificates configure TLS at the listeners.
type Certificates struct {
	// Secure serves ext_proc over TLS: with tls.crt and tls.key in CertPath, else with a generated certificate.
	Secure   bool
	CertPath string
	// CertReload takes over a certificate whose files change.
	CertReload bool
	// TLSMinVersion and TLSCipherSuites are crypto/tls'; 0 and nil are TLS 1.2 and Go's choice.
	TLSMinVersion   uint16
	TLSCipherSuites []uint16
	// MetricsCertPath serves /metrics over TLS with the certificate in that directory; MetricsClientCA is a file of
	// the authorities whose certificates its readers must show.
	MetricsCertPath, MetricsClientCA string
}

// Standalone is a running endpoint picker with everything around it.
type Standalone struct {
	*Server
	now         func() machine.Time
	metrics     *PickMetrics
	generations *Generations
	config      *watch.Watch // of the configuration's file, nil when it is not watched

	reloading sync.Mutex // guards o.Config
	o         StandaloneOptions

	mu       sync.Mutex
	healthy  *Server
	found    bool // the pool exists
	waits    bool // another replica leads
	stopping bool
}

// BuildPicker reads a configuration and builds its picker. The error is every
// mistake in the configuration.
func BuildPicker(o *PickerOptions) (*picker.Picker, error) {
	cfg := config.Default()
	if o.Config != nil {
		var err error
		if cfg, err = config.Read(o.ConfigName, o.Config); err != nil {
			return nil, err
		}
	} else if o.ConfigName == "" {
		o.ConfigName = "the default configuration"
	}
	if err := o.obeyClients(cfg); err != nil {
		return nil, err
	}
	reg := o.Registry
	if reg == nil {
		reg = plugins.Builtin()
	}
	began := time.Now()
	p, err := picker.New(cfg, reg,
		picker.Options{Seed: o.Seed, AllowExperimental: o.AllowExperimental, IgnoreSubset: o.IgnoreSubset,
			Readiness: o.Readiness, Detail: o.History > 0, Predictor: o.Predictor,
			Panicked: logPanics(o.Log), Stopwatch: func() machine.Time { return machine.Time(time.Since(began)) }})
	if err != nil {
		return nil, err
	}
	for _, w := range p.Warnings {
		o.Log.Warn("epp: configuration", "warning", w)
	}
	return p, nil
}

// obeyClients adds ClientHeaders' plug-in.
func (o *PickerOptions) obeyClients(c *config.Config) error {
	if o.ClientHeaders == "" ||
		slices.ContainsFunc(c.Plugins, func(p config.Plugin) bool { return p.Type == plugins.TypeClientHeaders }) {
		return nil
	}
	doc, err := strictyaml.Parse([]byte(o.ClientHeaders), strictyaml.Options{File: "client headers", Kubernetes: true})
	if err == nil {
		c.Plugins = append(c.Plugins,
			config.Plugin{Name: plugins.TypeClientHeaders, Type: plugins.TypeClientHeaders, Parameters: doc.Root()})
	}
	return err
}

// Made describes the picker that BuildPicker builds, for a log of inputs.
func (o *PickerOptions) Made() inputlog.Header {
	h := inputlog.Header{Name: o.ConfigName, Seed: o.Seed, AllowExperimental: o.AllowExperimental,
		IgnoreSubset: o.IgnoreSubset, Readiness: o.Readiness, Detail: o.History > 0,
		Predictor: o.Predictor != nil, ScrapeInterval: machine.FromDuration(o.RefreshMetrics)}
	if o.Config != nil {
		h.Config = new(string(o.Config))
	}
	return h
}

// StartStandalone reads the configuration and the endpoints and serves.
func StartStandalone(o StandaloneOptions) (*Standalone, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	began := o.Origin
	if began.IsZero() {
		began = time.Now()
	}
	s := &Standalone{o: o, now: func() machine.Time { return machine.Time(time.Since(began)) },
		generations: NewGenerations(), waits: o.Elected}
	s.o.Picking.KV.Sockets = cmp.Or(o.Picking.KV.Sockets, new(kvevents.Sockets))
	reg := prometheus.NewRegistry()
	s.metrics = NewPickMetrics(reg, o.PoolName)
	reg.MustRegister(s.generations)
	if o.BuildInfo != "" {
		expose(reg, metric.Info).add(metric.Info, 1, "windtunnel", o.BuildInfo)
	}
	g, err := s.build(s.o)
	if err != nil {
		return nil, err
	}
	s.generations.Replace(g)
	server := Options{Serving: o.Serving, Pickers: s.generations, Now: s.now, Registry: reg, Log: o.Log,
		Pages: s.pages()}
	if o.Secure {
		if server.TLS, err = o.serverTLS(o.Log); err != nil {
			s.close()
			return nil, err
		}
	}
	if o.MetricsCertPath != "" {
		if server.MetricsTLS, err = o.metricsTLS(o.Log); err != nil {
			s.close()
			return nil, err
		}
	}
	if s.Server, err = Start(server); err != nil {
		s.close()
		return nil, err
	}
	s.serve(s.Server, false)
	if o.ConfigPath != "" {
		if err := s.watchConfig(); err != nil {
			s.Kill()
			return nil, err
		}
	}
	return s, nil
}

// serve updates the health services: without its pool a picker is not ready. A given server takes over; otherwise found
// is an update.
func (s *Standalone) serve(server *Server, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server != nil {
		s.healthy = server
	} else {
		s.found = found
	}
	if s.healthy != nil && !s.stopping {
		s.healthy.SetReady(s.found && !s.waits)
	}
}

// Lead makes a picker ready that leads its replicas, and not ready one that does not.
func (s *Standalone) Lead(leads bool) {
	s.mu.Lock()
	s.waits = !leads
	found := s.found
	s.mu.Unlock()
	s.serve(nil, found)
}

func (s *Standalone) close() {
	s.config.Close()
	s.generations.Close()
}

// Stop takes the picker out of service: not ready, streams finish until ctx
// ends, then everything closes.
func (s *Standalone) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	err := s.Server.Stop(ctx)
	s.close()
	return err
}

// Kill ends the picker at once, as a crash would.
func (s *Standalone) Kill() {
	s.Server.Kill()
	s.close()
}

// Record writes the picker's inputs down from now on.
func (s *Standalone) Record(x *InputLog) { s.generations.Record(x) }

func (s *Standalone) pages() map[string]http.Handler {
	out := s.generations.Pages()
	if s.o.Profiling {
		out["/debug/pprof/"] = http.HandlerFunc(pprof.Index)
		out["/debug/pprof/cmdline"] = http.HandlerFunc(pprof.Cmdline)
		out["/debug/pprof/profile"] = http.HandlerFunc(pprof.Profile)
		out["/debug/pprof/symbol"] = http.HandlerFunc(pprof.Symbol)
		out["/debug/pprof/trace"] = http.HandlerFunc(pprof.Trace)
	}
	return out
}
