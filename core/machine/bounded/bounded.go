// Package bounded keeps values by key, up to a number of entries and a number of bytes. A full Store drops the entries
// whose last use is longest ago. It is for memory that clients from outside can fill.
//
// A Store is not safe for concurrent use: its owner calls it from one goroutine or under a lock.
package bounded

import (
	"iter"
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Limits bounds a Store; 0 is no limit.
type Limits struct {
	Entries int
	Bytes   int
}

// Store is a map within Limits that drops the least recently used entries.
type Store[K comparable, V any] struct {
	limits  Limits
	entries *simplelru.LRU[K, *entry]
	bytes   int
	dropped func(K, V)
}

// entry has a value of type V. Its own type is the same for all V, so that the program has one LRU for each key type.
type entry struct {
	value any
	bytes int
}

// New makes a store. The store calls dropped, which may be nil, for every entry that it removed to make space.
func New[K comparable, V any](limits Limits, dropped func(K, V)) *Store[K, V] {
	if limits.Entries <= 0 {
		limits.Entries = math.MaxInt
	}
	if limits.Bytes <= 0 {
		limits.Bytes = math.MaxInt
	}
	entries, err := simplelru.NewLRU[K, *entry](limits.Entries, nil)
	if err != nil {
		panic(err) // only sizes below 1 fail
	}
	return &Store[K, V]{limits: limits, entries: entries, dropped: dropped}
}

// Put keeps a value of this size, in bytes, in place of the key's old value. If the value alone is beyond the limit,
// Put returns false and the key has no value.
func (s *Store[K, V]) Put(key K, value V, bytes int) bool {
	s.Delete(key)
	if bytes > s.limits.Bytes {
		return false
	}
	for s.Len() >= s.limits.Entries || s.bytes > s.limits.Bytes-bytes {
		s.drop()
	}
	s.entries.Add(key, &entry{value, bytes})
	s.bytes += bytes
	return true
}

// Grow adds bytes to an entry's size after its value has changed. It returns false if there is no such entry, or if the
// entry alone is now beyond the limit and was dropped.
func (s *Store[K, V]) Grow(key K, bytes int) bool {
	e, ok := s.entries.Get(key)
	if !ok {
		return false
	}
	e.bytes += bytes
	s.bytes += bytes
	for s.bytes > s.limits.Bytes { // the entry itself is dropped last
		s.drop()
	}
	return s.entries.Contains(key)
}

func (s *Store[K, V]) drop() {
	key, e, _ := s.entries.RemoveOldest()
	s.bytes -= e.bytes
	if s.dropped != nil {
		s.dropped(key, valueOf[V](e))
	}
}

// valueOf returns an entry's value, the zero value for no entry.
func valueOf[V any](e *entry) (v V) {
	if e != nil {
		v, _ = e.value.(V)
	}
	return v
}

// Get returns a value and makes it the most recently used.
func (s *Store[K, V]) Get(key K) (V, bool) {
	e, ok := s.entries.Get(key)
	return valueOf[V](e), ok
}

// Peek returns a value and does not count as a use.
func (s *Store[K, V]) Peek(key K) (V, bool) {
	e, ok := s.entries.Peek(key)
	return valueOf[V](e), ok
}

// Oldest returns the least recently used entry, the next to be dropped.
func (s *Store[K, V]) Oldest() (K, V, bool) {
	key, e, ok := s.entries.GetOldest()
	return key, valueOf[V](e), ok
}

// All yields the entries, the least recently used first. The reader must not change the store.
func (s *Store[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range s.entries.Keys() {
			if v, _ := s.Peek(key); !yield(key, v) {
				return
			}
		}
	}
}

// Delete removes an entry and reports whether it was there.
func (s *Store[K, V]) Delete(key K) bool {
	e, ok := s.entries.Peek(key)
	if ok {
		s.bytes -= e.bytes
		s.entries.Remove(key)
	}
	return ok
}

// Len returns the number of entries.
func (s *Store[K, V]) Len() int { return s.entries.Len() }

// Bytes returns the entries' total size.
func (s *Store[K, V]) Bytes() int { return s.bytes }
