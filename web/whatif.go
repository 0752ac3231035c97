package web

import (
	"net/http"

	"github.com/windtunnel/windtunnel/core/epp/whatif"
)

// mostMoved is how many of the latest requests that would have moved an answer lists.
const mostMoved = 1000

// ask answers a what-if question of the page. Questions wait for each other, and end when the page has left them for a
// newer one.
func (s *Server) ask(w http.ResponseWriter, r *http.Request) {
	var q whatif.Question
	if !read(w, r, &q) {
		return
	}
	each := s.state.Load().inputs
	if each == nil {
		problem(w, http.StatusConflict, "this run has no log of inputs")
		return
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-r.Context().Done():
		return
	}
	q.Most = mostMoved
	a, err := whatif.Ask(func(line func([]byte) error) error {
		return each(func(b []byte) error {
			if err := r.Context().Err(); err != nil {
				return err
			}
			return line(b)
		})
	}, q)
	if err != nil {
		problem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	writeJSON(w, a)
}
