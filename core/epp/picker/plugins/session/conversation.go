package session

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/machine"
)

// conversation returns the id of the conversation that a request belongs to: what
// the client says, or what a session-id-producer found.
func conversation(r *picker.Request) string {
	return cmp.Or(strings.TrimSpace(r.Headers.Get(picker.HeaderSessionID)),
		r.Attributes[KeySessionID("session-id-producer")])
}

// sessionPrefix is session-prefix-scorer: 1 for an endpoint that has the request's conversation (document 002, chapter
// 10: "Has session?"), 0 for others. An announced session that ends in "*" means all sessions with that prefix. In
// addition to the announcements, a conversation counts as being at the endpoint to which this picker sent it last.
type sessionPrefix struct {
	named
	sent *memory[string] // endpoint by conversation
}

// NewPrefixScorer makes a session-prefix-scorer.
func NewPrefixScorer(*picker.Builder, string, picker.Params) (picker.Plugin, error) {
	return &sessionPrefix{named{}, newMemory[string]()}, nil
}

// ScoresCache implements picker.CacheScorer.
func (s *sessionPrefix) ScoresCache() {}

// Score looks for the conversation.
func (s *sessionPrefix) Score(c *picker.Cycle, in []int32, scores []float64) {
	id := conversation(c.Request)
	sent, ok := s.sent.Peek(id)
	for j, i := range in {
		if hasSession(c.State(i), id) || ok && c.State(i).ID() == sent {
			scores[j] = 1
		}
	}
}

// Commit remembers where the conversation went.
func (s *sessionPrefix) Commit(_ machine.Time, d *picker.Decision) {
	if id := conversation(d.Request); id != "" && len(d.Targets) > 0 {
		where := d.Targets[0].Endpoint.ID()
		keep(s.sent, id, where, len(where))
	}
}

func hasSession(s *picker.State, id string) bool {
	if id == "" || s.Announced == nil {
		return false
	}
	return slices.ContainsFunc(s.Announced.Sessions, func(have string) bool {
		p, all := strings.CutSuffix(have, "*")
		return have == id || all && strings.HasPrefix(id, p)
	})
}

// conversationHandler is conversation-profile-handler: a new conversation runs through the prefill profile, the
// follow-up of a known one through decode. A conversation is known if an endpoint announces it, or if this picker has
// seen it within ttlSeconds.
type conversationHandler struct {
	named
	Prefill    string  `json:"prefillProfile"`
	Decode     string  `json:"decodeProfile"`
	TTLSeconds float64 `json:"ttlSeconds" above:"0"`

	seen *memory[machine.Time]
}

// NewConversationHandler makes a conversation-profile-handler.
func NewConversationHandler(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	h := &conversationHandler{Prefill: "prefill", Decode: "decode", TTLSeconds: 300,
		seen: newMemory[machine.Time]()}
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
		return fmt.Errorf("failed to run scheduler profile '%s'", name)
	}
	c.SetPrimary(name)
	return nil
}

func (h *conversationHandler) known(c *picker.Cycle, id string) bool {
	at, ok := h.seen.Peek(id)
	return ok && c.Now-at < config.Seconds(h.TTLSeconds) ||
		slices.ContainsFunc(c.Candidates, func(i int32) bool { return hasSession(c.State(i), id) })
}

// Commit remembers the conversation.
func (h *conversationHandler) Commit(now machine.Time, d *picker.Decision) {
	id := conversation(d.Request)
	if id == "" {
		return
	}
	forget(h.seen, func(at machine.Time) bool { return now-at >= config.Seconds(h.TTLSeconds) })
	keep(h.seen, id, now, 0)
}
