package modelserver

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver"
)

// store keeps what clients may ask for again: responses, conversations, and
// which handles were fetched.
type store struct {
	mu   sync.Mutex
	kept *bounded.Store[string, any]
}

const (
	maxStoredBytes = 64 << 20
	// maxConversationBytes bounds one conversation, so that it does not push
	// out all others.
	maxConversationBytes = maxStoredBytes / 4
	// storedBytes is what keeping anything takes beside the thing itself.
	storedBytes = 256
)

func newStore() *store {
	return &store{kept: bounded.New[string, any](bounded.Limits{Entries: modelserver.MaxStored, Bytes: maxStoredBytes}, nil)}
}

// put keeps a value under a key; bytes is all that it leads to.
func (s *store) put(key string, value any, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Put(key, value, storedBytes+len(key)+bytes)
}

// grow tells by how much a value has grown, or shrunk.
func (s *store) grow(key string, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Grow(key, bytes)
}

func (s *store) get(key string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.Get(key)
}

// delete is false when there was nothing under the key.
func (s *store) delete(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.Delete(key)
}

func itemsBytes(items []modelserver.Item) (n int) {
	for i := range items {
		n += items[i].Bytes()
	}
	return n
}
