package web

import (
	"net/http"
)

// Action is something that somebody can do to a live run from the page: one of the
// incidents that scenarios have, or a change of its load.
type Action struct {
	Name string `json:"name"`
	// What it does, in words.
	What string `json:"what"`
	// Servers says that it happens at a model server, Groups to a group of them where the pool
	// has groups, and For that it may end by itself. Number and To are what its numbers are, ""
	// where it takes none.
	Servers bool   `json:"servers,omitempty"`
	Groups  bool   `json:"groups,omitempty"`
	For     bool   `json:"for,omitempty"`
	Number  string `json:"number,omitempty"`
	To      string `json:"to,omitempty"`
	// Breaks says that it is trouble.
	Breaks bool `json:"breaks,omitempty"`
}

// Act is the wish for one. A Send is a request of somebody's own.
type Act struct {
	Name   string  `json:"name"`
	Pool   int     `json:"pool"`
	Server int     `json:"server"`
	For    float64 `json:"for"` // seconds
	Number float64 `json:"number"`
	To     float64 `json:"to"`
	Group  string  `json:"group"`
	// Of a request that is sent: its body, path, headers, and whether its body is streamed.
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// act does what somebody wants done. What comes of it is in the run's events.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	var a Act
	if !read(w, r, &a) {
		return
	}
	do := s.state.Load().do
	if do == nil {
		problem(w, http.StatusConflict, "nothing can be done to a run that is over")
		return
	}
	told, err := do(r.Context(), a)
	if err != nil {
		problem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	tell(w, map[string]string{"told": told})
}
