package modelserver

import (
	"net/http"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// sglangType returns the value of SGLang's label engine_type for a server's part in KV transfers.
func sglangType(role string) string {
	switch role {
	case connector.RoleProducer:
		return "prefill"
	case connector.RoleConsumer:
		return "decode"
	}
	return "unified"
}

// sglang registers SGLang's own routes beside OpenAI's API (python/sglang/srt/entrypoints/http_server.py).
func (s *Server) sglang(mux *http.ServeMux) {
	mux.HandleFunc("POST /generate", s.inference(modelserver.SGLangGenerate))
	mux.HandleFunc("GET /health_generate", s.health)
	for _, path := range []string{"GET /get_model_info", "GET /model_info"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			wire.Fill(w, `{"model_path":$,"tokenizer_path":$,"is_generation":true,"preferred_sampling_params":null,`+
				`"weight_version":"default"}`, s.opts.Models[0], s.opts.Models[0])
		})
	}
}
