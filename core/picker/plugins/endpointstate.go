package plugins

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/picker"
)

// The plug-ins of document 002, chapter 10, read what an InferencePool's
// status says of an endpoint there: ready, sessions, qps, maxQps. An endpoint
// that says nothing of the kind is ready and idle and holds no session.

// readyFilter is ready-filter: endpoints that say they are not ready go.
type readyFilter struct{ named }

func newReady(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	return &readyFilter{base("ready-filter", name)}, p.Decode(&struct{}{})
}

// Filter keeps ready endpoints.
func (f *readyFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool { return ready(c.State(i)) })
}

// Why says what an endpoint lacked.
func (f *readyFilter) Why(*picker.Decision, int32) string { return "is not ready" }

func ready(s *picker.State) bool { return s.Serving == nil || s.Serving.Ready }

// sessionPrefix is session-prefix-scorer, document 002's prefix cache scorer:
// 1 for an endpoint that holds the request's session, else 0.
type sessionPrefix struct {
	named
	Header string `json:"headerName"`
}

func newSessionPrefix(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	s := &sessionPrefix{base("session-prefix-scorer", name), picker.HeaderSessionID}
	return s, p.Decode(s)
}

// Score prefers the endpoint that has the conversation's KV cache.
func (s *sessionPrefix) Score(c *picker.Cycle, in []int32, scores []float64) {
	id, _ := c.Request.Headers.Get(s.Header)
	if id == "" {
		return
	}
	for j, i := range in {
		if holdsSession(c.State(i), id) {
			scores[j] = 1
		}
	}
}

func holdsSession(s *picker.State, id string) bool {
	return s.Serving != nil && slices.Contains(s.Serving.Sessions, id)
}

// qpsLoad is qps-load-scorer, document 002's load-aware scorer:
// 1 - qps/maxQps, not below 0. An endpoint without a limit counts as idle.
type qpsLoad struct{ named }

func newQPSLoad(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	return &qpsLoad{base("qps-load-scorer", name)}, p.Decode(&struct{}{})
}

// Score prefers endpoints with room for more requests per second.
func (s *qpsLoad) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		scores[j] = 1 - qpsShare(c.State(i))
	}
}

// qpsShare is the part of an endpoint's requests per second that is in use.
func qpsShare(s *picker.State) float64 {
	if s.Serving == nil || !(s.Serving.MaxQPS > 0) {
		return 0
	}
	return min(1, max(0, s.Serving.QPS/s.Serving.MaxQPS))
}
