package session

import (
	"encoding/json"
	"maps"

	"github.com/windtunnel/windtunnel/core/machine"
)

type savedSessions struct {
	Swept    machine.Time            `json:"swept,omitempty"`
	Sessions map[string]savedBinding `json:"sessions,omitempty"`
}

type savedBinding struct {
	Endpoint string       `json:"endpoint"`
	Seen     machine.Time `json:"seen"`
}

// SaveState copies who is bound where.
func (s *session) SaveState() any {
	out := savedSessions{Swept: s.swept, Sessions: make(map[string]savedBinding, len(s.bindings))}
	for id, b := range s.bindings {
		out.Sessions[id] = savedBinding{b.endpoint, b.seen}
	}
	return out
}

// LoadState takes it over.
func (s *session) LoadState(text []byte) error {
	var x savedSessions
	if err := json.Unmarshal(text, &x); err != nil {
		return err
	}
	s.swept = x.Swept
	for id, b := range x.Sessions {
		s.bindings[id] = binding{b.Endpoint, b.Seen}
	}
	return nil
}

// SaveState copies which conversations were seen.
func (h *conversationHandler) SaveState() any { return maps.Clone(h.seen) }

// LoadState takes it over.
func (h *conversationHandler) LoadState(text []byte) error { return json.Unmarshal(text, &h.seen) }
