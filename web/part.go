package web

import (
	"context"
	"net/http"
)

// Part is the state of one part of a live run.
type Part struct {
	// Facts are the part's counts and settings by name, in display order.
	Facts [][2]string `json:"facts"`
	// Config is the configuration in force, as text.
	Config string `json:"config"`
}

// Parts sets the function that returns a part's state. Ids are client, envoy, bbr, epp, sidecar, kv, or "pod " with an
// address. In a run of several pools, a pool's name follows epp and sidecar.
func (s *Server) Parts(ask func(ctx context.Context, id string) (Part, error)) {
	s.change(func(p *sources) { p.part = ask })
}

// part answers with one part's state.
func (s *Server) part(w http.ResponseWriter, r *http.Request) {
	ask := s.state.Load().part
	if ask == nil {
		problem(w, http.StatusNotFound, "this run has no parts that report their state")
		return
	}
	state, err := ask(r.Context(), r.URL.Query().Get("id"))
	if err != nil {
		problem(w, http.StatusBadGateway, err.Error())
		return
	}
	writeJSON(w, state)
}
