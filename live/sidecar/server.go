package sidecar

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/tlsfiles"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// Sidecar is a running routing sidecar.
type Sidecar struct {
	o        Options
	log      *slog.Logger
	now      func() machine.Time
	metrics  *metrics
	pool     *pool
	proxies  *proxies
	encoders *proxies
	peers    *peers
	own      *http.Server // serves the metrics alone
	serving  serve.Group

	ownAt     net.Listener // the metrics' own listener, or nil
	decodeWay *http.Transport
	fixed     []disagg.Target // session mode's prefillers

	numbers  atomic.Uint64
	inFlight atomic.Int64
	ranks    []*rank
	detached sync.WaitGroup
	ctx      context.Context // ends when the sidecar stops
	cancel   context.CancelFunc
	stop     sync.Once
}

// rank is one data-parallel rank: a port in front of its decode server.
type rank struct {
	s           *Sidecar
	c           disagg.Config
	decoder     *url.URL
	passThrough *httputil.ReverseProxy
	listener    net.Listener
	server      *http.Server
	secure      bool // serves HTTPS
	served      bool
}

// Start listens and serves until Stop. After an error, nothing is left running.
func Start(o Options) (s *Sidecar, err error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.MaxIdlePerHost = cmp.Or(o.MaxIdlePerHost, defaultIdlePerHost)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, defaultMaxBody)
	o.Ranks = cmp.Or(o.Ranks, 1)
	o.Seed = cmp.Or(o.Seed, rand.Uint64())
	s = &Sidecar{o: o, log: o.Log, now: o.Now, metrics: newMetrics(), serving: serve.Group{Log: o.Log}}
	if s.now == nil {
		s.now = drive.Since(time.Now())
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	started := s
	defer func() {
		if err != nil {
			_ = started.Stop(context.Background()) // the caller returns the first error
		}
	}()
	if err = s.openPool(); err != nil {
		return nil, err
	}
	var ca authorities
	if o.CAFile != "" {
		if ca, err = tlsfiles.Authorities(o.CAFile, true, o.Log); err != nil {
			return nil, exit.With(exit.Input, fmt.Errorf("CA file: %w", err))
		}
	}
	if s.proxies, err = newProxies(o.Prefiller, ca, o.MaxIdlePerHost); err != nil {
		return nil, err
	}
	if s.encoders, err = newProxies(o.Encoder, ca, o.MaxIdlePerHost); err != nil {
		return nil, err
	}
	if o.Disagg.MoRIIO.Write {
		if s.peers, err = newPeers(s.ctx, &s.o, s.metrics); err != nil {
			return nil, err
		}
	}
	config := o.Disagg
	if o.SessionCache > 0 {
		if config.Sessions, err = disagg.NewSessions(o.SessionCache, nil); err != nil {
			return nil, err
		}
	}
	if err = s.serveMetrics(config.Sessions); err != nil {
		return nil, err
	}
	s.decodeWay = transport(o.MaxIdlePerHost)
	s.decodeWay.TLSClientConfig = legTLS(o.DecoderTLS, decoderNames(o.Decoder), ca)
	for _, p := range o.Prefillers {
		t, err := disagg.ParseTarget(p)
		if err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("prefill URL: %w", err))
		}
		s.fixed = append(s.fixed, t)
	}
	tlsConfig, err := s.serverTLS()
	if err != nil {
		return nil, exit.With(exit.Input, err)
	}
	config.Connector = cmp.Or(config.Connector, connector.NIXLv2)
	config.Seed, config.Engines, config.Lock = o.Seed, disagg.NewEngines(), s.locked
	if o.Protect {
		config.Allow = &s.pool.allow
	}
	for i := range o.Ranks {
		k := &rank{s: s, c: config}
		s.ranks = append(s.ranks, k)
		if err = k.listen(i, tlsConfig); err != nil {
			return nil, fmt.Errorf("sidecar: %w", err)
		}
	}
	for _, k := range s.ranks {
		k.serve()
	}
	return s, nil
}

func (s *Sidecar) openPool() (err error) {
	changed := func(size int) { s.metrics.allowed.Set(float64(size)) }
	switch {
	case s.o.EndpointsFile != "" || s.o.Objects != "":
		s.pool, err = openPool(&s.o, changed)
		return exit.With(exit.Input, err)
	case s.o.Protect && s.o.Allow == nil:
		return errors.New("SSRF protection needs to know the pool: give the endpoints file or the directory of " +
			"objects; without Kubernetes there is nobody to ask")
	}
	s.pool = &pool{log: s.log, changed: changed}
	if s.o.Protect {
		s.pool.set(s.o.Allow, nil, nil)
	}
	return nil
}

// locked runs a function with the state locked that requests share.
func (s *Sidecar) locked(f func()) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	f()
}

// Addr returns the address where others reach the sidecar, host:port. With several ranks, it is rank 0's.
func (s *Sidecar) Addr() string { return s.ranks[0].c.Endpoint }

// Failed delivers the error of the first listener that ended by itself.
func (s *Sidecar) Failed() <-chan error { return s.serving.Failed() }

// InFlight returns how many requests the sidecar is serving, including detached legs.
func (s *Sidecar) InFlight() int { return int(s.inFlight.Load()) }

