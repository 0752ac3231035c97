package web

import (
	"context"
	"net/http"
)

// Room is what a part of a live run says of itself now.
type Room struct {
	// Facts are what it counts, by name, in the order in which they are shown.
	Facts [][2]string `json:"facts"`
	// Config is its configuration in force, as text.
	Config string `json:"config"`
}

// Rooms says who knows what a part is and does now: client, envoy, bbr, epp, sidecar, kv, or
// "pod " with an address.
func (s *Server) Rooms(ask func(ctx context.Context, id string) (Room, error)) {
	s.change(func(p *parts) { p.rooms = ask })
}

// room tells of one part.
func (s *Server) room(w http.ResponseWriter, r *http.Request) {
	ask := s.state.Load().rooms
	if ask == nil {
		problem(w, http.StatusNotFound, "no part of this run is there to be asked")
		return
	}
	told, err := ask(r.Context(), r.URL.Query().Get("id"))
	if err != nil {
		problem(w, http.StatusBadGateway, err.Error())
		return
	}
	writeJSON(w, told)
}
