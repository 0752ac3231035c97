package session

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/machine"
)

type savedSessions struct {
	Sessions map[string]binding `json:"sessions,omitempty"`
}

// SaveState implements picker.StateKeeper.
func (s *session) SaveState() any { return savedSessions{maps.Collect(s.bindings.All())} }

// LoadState implements picker.StateKeeper.
func (s *session) LoadState(text []byte) error {
	var x savedSessions
	if err := json.Unmarshal(text, &x); err != nil {
		return err
	}
	for _, id := range oldestFirst(x.Sessions, func(b binding) machine.Time { return b.Seen }) {
		keep(s.bindings, id, x.Sessions[id], len(x.Sessions[id].Endpoint))
	}
	return nil
}

func oldestFirst[V any](saved map[string]V, seen func(V) machine.Time) []string {
	return slices.SortedFunc(maps.Keys(saved), func(a, b string) int {
		return cmp.Or(cmp.Compare(seen(saved[a]), seen(saved[b])), cmp.Compare(a, b))
	})
}

// SaveState copies which conversations were seen.
func (h *conversationHandler) SaveState() any { return maps.Collect(h.seen.All()) }

// LoadState implements picker.StateKeeper.
func (h *conversationHandler) LoadState(text []byte) error {
	var seen map[string]machine.Time
	if err := json.Unmarshal(text, &seen); err != nil {
		return err
	}
	for _, id := range oldestFirst(seen, func(at machine.Time) machine.Time { return at }) {
		keep(h.seen, id, seen[id], 0)
	}
	return nil
}

// savedSession is a conversation's endpoint.
type savedSession struct {
	ID       string `json:"id"`
	Endpoint string `json:"endpoint"`
}

// SaveState copies where conversations were sent, the oldest first.
func (s *sessionPrefix) SaveState() any {
	out := make([]savedSession, 0, s.sent.Len())
	for id, where := range s.sent.All() {
		out = append(out, savedSession{id, where})
	}
	return out
}

// LoadState implements picker.StateKeeper.
func (s *sessionPrefix) LoadState(text []byte) error {
	var saved []savedSession
	if err := json.Unmarshal(text, &saved); err != nil {
		return err
	}
	for _, x := range saved {
		keep(s.sent, x.ID, x.Endpoint, len(x.Endpoint))
	}
	return nil
}