// Stop takes no new requests, lets those in flight finish until ctx ends, and cuts the rest.
func (s *Sidecar) Stop(ctx context.Context) error {
	var errs []error
	s.stop.Do(func() {
		done := make(chan error, len(s.ranks))
		for _, k := range s.ranks {
			go func() { done <- k.stop(ctx) }()
		}
		for range s.ranks {
			errs = append(errs, <-done)
		}
		s.cancel()
		if s.own != nil {
			_ = s.own.Close() // a scraper repeats a request that was cut
		}
		s.detached.Wait()
		s.serving.Wait()
		if s.pool != nil {
			s.pool.close()
		}
		if s.peers != nil {
			s.peers.close()
		}
		for _, p := range []*proxies{s.proxies, s.encoders} {
			if p != nil {
				p.close()
			}
		}
		if s.decodeWay != nil {
			s.decodeWay.CloseIdleConnections()
		}
	})
	return errors.Join(errs...)
}

func (k *rank) stop(ctx context.Context) error {
	switch {
	case k.served:
		return serve.Stop(ctx, k.server)
	case k.listener != nil:
		return k.listener.Close()
	}
	return nil
}

// listen opens a rank's port and prepares its connection to the decode server.
func (k *rank) listen(i int, secure *tls.Config) error {
	o := &k.s.o
	address, err := offsetPort(o.Listen, i)
	if err != nil {
		return err
	}
	decoder, err := offsetPort(o.Decoder, i)
	if err != nil {
		return err
	}
	k.decoder = &url.URL{Scheme: "http", Host: decoder}
	if o.DecoderTLS.On {
		k.decoder.Scheme = "https"
	}
	if k.listener, err = serve.Listen("the sidecar", address); err != nil {
		return err
	}
	k.listener = o.Line.Listener(k.listener)
	host, port, _ := net.SplitHostPort(k.listener.Addr().String())
	if host, err = serve.Advertised(host, o.Advertise,
		func(string) (string, bool) { return o.Disagg.PodIP, o.Disagg.PodIP != "" }); err != nil {
		return err
	}
	k.c.Endpoint = net.JoinHostPort(host, port)
	k.c.PodIP = cmp.Or(k.c.PodIP, host)
	k.c.ForwardRanks, k.c.Ranks = i == 0, o.Ranks
	k.c.Port = serve.PortOf(k.c.Endpoint)
	k.c.BasePort = cmp.Or(serve.PortOf(o.Listen), k.c.Port)
	k.c.Recorder = record.Tee(o.Recorder, k.logging())
	k.passThrough = k.reverseProxy()
	k.server, k.secure = serve.Requests(k, o.Body, secure, k.s.log), secure != nil
	k.server.ConnState = k.s.connState
	return nil
}

// serveMetrics serves the sidecar's metrics and sessions on a port of their own if the options ask for one.
func (s *Sidecar) serveMetrics(sessions *disagg.Sessions) error {
	if s.o.MetricsListen == "" {
		return nil
	}
	var err error
	if s.ownAt, err = serve.Listen("the sidecar's metrics", s.o.MetricsListen); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.own())
	if sessions != nil {
		mux.HandleFunc("GET /debug/sessions", func(w http.ResponseWriter, _ *http.Request) { s.sessions(w, sessions) })
	}
	s.own = serve.Pages(mux, s.log)
	s.serving.Go("the sidecar's metrics at "+s.MetricsAddr(), func() error { return s.own.Serve(s.ownAt) })
	return nil
}

// MetricsAddr returns the address that serves the sidecar's metrics alone, or "".
func (s *Sidecar) MetricsAddr() string {
	if s.ownAt == nil {
		return ""
	}
	return s.ownAt.Addr().String()
}

func (k *rank) serve() {
	k.served = true
	k.s.serving.Go("the sidecar at "+k.listener.Addr().String(),
		func() error { return serve.On(k.server, k.listener, k.secure) })
	k.s.log.Info("sidecar listens", "address", k.c.Endpoint, "decoder", k.decoder.String(), "connector",
		k.c.Connector.Name)
	if k.c.Connector.Deprecated {
		k.s.log.Warn("the connector is deprecated (document 003); use nixlv2", "connector", k.c.Connector.Name)
	}
}

func (s *Sidecar) connState(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.metrics.connections.Inc()
	case http.StateClosed, http.StateHijacked:
		s.metrics.connections.Dec()
	}
}

// logging converts events to the log lines that document 003 greps for.
func (k *rank) logging() record.Recorder {
	if !k.s.log.Enabled(context.Background(), slog.LevelInfo) {
		return nil
	}
	return record.Func(func(e record.Event) {
		level, key := slog.LevelInfo, ""
		switch e.Step {
		case record.PrefillDecided:
			key = "prefill_decision"
		case record.PrefillLegFailed, record.EncodeLegFailed:
			level, key = slog.LevelWarn, "connector_error"
		case record.PrefillerBlocked:
			level, key = slog.LevelWarn, "ssrf_blocked"
		case record.SessionForgotten:
			key = "session_forgotten"
		default:
			return
		}
		args := []any{"request_id", e.Request, "endpoint", e.Endpoint}
		for _, d := range e.Details {
			args = append(args, d.Key, d.Value)
		}
		k.s.log.Log(context.Background(), level, key, args...)
	})
}
