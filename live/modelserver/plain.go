package modelserver

import (
	"net/http"
	"strconv"

	"github.com/windtunnel/windtunnel/core/held"
	"github.com/windtunnel/windtunnel/core/openai"
)

// health answers /health: 200 with an empty body, as vLLM does.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	w.Header()["Content-Length"] = []string{"0"}
	w.WriteHeader(http.StatusOK)
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
	b = append(b, "]}"...)
	writeWhole(w, http.StatusOK, jsonType, b)
}

func (s *Server) appendModel(b []byte, id, root, parent string) []byte {
	b = append(b, `{"id":`...)
	b = openai.AppendString(b, id)
	b = append(b, `,"object":"model","created":`...)
	b = strconv.AppendInt(b, s.started.Unix(), 10)
	b = append(b, `,"owned_by":"vllm","root":`...)
	b = openai.AppendString(b, root)
	b = append(b, `,"parent":`...)
	if parent == "" {
		b = append(b, "null"...)
	} else {
		b = openai.AppendString(b, parent)
	}
	b = append(b, `,"max_model_len":`...)
	b = strconv.AppendInt(b, int64(s.cfg.MaxModelLen), 10)
	return append(b, `,"permission":[]}`...)
}

func appendEcho(b []byte, metadata string) []byte {
	b = append(b, `,"`+held.EchoField+`":`...)
	return openai.AppendString(b, metadata)
}

// tokenize counts tokens as four bytes each until a tokenizer says better.
func (s *Server) tokenize(text string) []uint32 {
	ids := make([]uint32, 0, len(text)/4+1)
	for len(text) > 0 {
		n := min(4, len(text))
		var id uint32
		for i := range n {
			id = id<<8 | uint32(text[i])
		}
		ids = append(ids, id)
		text = text[n:]
	}
	return ids
}

func (g *generation) kvAnswer() []byte { return nil }
func (g *generation) keep(*kvHeld)     {}
