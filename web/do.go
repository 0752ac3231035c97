package web

import (
	"net/http"
)

// Action describes something that the page's user can do to a live run: one of the incidents of scenarios, or a
// change of the load.
type Action struct {
	Name string `json:"name"`
	// What describes the action in words.
	What string `json:"what"`
	// Servers means that the action applies to one model server, Groups that it applies to one group of servers if
	// the pool has groups, and For that it may have a duration. Number and To are the names of its numbers; "" means
	// that it has none.
	Servers bool   `json:"servers,omitempty"`
	Groups  bool   `json:"groups,omitempty"`
	For     bool   `json:"for,omitempty"`
	Number  string `json:"number,omitempty"`
	To      string `json:"to,omitempty"`
	// Breaks marks an action that does damage.
	Breaks bool `json:"breaks,omitempty"`
}

// Act is one requested action. The action "send" sends a request of the user's own, and "play" plays a point of a
// search.
type Act struct {
	Name   string  `json:"name"`
	Pool   int     `json:"pool"`
	Server int     `json:"server"`
	For    float64 `json:"for"` // seconds
	Number float64 `json:"number"`
	To     float64 `json:"to"`
	Group  string  `json:"group"`
	// For "send": the request's path, headers and body.
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// Search is the result of windtunnel tune, for the view Tune.
type Search struct {
	Verdict    string            `json:"verdict"`
	Knobs      []SearchKnob      `json:"knobs"`
	Objectives []SearchObjective `json:"objectives"`
	Points     []SearchPoint     `json:"points"`
}

// SearchKnob is a field, parameter or weight that varies, with its range in words.
type SearchKnob struct {
	Name  string `json:"name"`
	Range string `json:"range"`
}

// SearchObjective is a measure that the search improves. Higher means that higher values are better.
type SearchObjective struct {
	Name   string `json:"name"`
	Higher bool   `json:"higher,omitempty"`
}

// SearchPoint is a configuration that was played. The action "play" with its index as the number plays it again.
type SearchPoint struct {
	// Of is search, today, or best with more words.
	Of string `json:"of"`
	// Values are by knob, "" where unknown, and At their places in the ranges from 0 to 1, below 0 where unknown.
	Values []string  `json:"values"`
	At     []float64 `json:"at"`
	// Results are by objective, and Texts have their units. Kept means that the limits are kept.
	Results []float64 `json:"results"`
	Texts   []string  `json:"texts"`
	Kept    bool      `json:"kept,omitempty"`
}

// act carries out an action. Its consequences appear in the run's events.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	var a Act
	if !read(w, r, &a) {
		return
	}
	do := s.state.Load().do
	if do == nil {
		problem(w, http.StatusConflict, "the run is over: it takes no actions")
		return
	}
	done, err := do(r.Context(), a)
	if err != nil {
		problem(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	writeJSON(w, map[string]string{"result": done})
}
