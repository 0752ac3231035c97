package plugins

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/picker/config"
)

// conversation is conversation-profile-handler, document 002's profile
// handler: a request that continues a conversation runs the decode profile,
// all others the prefill profile. A conversation continues when an endpoint
// says that it holds the session (header x-session-id), or when a request of
// that session came here less than ttl ago.
type conversation struct {
	named
	Prefill string          `json:"prefillProfile"`
	Decode  string          `json:"decodeProfile"`
	Header  string          `json:"headerName"`
	TTL     config.Duration `json:"ttl"`

	seen    map[string]machine.Time // session -> last request
	sweepAt machine.Time
}

func newConversation(_ *picker.Builder, name string, p picker.Params) (picker.Plugin, error) {
	h := &conversation{named: base("conversation-profile-handler", name), Prefill: prefillProfile, Decode: "decode",
		Header: picker.HeaderSessionID, TTL: config.Duration(300 * machine.Second), seen: map[string]machine.Time{}}
	if err := p.Decode(h); err != nil {
		return nil, err
	}
	if h.TTL <= 0 {
		return nil, p.Errorf("ttl must be above 0s")
	}
	return h, nil
}

// CheckProfiles wants both profiles.
func (h *conversation) CheckProfiles(names []string) error {
	for _, want := range []string{h.Prefill, h.Decode} {
		if !contains(names, want) {
			return fmt.Errorf("conversation-profile-handler needs a scheduling profile %q; found %v", want, names)
		}
	}
	return nil
}

// Schedule runs the profile for the conversation's stage.
func (h *conversation) Schedule(c *picker.Cycle) error {
	name := h.Prefill
	if h.continues(c) {
		name = h.Decode
	}
	if !c.Run(name).Ok() {
		return fmt.Errorf("failed to run scheduler profile '%s'", name)
	}
	c.SetPrimary(name)
	return nil
}

func (h *conversation) continues(c *picker.Cycle) bool {
	id, _ := c.Request.Headers.Get(h.Header)
	if id == "" {
		return false
	}
	if last, ok := h.seen[id]; ok && c.Now-last < h.TTL.Time() {
		return true
	}
	for i := range c.View.States {
		if holdsSession(&c.View.States[i], id) {
			return true
		}
	}
	return false
}

// Commit remembers the conversation.
func (h *conversation) Commit(now machine.Time, d *picker.Decision) {
	id, _ := d.Request.Headers.Get(h.Header)
	if id == "" {
		return
	}
	if now >= h.sweepAt {
		for id, last := range h.seen {
			if now-last >= h.TTL.Time() {
				delete(h.seen, id)
			}
		}
		h.sweepAt = now + h.TTL.Time()/10
	}
	if _, known := h.seen[id]; known || len(h.seen) < maxSessions {
		h.seen[id] = now
	}
}
