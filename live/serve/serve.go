// Package serve is the common code of all parts that listen: which address a part listens on and which one it
// advertises, how slowly a request's body may arrive, who may read the pages for operators, and how the process ends
// when a listener fails. The page (windtunnel/web) has its own server: web must not import live, and serves the user
// of one browser.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// Systems assign ports from 32,768 on to connections on demand. Others listen below firstPort, such as test servers.
const firstPort, numPorts = 20_000, 10_000

// listened holds the addresses on which this process has listened.
var listened sync.Map

// Listen listens on an address. Port 0 stands for a free port below those that systems assign on demand, so that no
// connection takes it while the part that listens there restarts. The error has the code exit.Environment and says
// what to do.
func Listen(what, address string) (net.Listener, error) {
	if host, port, err := net.SplitHostPort(address); err == nil && port == "0" {
		for range 100 {
			l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(numPorts))))
			if err == nil {
				listened.Store(l.Addr().String(), true)
				return l, nil
			}
			if !errors.Is(err, syscall.EADDRINUSE) {
				break // the error of the address itself follows
			}
		}
	}
	l, err := net.Listen("tcp", address)
	// A process that this one starts holds a closed listener until it runs its own program.
	_, again := listened.Load(address)
	for tries := 100; again && tries > 0 && errors.Is(err, syscall.EADDRINUSE); tries-- {
		time.Sleep(20 * time.Millisecond)
		l, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, exit.Hint(exit.Environment, fmt.Errorf("cannot listen on %s for %s: %w", address, what, err),
			"stop what listens there, or choose another address or port")
	}
	listened.Store(l.Addr().String(), true)
	return l, nil
}

// Group runs servers and reports the first one that fails. With a nil Log, a Group logs nothing.
type Group struct {
	Log *slog.Logger

	once    sync.Once
	wg      sync.WaitGroup
	failed  chan error
	servers []*http.Server // started by Serve
}

// Serve runs a server at an address until Stop. It returns the address with the actual port.
func (g *Group) Serve(what, address string, s *http.Server) (at string, err error) {
	l, err := Listen(what, address)
	if err != nil {
		return "", err
	}
	g.servers, at = append(g.servers, s), l.Addr().String()
	g.Go(what+" at "+at, func() error { return s.Serve(l) })
	return at, nil
}

// Stop stops the servers. Requests in progress may finish until ctx ends.
func (g *Group) Stop(ctx context.Context) error {
	var errs []error
	for _, s := range g.servers {
		errs = append(errs, Stop(ctx, s))
	}
	return errors.Join(errs...)
}

// Go calls serve in a goroutine. A serve that was stopped returns nil or http.ErrServerClosed; any other error counts
// as a failure.
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
		default: // one failure is enough
		}
	})
}

func (g *Group) channel() chan error {
	g.once.Do(func() { g.failed = make(chan error, 1) })
	return g.failed
}

// Failed receives the error of the first server that failed.
func (g *Group) Failed() <-chan error { return g.channel() }

// Wait returns when all servers have ended.
func (g *Group) Wait() { g.wg.Wait() }

// Until waits for the end of ctx or for a failure, and then stops a part within grace. A failure gets the code
// exit.Broken.
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

// Requests returns a server for a simulated part's own clients: HTTP/1.1 and HTTP/2, over TLS if secure is not nil,
// with no practical limit on concurrent streams.
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

// On serves the connections of l until s is stopped, over TLS if secure. The parameter is needed because s sets its
// own TLS configuration when it starts, so its field does not show whether TLS was asked for.
func On(s *http.Server, l net.Listener, secure bool) error {
	if secure {
		return s.ServeTLS(l, "", "")
	}
	return s.Serve(l)
}

// Stop waits until ctx ends for requests in progress, then closes the remaining connections.
func Stop(ctx context.Context, s *http.Server) error {
	if s.Shutdown(ctx) == nil {
		return nil
	}
	return s.Close()
}

// Pages returns a server for operators' pages, such as metrics and health. It closes slow connections soon, but an
// answer such as a profile may take any time.
func Pages(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{Handler: BodyLimits{Total: 30 * time.Second}.Handler(h), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 1 << 16, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
}
