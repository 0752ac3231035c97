// Package dynamo is the HTTP API of NVIDIA Dynamo's frontend, as document 001 (docs/documents.md#document-001) uses
// it beside an endpoint picker: it receives the original request with x-routing-request: true and answers with a
// worker and the prompt's tokens. Workers announce themselves over HTTP. All decisions are made by core/epp/dynamo.
// Begin with Start.
package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/drive"
	"github.com/windtunnel/windtunnel/live/serve"
)

// PathWorkers accepts a list of core/epp/dynamo.Worker (POST) and lists the known workers (GET).
const PathWorkers = "/v1/router/workers"

// Options configure a Server.
type Options struct {
	// Address is the host:port to listen on.
	Address string
	// Router decides. The Server takes ownership of it.
	Router *core.Router
	// Model and BlockSize determine the names of a prompt's blocks.
	Model     string
	BlockSize int
	// Tokens returns the tokens of the prompt in a request to some path. An error is answered with 400.
	Tokens func(path string, h http.Header, body []byte) ([]uint32, error)
	// RoundTrip is added to each routing call's duration, for a frontend that is further away.
	RoundTrip time.Duration
	// MaxBodyBytes bounds requests.
	MaxBodyBytes int64
	// Now is the run's clock.
	Now func() machine.Time
	Log *slog.Logger
}

// Server is a running frontend.
type Server struct {
	o       Options
	driver  *drive.Driver[core.Message, *core.Effects]
	router  *core.Router
	at      string // host:port
	serving serve.Group
}

// Start listens and serves until Stop.
func Start(o Options) (_ *Server, err error) {
	s := &Server{o: o, router: o.Router, serving: serve.Group{Log: o.Log}}
	s.driver = drive.New(drive.Options[core.Message, *core.Effects]{Machine: o.Router, Effects: new(core.Effects),
		Now:   o.Now,
		Carry: func(machine.Time, *core.Effects, int) {}}) // callers read the effects themselves
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathWorkers, s.announce)
	mux.HandleFunc("GET "+PathWorkers, s.workers)
	mux.HandleFunc("POST "+plugins.PathProgress, s.progress)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/", s.route)
	if s.at, err = s.serving.Serve("Dynamo frontend", o.Address, serve.Pages(mux, o.Log)); err != nil {
		s.driver.Stop()
		return nil, err
	}
	return s, nil
}

// Addr returns the host:port that the server listens on.
func (s *Server) Addr() string { return s.at }

// Known returns the workers that have announced themselves and not left, as of their last announcement.
func (s *Server) Known() (out []core.Worker) {
	s.driver.With(func(machine.Time, *core.Effects) { out = s.router.Workers() })
	return out
}

// Workers returns the number of known workers.
func (s *Server) Workers() int { return len(s.Known()) }

// Running returns the number of requests that the router has booked.
func (s *Server) Running() (n int) {
	s.driver.With(func(machine.Time, *core.Effects) { n = s.router.Running() })
	return n
}

// Failed receives the error of a listener that ended by itself.
func (s *Server) Failed() <-chan error { return s.serving.Failed() }

// Stop lets calls finish until ctx ends.
func (s *Server) Stop(ctx context.Context) error {
	err := s.serving.Stop(ctx)
	s.driver.Quiet()
	s.serving.Wait()
	return err
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	text, err := json.Marshal(
		map[string]any{"error": map[string]any{"message": fmt.Sprintf(format, args...), "code": status}})
	if err != nil {
		panic(err) // a text and a number can always be encoded
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error means that the client has left
}

// read returns a request's body. If it returns false, it has answered with an error.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.o.MaxBodyBytes))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		fail(w, http.StatusRequestEntityTooLarge, "the body has more than %d bytes", s.o.MaxBodyBytes)
	case err != nil:
		fail(w, http.StatusBadRequest, "the body cannot be read: %v", err)
	default:
		serve.BodyWhole(r)
	}
	return body, err == nil
}

// route answers a routing call.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get(plugins.HeaderRoutingRequest) != "true":
		fail(w, http.StatusNotFound, "there is no %.200s but for routing calls: expected the header %s: true",
			r.URL.Path, plugins.HeaderRoutingRequest)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "found %.20s; expected POST", r.Method)
		return
	}
	body, ok := s.read(w, r)
	if !ok {
		return
	}
	pause.For(r.Context(), s.o.RoundTrip/2)
	progress, err := core.ParseProgress(r.Header.Get(plugins.HeaderProgress))
	if err != nil {
		fail(w, http.StatusBadRequest, "%s: %v", plugins.HeaderProgress, err)
		return
	}
	for _, x := range progress {
		s.driver.Input(x)
	}
	tokens, err := s.o.Tokens(r.URL.Path, r.Header, body)
	if err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
		return
	}
	to := s.ask(r.Header.Get(picker.HeaderRequestID), tokens)
	answer := core.Answer{Worker: to.Worker, Prefill: to.Prefill, Tokens: tokens}
	if answer.Worker == 0 {
		fail(w, http.StatusServiceUnavailable, "no worker has announced itself")
		return
	}
	pause.For(r.Context(), s.o.RoundTrip-s.o.RoundTrip/2)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer.JSON()) // an error means that the client has left
}

