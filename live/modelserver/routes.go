package modelserver

import (
	"net/http"

	"github.com/windtunnel/windtunnel/core/openai"
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.generation(prepareChat))
	mux.HandleFunc("POST /v1/completions", s.generation(prepareCompletion))
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, openai.Errorf(404, "", "Not Found"))
	})
	return mux
}

// echo is the field in which a held request's metadata goes back.
func (g *generation) echo(metadata string) []byte {
	if !g.session.Held() {
		return nil
	}
	return appendEcho(nil, metadata)
}
