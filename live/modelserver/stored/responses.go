package stored

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// getResponse answers GET /v1/responses/{id}.
func (s *Store) getResponse(w http.ResponseWriter, r *http.Request) {
	v, ok := s.get(r.PathValue("id"))
	resp, isResponse := v.(*modelserver.StoredResponse)
	if !ok || !isResponse {
		wire.Answer(w, modelserver.UnknownResponse(r.PathValue("id"), s.responses))
		return
	}
	wire.Write(w, http.StatusOK, wire.JSON, resp.Body)
}

// cancelResponse answers POST /v1/responses/{id}/cancel. No response runs in the background here, so there is never
// anything to cancel.
func (s *Store) cancelResponse(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.get(r.PathValue("id")); !ok {
		wire.Answer(w, modelserver.UnknownResponse(r.PathValue("id"), s.responses))
		return
	}
	wire.Answer(w, openai.BadRequest("response_id", "Cannot cancel a synchronous response."))
}

// deleteResponse answers DELETE /v1/responses/{id}.
func (s *Store) deleteResponse(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !strings.HasPrefix(id, "resp_") || !s.delete(id) {
		wire.Answer(w, modelserver.UnknownResponse(id, true))
		return
	}
	wire.Write(w, http.StatusOK, wire.JSON, fmt.Appendf(nil, `{"id":%q,"object":"response","deleted":true}`, id))
}
