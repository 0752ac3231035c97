package modelserver

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// store keeps what clients may ask for again: responses and conversations. It
// forgets the least recently used when it is full.
type store struct {
	mu    sync.Mutex
	items *simplelru.LRU[string, stored]
	bytes int
}

type stored struct {
	value any
	size  int
}

const (
	maxStored      = 10_000
	maxStoredBytes = 64 << 20
)

func newStore() *store {
	s := &store{}
	s.items, _ = simplelru.NewLRU(maxStored, func(_ string, v stored) { s.bytes -= v.size }) // fails for lengths below 1 alone
	return s
}

// put keeps a value under a key; size is what it weighs, in bytes.
func (s *store) put(key string, value any, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items.Remove(key)
	s.bytes += size
	s.items.Add(key, stored{value, size})
	for s.bytes > maxStoredBytes && s.items.Len() > 1 {
		s.items.RemoveOldest()
	}
}

func (s *store) get(key string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.items.Get(key)
	return v.value, ok
}

// delete is false when there was nothing under the key.
func (s *store) delete(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items.Remove(key)
}
