package plugins

import (
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// The plug-ins of document 002, chapter 10. They read Serving: ready,
// sessions, qps and maxQps, as the document's InferencePool status has them.

// readyFilter is ready-filter: only endpoints that are ready. An endpoint that
// says nothing is ready.
type readyFilter struct{ named }

func newReady(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
	return &readyFilter{base("ready-filter", name)}, nil
}

// Filter keeps ready endpoints.
func (f *readyFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	return keep(in, func(i int32) bool { s := c.State(i).Serving; return s == nil || s.Ready })
}

// conversation is the id of the conversation that a request belongs to: what
// the client says, or what a session-id-producer found.
func conversation(r *picker.Request) string {
	return either(strings.TrimSpace(r.Headers.Get(picker.HeaderSessionID)), r.Attributes[KeySessionID("session-id-producer")])
}

// sessionPrefix is session-prefix-scorer: 1 for an endpoint that has the
// request's conversation (document: "Has session?"), 0 for others. A session of
// the endpoint that ends in "*" stands for all that begin so.
type sessionPrefix struct{ named }

func newSessionPrefix(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
	return &sessionPrefix{base("session-prefix-scorer", name)}, nil
}

// Score looks for the conversation.
func (s *sessionPrefix) Score(c *picker.Cycle, in []int32, scores []float64) {
	id := conversation(c.Request)
	for j, i := range in {
		if hasSession(c.State(i), id) {
			scores[j] = 1
		}
	}
}

func hasSession(s *picker.State, id string) bool {
	if id == "" || s.Serving == nil {
		return false
	}
	for _, have := range s.Serving.Sessions {
		if p, all := strings.CutSuffix(have, "*"); have == id || all && strings.HasPrefix(id, p) {
			return true
		}
	}
	return false
}

// qpsLoad is qps-load-scorer: 1 - qps/maxQps. An endpoint without a maximum
// scores 1.
type qpsLoad struct{ named }

func newQPSLoad(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
	return &qpsLoad{base("qps-load-scorer", name)}, nil
}

// Score prefers endpoints with room for more requests per second.
func (s *qpsLoad) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		scores[j] = 1 - load01(c.State(i))
	}
}

// load01 is how loaded an endpoint is, from 0 to 1: by requests per second
// where they are known, else by its queue (five are full) and KV cache.
func load01(s *picker.State) float64 {
	if v := s.Serving; v != nil && v.MaxQPS > 0 {
		return max(0, min(1, v.QPS/v.MaxQPS))
	}
	return max(0, min(1, max(float64(s.Waiting)/5, s.KVUsage)))
}

// criticality is criticality-scorer. The document gives it a weight and no
// formula; here critical requests (priority above 0) prefer the endpoints with
// the least load (1 - load), sheddable ones (below 0) those with the most, so
// that room stays for others, and standard ones have no preference (.5).
type criticality struct{ named }

func newCriticality(_ *picker.Builder, name string, _ picker.Params) (picker.Plugin, error) {
	return &criticality{base("criticality-scorer", name)}, nil
}

// Score goes by the request's priority.
func (s *criticality) Score(c *picker.Cycle, in []int32, scores []float64) {
	for j, i := range in {
		switch p := c.Request.Objective.Priority; {
		case p > 0:
			scores[j] = 1 - load01(c.State(i))
		case p < 0:
			scores[j] = load01(c.State(i))
		default:
			scores[j] = .5
		}
	}
}

// conversationHandler is conversation-profile-handler: a new conversation runs
// through the prefill profile, the follow-up of a known one through decode. A
// conversation is known when an endpoint says that it has it, or when this
// picker has seen it within ttlSeconds.
type conversationHandler struct {
	named
	Prefill    string  `json:"prefillProfile"`
	Decode     string  `json:"decodeProfile"`
	TTLSeconds float64 `json:"ttlSeconds" above:"0"`

	seen map[string]machine.Time
}

func newConversationHandler(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	h := &conversationHandler{named: base("conversation-profile-handler", name), Prefill: prefillProfile, Decode: "decode", TTLSeconds: 300,
		seen: map[string]machine.Time{}}
	return h, p.Decode(h)
}

// Schedule runs one of the two profiles.
func (h *conversationHandler) Schedule(c *picker.Cycle) error {
	name := h.Prefill
	if id := conversation(c.Request); id != "" && h.known(c, id) {
		name = h.Decode
	}
	r := c.Run(name)
	if !r.Ok() {
		return profileFailed(name)
	}
	c.SetPrimary(name)
	return nil
}

func (h *conversationHandler) known(c *picker.Cycle, id string) bool {
	if at, ok := h.seen[id]; ok && c.Now-at < seconds(h.TTLSeconds) {
		return true
	}
	for _, i := range c.Candidates {
		if hasSession(c.State(i), id) {
			return true
		}
	}
	return false
}

// Commit remembers the conversation.
func (h *conversationHandler) Commit(now machine.Time, d *picker.Decision) {
	id := conversation(d.Request)
	if id == "" {
		return
	}
	if len(h.seen) >= maxSessions {
		for k, at := range h.seen {
			if now-at >= seconds(h.TTLSeconds) {
				delete(h.seen, k)
			}
		}
		if len(h.seen) >= maxSessions {
			return
		}
	}
	h.seen[id] = now
}
