package modelserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/openai"
)

// guard stands before every route: keys where the server has some, the
// headers of llm-d-inference-sim's pods, and health while it starts.
func (s *Server) guard(next http.Handler) http.Handler {
	if s.opts.OutOfMemory != nil {
		return http.HandlerFunc(s.killed)
	}
	if len(s.opts.APIKeys) == 0 && s.opts.PodName == "" && s.opts.StartupDelay == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.PodName != "" {
			w.Header().Set("X-Inference-Pod", s.opts.PodName)
			w.Header().Set("X-Inference-Namespace", s.opts.PodNamespace)
			if _, port, ok := strings.Cut(s.endpoint, ":"); ok {
				w.Header().Set("X-Inference-Port", port)
			}
		}
		if strings.HasPrefix(r.URL.Path, "/v1") && !s.allowed(r.Header.Get("Authorization")) {
			closeAfter(w, r)
			answer(w, &openai.Error{Status: http.StatusUnauthorized, Type: "Unauthorized", Message: "Unauthorized"})
			return
		}
		if left := s.startingFor(); left > 0 && (r.URL.Path == "/health" || r.URL.Path == "/health/ready") {
			w.Header().Set("Retry-After", strconv.Itoa(int(left/machine.Second)+1))
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed compares digests, so that the time it takes tells nothing of a key.
func (s *Server) allowed(authorization string) bool {
	if len(s.opts.APIKeys) == 0 {
		return true
	}
	got := sha256.Sum256([]byte(strings.TrimPrefix(authorization, "Bearer ")))
	ok := 0
	for _, key := range s.opts.APIKeys {
		want := sha256.Sum256([]byte(key))
		ok |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return ok == 1 && strings.HasPrefix(authorization, "Bearer ")
}

// startingFor is how long the server still pretends to start.
func (s *Server) startingFor() machine.Time {
	if s.opts.StartupDelay == 0 {
		return 0
	}
	return machine.FromDuration(s.opts.StartupDelay - time.Since(s.started))
}
