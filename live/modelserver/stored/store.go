// Package stored keeps the responses and conversations that a model server's clients may ask for again, and serves the
// API for them.
package stored

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Store holds the responses and conversations, and the handles that were fetched.
type Store struct {
	maxBody   int64 // limit of a request's body, in bytes
	responses bool  // responses are stored, beside conversations

	mu   sync.Mutex
	kept *bounded.Store[string, any]
}

const (
	maxStoredBytes = 64 << 20
	// maxConversationBytes limits one conversation, so that it does not evict all others.
	maxConversationBytes = maxStoredBytes / 4
	// storedBytes is the overhead of an entry.
	storedBytes = 256
)

// New returns an empty store. Request bodies have at most maxBody bytes. Without responses, the store keeps
// conversations alone.
func New(maxBody int64, responses bool) *Store {
	return &Store{maxBody: maxBody, responses: responses,
		kept: bounded.New[string, any](bounded.Limits{Entries: modelserver.MaxStored, Bytes: maxStoredBytes}, nil)}
}

// put stores a value under a key. bytes is the size of everything that the value refers to.
func (s *Store) put(key string, value any, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Put(key, value, storedBytes+len(key)+bytes)
}

// grow adjusts the size of a value that has grown, or shrunk, by this number of bytes.
func (s *Store) grow(key string, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Grow(key, bytes)
}

func (s *Store) get(key string) (any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.Get(key)
}

// delete returns false if the key has no value.
func (s *Store) delete(key string) bool {
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

// Fetched records a kv_handle, and reports whether it was recorded before.
func (s *Store) Fetched(handle string) bool {
	_, fetched := s.get(handle)
	if !fetched {
		s.put(handle, nil, 0)
	}
	return fetched
}

// Response implements modelserver.Stored.
func (s *Store) Response(id string) ([]openai.Message, bool) {
	v, _ := s.get(id)
	r, ok := v.(*modelserver.StoredResponse)
	if !ok {
		return nil, false
	}
	return r.Messages, true
}

// KeepResponse implements modelserver.Stored.
func (s *Store) KeepResponse(id string, r *modelserver.StoredResponse) { s.put(id, r, r.Bytes()) }

// Conversation implements modelserver.Stored.
func (s *Store) Conversation(id string) ([]modelserver.Item, bool) {
	c := s.conversation(id)
	if c == nil {
		return nil, false
	}
	return c.list(), true
}

// Continue implements modelserver.Stored.
func (s *Store) Continue(id string, items []modelserver.Item) {
	if c := s.conversation(id); c != nil {
		s.addTo(c, items)
	}
}
