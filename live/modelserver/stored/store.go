// Package stored keeps what a model server's clients may ask for again, responses
// and conversations, and serves the API for them.
package stored

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/machine/bounded"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
)

// Store has the responses and conversations, and which handles were fetched.
type Store struct {
	maxBody   int64 // of a request, in bytes
	responses bool  // are stored, beside conversations

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

// New is an empty store; requests have bodies of at most maxBody bytes. Without responses it keeps conversations alone.
func New(maxBody int64, responses bool) *Store {
	return &Store{maxBody: maxBody, responses: responses,
		kept: bounded.New[string, any](bounded.Limits{Entries: modelserver.MaxStored, Bytes: maxStoredBytes}, nil)}
}

// put keeps a value under a key; bytes is all that it leads to.
func (s *Store) put(key string, value any, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Put(key, value, storedBytes+len(key)+bytes)
}

// grow tells by how much a value has grown, or shrunk.
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

// delete is false when there was nothing under the key.
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

// Fetched notes a kv_handle, and tells whether it was noted before.
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
