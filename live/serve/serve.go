// Package serve is what the parts that listen have in common: how an address is
// taken and which one others are told, how long a request's body may be on its
// way, who may see what is not for everybody, and what becomes of the process
// when a listener dies. The page of windtunnel/web is served by a server of its own:
// web knows nothing of live, and serves one browser's user.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// Listen takes an address for what is to be served there. An error says what
// to do, and is exit.Environment.
func Listen(what, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, exit.Hint(exit.Environment, fmt.Errorf("cannot listen on %s for %s: %w", address, what, err),
			"stop what listens there, or choose another address or port")
	}
	return l, nil
}

// Group runs what serves, and tells of the first that ended by itself. The zero
// Group logs nothing.
type Group struct {
	Log *slog.Logger

	once    sync.Once
	wg      sync.WaitGroup
	failed  chan error
	servers []*http.Server // of Serve
}

// Serve has a server answer at an address, until Stop, and returns the address with the port that it got.
func (g *Group) Serve(what, address string, s *http.Server) (at string, err error) {
	l, err := Listen(what, address)
	if err != nil {
		return "", err
	}
	g.servers, at = append(g.servers, s), l.Addr().String()
	g.Go(what+" at "+at, func() error { return s.Serve(l) })
	return at, nil
}

// Stop stops the servers: what they answer may end until ctx does.
func (g *Group) Stop(ctx context.Context) error {
	var errs []error
	for _, s := range g.servers {
		errs = append(errs, Stop(ctx, s))
	}
	return errors.Join(errs...)
}

// Go serves until serve returns: nil and http.ErrServerClosed when it was told
// to, anything else when it ended by itself.
func (g *Group) Go(what string, serve func() error) {
	failed := g.channel()
	g.wg.Go(func() {
		err := serve()
		if err == nil || errors.Is(err, http.ErrServerClosed) {
			return
		}
		err = fmt.Errorf("%s is not served any more: %w", what, err)
		if g.Log != nil {
			g.Log.Error("a listener failed", "error", err)
		}
		select {
		case failed <- err:
		default: // one is enough to end for
		}
	})
}

func (g *Group) channel() chan error {
	g.once.Do(func() { g.failed = make(chan error, 1) })
	return g.failed
}

// Failed has the error of the first that ended by itself.
func (g *Group) Failed() <-chan error { return g.channel() }

// Wait returns when nothing is served any more.
func (g *Group) Wait() { g.wg.Wait() }

// Until waits for the end of ctx or for a failure, and then stops a part within
// grace. A failure comes back as exit.Broken.
func Until(ctx context.Context, grace time.Duration, failed <-chan error, stop func(context.Context) error) error {
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return errors.Join(exit.With(exit.Broken, err), stop(last))
}

// Requests is a server of what is simulated itself: HTTP/1.1 and HTTP/2, within TLS
// where secure is given, with as many streams on a connection as are opened.
func Requests(h http.Handler, body BodyLimits, secure *tls.Config, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(secure == nil)
	protocols.SetHTTP2(secure != nil)
	return &http.Server{Handler: body.Handler(h), Protocols: &protocols, TLSConfig: secure,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1 << 20},
		ReadHeaderTimeout: time.Minute, IdleTimeout: 10 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}

// On serves what comes to l, within TLS where secure, until s is stopped. s itself does not tell: it
// gives itself a configuration of TLS when it begins.
func On(s *http.Server, l net.Listener, secure bool) error {
	if secure {
		return s.ServeTLS(l, "", "")
	}
	return s.Serve(l)
}

// Stop lets what s answers end until ctx does, and cuts what is left.
func Stop(ctx context.Context, s *http.Server) error {
	if s.Shutdown(ctx) == nil {
		return nil
	}
	return s.Close()
}

// Pages is a server of pages for operators: metrics, health. Nobody
// keeps it waiting; an answer, such as a profile, may take its time.
func Pages(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: BodyLimits{Total: 30 * time.Second}.Handler(h), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 1 << 16, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}
