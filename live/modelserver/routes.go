package modelserver

import (
	"net/http"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/grpcapi"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, api := range modelserver.APIs {
		mux.HandleFunc("POST "+api.Path, s.inference(api))
	}
	s.store.Routes(mux)
	if s.opts.SGLang {
		s.sglang(mux)
	}
	mux.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	mux.HandleFunc("POST /v1/chat/completions/render", s.render(modelserver.Chat, false))
	mux.HandleFunc("POST /v1/completions/render", s.render(modelserver.Completions, true))
	mux.HandleFunc("POST /tokenize", s.tokenizeText)
	mux.HandleFunc("POST /detokenize", s.detokenizeIDs)
	mux.HandleFunc("POST /v1/load_lora_adapter", s.loadAdapter)
	mux.HandleFunc("POST /v1/unload_lora_adapter", s.unloadAdapter)
	mux.HandleFunc("POST /sleep", s.sleep)
	mux.HandleFunc("POST /wake_up", s.wakeUp)
	mux.HandleFunc("GET /is_sleeping", s.isSleeping)
	mux.HandleFunc("POST /reset_prefix_cache", s.resetPrefixCache)
	(&grpcapi.Server{Reader: &s.reader, Engine: s.engine, Infer: s.infer, InFlight: s.InFlight, Healthy: s.healthy,
		Look: s.look, Feed: s.feed, Leaving: s.leaving,
		Started: s.started, Version: s.opts.Version, TokenizerJSON: s.opts.TokenizerJSON,
		MaxBodyBytes: s.opts.MaxBodyBytes}).Routes(mux)
	mux.HandleFunc("GET /admin/config", s.adminConfig)
	mux.HandleFunc("POST /admin/config", s.adminConfig)
	mux.HandleFunc("POST /admin/{op}", s.adminEngine)
	mux.HandleFunc("GET /version", s.version)
	mux.HandleFunc("/ping", s.ping)
	mux.HandleFunc("GET /load", s.load)
	mux.HandleFunc("GET /query", s.query)
	mux.HandleFunc("POST /fake_metrics", s.fakeMetrics)
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /health/ready", s.health)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		wire.CloseAfter(w, r)
		if allowed := methodsOf(mux, r); allowed != "" {
			w.Header().Set("Allow", allowed)
			wire.Answer(w, openai.NoSuchMethod())
			return
		}
		wire.Answer(w, openai.NoSuchPath())
	})
	return mux
}

// direct serves the two paths of nearly all requests. The mux would find the same handlers, but takes longer.
func (s *Server) direct(mux http.Handler) http.Handler {
	chat, completion := s.inference(modelserver.Chat), s.inference(modelserver.Completions)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			switch r.URL.Path {
			case modelserver.Chat.Path:
				chat(w, r)
				return
			case modelserver.Completions.Path:
				completion(w, r)
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// methodsOf returns the methods of a path, or none for a path that the server does not serve.
func methodsOf(mux *http.ServeMux, r *http.Request) string {
	allowed := ""
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := mux.Handler(&other); pattern != "/" {
			if allowed != "" {
				allowed += ", "
			}
			allowed += method
		}
	}
	return allowed
}
