package modelserver

import (
	"container/list"
	"sync"
)

// store keeps what clients may ask for again: responses and conversations. It
// forgets the least recently used when it is full.
type store struct {
	mu    sync.Mutex
	items map[string]*list.Element
	order *list.List // most recent first
	bytes int
}

type stored struct {
	key   string
	value any
	size  int
}

const (
	maxStored      = 10_000
	maxStoredBytes = 64 << 20
)

func newStore() *store { return &store{items: map[string]*list.Element{}, order: list.New()} }

// put keeps a value under a key; size is what it weighs, in bytes.
func (s *store) put(key string, value any, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key)
	s.items[key] = s.order.PushFront(stored{key, value, size})
	s.bytes += size
	for s.order.Len() > maxStored || s.bytes > maxStoredBytes && s.order.Len() > 1 {
		s.remove(s.order.Back().Value.(stored).key)
	}
}

func (s *store) get(key string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.items[key]
	if !ok {
		return nil, false
	}
	s.order.MoveToFront(e)
	return e.Value.(stored).value, true
}

// delete is false when there was nothing under the key.
func (s *store) delete(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(key)
}

func (s *store) remove(key string) bool {
	e, ok := s.items[key]
	if ok {
		s.bytes -= e.Value.(stored).size
		s.order.Remove(e)
		delete(s.items, key)
	}
	return ok
}
