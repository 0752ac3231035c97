// Package bounded keeps values by key within a number of entries and a number
// of bytes. When there is room for no more, what was not asked for longest goes
// first. It is for whatever strangers fill: what is kept is what was counted.
//
// A Store belongs to one goroutine, or to whoever holds its owner's lock.
package bounded

import (
	"iter"
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Limits of a Store; 0 is no limit.
type Limits struct {
	Entries int
	Bytes   int
}

// Store is a bounded map.
type Store[K comparable, V any] struct {
	limits  Limits
	entries *simplelru.LRU[K, entry[V]]
	bytes   int
	pushed  func(K, V)
}

type entry[V any] struct {
	value V
	bytes int
}

// New makes a store. Pushed is told of every entry that had to make room for
// others, after it went; it may be nil.
func New[K comparable, V any](limits Limits, pushed func(K, V)) *Store[K, V] {
	if limits.Entries <= 0 {
		limits.Entries = math.MaxInt
	}
	if limits.Bytes <= 0 {
		limits.Bytes = math.MaxInt
	}
	entries, err := simplelru.NewLRU[K, entry[V]](limits.Entries, nil)
	if err != nil {
		panic(err) // of sizes below 1 alone
	}
	return &Store[K, V]{limits: limits, entries: entries, pushed: pushed}
}

// Put keeps a value that weighs so many bytes, in the place of what was under
// its key. It is false, and nothing is under the key, where the value alone is
// beyond the limit.
func (s *Store[K, V]) Put(key K, value V, bytes int) bool {
	s.Delete(key)
	if bytes > s.limits.Bytes {
		return false
	}
	for s.Len() >= s.limits.Entries || s.bytes > s.limits.Bytes-bytes {
		s.push()
	}
	s.entries.Add(key, entry[V]{value, bytes})
	s.bytes += bytes
	return true
}

// Grow changes by how much an entry weighs after its value has changed. It is
// false where there is no such entry any more, or where it is now beyond the
// limit alone and was pushed out.
func (s *Store[K, V]) Grow(key K, bytes int) bool {
	e, ok := s.entries.Get(key)
	if !ok {
		return false
	}
	e.bytes += bytes
	s.bytes += bytes
	s.entries.Add(key, e)
	for s.bytes > s.limits.Bytes { // the entry itself is the youngest
		s.push()
	}
	return s.entries.Contains(key)
}

func (s *Store[K, V]) push() {
	key, e, _ := s.entries.RemoveOldest()
	s.bytes -= e.bytes
	if s.pushed != nil {
		s.pushed(key, e.value)
	}
}

// Get finds a value and makes it the youngest.
func (s *Store[K, V]) Get(key K) (V, bool) {
	e, ok := s.entries.Get(key)
	return e.value, ok
}

// Peek finds a value and leaves its age as it is.
func (s *Store[K, V]) Peek(key K) (V, bool) {
	e, ok := s.entries.Peek(key)
	return e.value, ok
}

// Oldest is the entry that goes first.
func (s *Store[K, V]) Oldest() (K, V, bool) {
	key, e, ok := s.entries.GetOldest()
	return key, e.value, ok
}

// All are the entries, the one that goes first first. Nothing may be changed
// meanwhile.
func (s *Store[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range s.entries.Keys() {
			if v, _ := s.Peek(key); !yield(key, v) {
				return
			}
		}
	}
}

// Delete takes an entry away and says whether it was there.
func (s *Store[K, V]) Delete(key K) bool {
	e, ok := s.entries.Peek(key)
	if ok {
		s.bytes -= e.bytes
		s.entries.Remove(key)
	}
	return ok
}

// Len is the number of entries.
func (s *Store[K, V]) Len() int { return s.entries.Len() }

// Bytes is what they weigh together.
func (s *Store[K, V]) Bytes() int { return s.bytes }
