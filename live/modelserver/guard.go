package modelserver

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/vllmgrpc"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/grpcapi"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
	"github.com/windtunnel/windtunnel/live/serve"
)

// guard wraps every route. It checks API keys if the server has any, adds the headers of llm-d-inference-sim's pods,
// and answers health checks while the server starts.
func (s *Server) guard(next http.Handler) http.Handler {
	if s.opts.OutOfMemory != nil {
		return http.HandlerFunc(s.killed)
	}
	keys := serve.NewTokens(s.opts.APIKeys)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.turnedAway(w, r, keys) {
			next.ServeHTTP(w, r)
		}
	})
}

// turnedAway answers a request that does not get to a route. It is a function of its own so that its variables take no
// stack while the request waits.
func (s *Server) turnedAway(w http.ResponseWriter, r *http.Request, keys serve.Tokens) bool {
	if s.opts.PodName != "" {
		w.Header().Set("X-Inference-Pod", s.opts.PodName)
		w.Header().Set("X-Inference-Namespace", s.opts.PodNamespace)
		if _, port, err := net.SplitHostPort(s.endpoint); err == nil {
			w.Header().Set("X-Inference-Port", port)
		}
	}
	switch {
	case len(keys) > 0 && !open(r.URL.Path) && !keys.Allow(r.Header.Get("Authorization")):
		refuse(w, r, &openai.Error{Status: http.StatusUnauthorized, Type: "Unauthorized", Message: "Unauthorized"})
		return true
	case len(keys) == 0 && controls(r.URL.Path) && !serve.Local(r):
		refuse(w, r, openai.Errorf(http.StatusForbidden, "",
			"%s is served to this machine alone: start the server with --api-key and show the key to call it from "+
				"elsewhere.", r.URL.Path))
		return true
	}
	if left := s.startingFor(); left > 0 && (r.URL.Path == "/health" || r.URL.Path == "/health/ready") {
		w.Header().Set("Retry-After", strconv.Itoa(int(left/machine.Second)+1))
		w.WriteHeader(modelserver.StatusDead)
		return true
	}
	return false
}

// open reports whether a path needs no key because it only reports the server's state. vLLM asks for a key below /v1
// alone.
func open(path string) bool {
	switch path {
	case "/health", "/health/ready", "/ping", "/version", "/load", "/metrics", "/query":
		return true
	}
	return strings.HasPrefix(path, grpcapi.HealthService)
}

// controls reports whether a path changes the server for all clients. vLLM serves such paths, where it has them, in its
// development mode alone.
func controls(path string) bool {
	switch path {
	case "/sleep", "/wake_up", "/reset_prefix_cache", "/fake_metrics":
		return true
	}
	return strings.HasPrefix(path, "/admin/")
}

// refuse answers a request that is not allowed, in the client's protocol.
func refuse(w http.ResponseWriter, r *http.Request, e *openai.Error) {
	if vllmgrpc.IsGRPC(r.Header.Get("Content-Type")) {
		grpcapi.Refuse(w, r, codes.Code(vllmgrpc.CodeOf(e.Status)), e.Message)
		return
	}
	wire.CloseAfter(w, r)
	wire.Answer(w, e)
}

// startingFor returns how long the server still pretends to start.
func (s *Server) startingFor() machine.Time {
	if s.opts.StartupDelay == 0 {
		return 0
	}
	return machine.FromDuration(s.opts.StartupDelay - time.Since(s.started))
}

func (s *Server) healthy() bool { return !s.engine.Dead() && s.startingFor() <= 0 }
