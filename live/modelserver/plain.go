package modelserver

import (
	"net/http"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// health answers /health as vLLM does: 200 with an empty body, or 503 if the engine is dead.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if s.engine.Dead() {
		w.Header()["Content-Length"] = []string{"0"}
		w.WriteHeader(modelserver.StatusDead)
		return
	}
	wire.Empty(w)
}

// models answers /v1/models.
func (s *Server) models(w http.ResponseWriter, r *http.Request) {
	b := []byte(`{"object":"list","data":[`)
	for i, m := range s.opts.Models {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendModel(b, m, s.opts.Models[0], "")
	}
	for _, a := range s.adapters.list() {
		base := a.Base
		if base == "" {
			base = s.opts.Models[0]
		}
		b = append(b, ',')
		b = s.appendModel(b, a.Name, a.Path, base)
	}
	b = append(b, "]}"...)
	wire.Write(w, http.StatusOK, wire.JSON, b)
}

// version answers /version.
func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	wire.Fill(w, `{"version":$}`, s.opts.Version)
}

// ping answers /ping, SageMaker's health check.
func (s *Server) ping(w http.ResponseWriter, r *http.Request) { wire.Empty(w) }

// load answers /load with the number of the server's requests (vLLM: --enable-server-load-tracking).
func (s *Server) load(w http.ResponseWriter, r *http.Request) {
	wire.Fill(w, `{"server_load":$}`, s.inFlight.value())
}

func (s *Server) appendModel(b []byte, id, root, parent string) []byte {
	return openai.Fill(b, `{"id":$,"object":"model","created":$,"owned_by":"vllm","root":$,"parent":$,`+
		`"max_model_len":$,`+
		`"permission":[]}`, id, s.started.Unix(), root, openai.OrNull(parent), s.cfg.MaxModelLen)
}