// ask returns the router's decision.
func (s *Server) ask(id string, tokens []uint32) (to core.Routed) {
	ask := core.Route{ID: id, Prompt: core.PromptOf(s.o.Model, tokens, s.o.BlockSize)}
	s.driver.With(func(now machine.Time, fx *core.Effects) {
		s.router.Input(now, ask, fx)
		to = fx.List[len(fx.List)-1]
	})
	return to
}

// Route returns the router's decision for a frontend before a model server (disagg.FrontendRouter).
func (s *Server) Route(id string, tokens []uint32) (worker, prefill string) {
	return s.ask(id, tokens).Names()
}

// ReportProgress records the progress of a request that such a frontend routed (disagg.FrontendRouter).
func (s *Server) ReportProgress(id string, over bool) {
	s.driver.Input(core.Progress{ID: id, Over: over})
}

// announce handles workers' announcements.
func (s *Server) announce(w http.ResponseWriter, r *http.Request) {
	list, ok := list[core.Worker](s, w, r)
	for i := range list {
		if err := list[i].Check(); ok && err != nil {
			fail(w, http.StatusBadRequest, "[%d]: %v", i, err)
			return
		}
	}
	for _, x := range list {
		s.driver.Input(x)
	}
}

// progress handles a picker's progress reports.
func (s *Server) progress(w http.ResponseWriter, r *http.Request) {
	list, _ := list[core.Progress](s, w, r)
	for _, x := range list {
		s.driver.Input(x)
	}
}

// list reads a JSON list. If it returns false, it has answered with an error.
func list[T any](s *Server, w http.ResponseWriter, r *http.Request) (out []T, ok bool) {
	body, ok := s.read(w, r)
	if !ok {
		return nil, false
	}
	if err := json.Unmarshal(body, &out); err != nil {
		fail(w, http.StatusBadRequest, "the body is no list as expected: %v", err)
		return nil, false
	}
	return out, true
}

// workers lists the known workers.
func (s *Server) workers(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s.Known()) // an error means that the client has left
}

// announceTimeout is far above what a frontend takes on a busy machine: a late announcement is better than none.
const announceTimeout = 10 * time.Second

// Announcer announces workers to a frontend, as Dynamo's runtime does beside each engine.
type Announcer struct {
	url     string
	workers func() []core.Worker
	client  http.Client
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	changed map[core.WorkerID]bool // since the last announcement
	woken   chan struct{}
}

// Announce announces all workers at once and then at each interval until Stop, and in between each worker whose load
// changed. A lost announcement is not repeated, because the next one has all data.
func Announce(ctx context.Context, address string, every time.Duration, workers func() []core.Worker,
	log *slog.Logger) (*Announcer, error) {
	a := &Announcer{url: "http://" + address + PathWorkers, workers: workers,
		client:  http.Client{Timeout: announceTimeout, CheckRedirect: serve.Stay},
		changed: map[core.WorkerID]bool{}, woken: make(chan struct{}, 1)}
	if err := a.push(ctx, a.workers()); err != nil {
		return nil, fmt.Errorf("dynamo: cannot announce the workers: %w", err)
	}
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	a.done.Go(func() {
		heartbeat := time.NewTicker(every)
		defer heartbeat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-heartbeat.C:
				if err := a.push(ctx, a.workers()); err != nil && ctx.Err() == nil {
					log.Warn("dynamo: the workers' announcement failed", "url", a.url, "error", err)
				}
			case <-a.woken:
				if pause.For(ctx, core.Debounce.Duration()); ctx.Err() != nil {
					return
				}
				_ = a.push(ctx, a.takeChanged()) // after a failure, the next heartbeat has all data
			}
		}
	})
	return a, nil
}

// Changed records that a worker's number of requests changed. It does not wait.
func (a *Announcer) Changed(id core.WorkerID) {
	a.mu.Lock()
	a.changed[id] = true
	a.mu.Unlock()
	pause.Wake(a.woken)
}

// takeChanged returns the workers that have changed since the previous call.
func (a *Announcer) takeChanged() []core.Worker {
	a.mu.Lock()
	changed := a.changed
	a.changed = map[core.WorkerID]bool{}
	a.mu.Unlock()
	return slices.DeleteFunc(a.workers(), func(w core.Worker) bool { return !changed[w.ID] })
}

func (a *Announcer) push(ctx context.Context, workers []core.Worker) error {
	body, err := json.Marshal(workers)
	if err != nil {
		return err
	}
	_, err = serve.Fetch(ctx, &a.client, http.MethodPost, a.url, body, 1<<16)
	return err
}

// Stop stops the announcements.
func (a *Announcer) Stop() {
	a.cancel()
	a.done.Wait()
	a.client.CloseIdleConnections()
}
