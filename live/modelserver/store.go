package modelserver

import (
	"reflect"
	"sync"

	"github.com/windtunnel/windtunnel/core/bounded"
	"github.com/windtunnel/windtunnel/core/openai"
)

// store keeps what clients may ask for again: responses, conversations, and
// which handles were fetched.
type store struct {
	mu   sync.Mutex
	kept *bounded.Store[string, any]
}

const (
	maxStored      = 10_000
	maxStoredBytes = 64 << 20
	// maxConversationBytes bounds one conversation, so that it does not push
	// out all others.
	maxConversationBytes = maxStoredBytes / 4
	// storedBytes is what keeping anything takes beside the thing itself.
	storedBytes = 256
)

func newStore() *store {
	return &store{kept: bounded.New[string, any](bounded.Limits{Entries: maxStored, Bytes: maxStoredBytes}, nil)}
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

// The sizes of what is kept without what it leads to. Lists are made with room
// for up to twice as many.
var (
	itemBytes    = 2 * int(reflect.TypeFor[item]().Size())
	messageBytes = 2 * int(reflect.TypeFor[openai.Message]().Size())
	partBytes    = 2 * int(reflect.TypeFor[openai.Part]().Size())
)

func contentBytes(c *openai.Content) int {
	n := len(c.Text)
	for i := range c.Media {
		n += partBytes + len(c.Media[i].Type) + len(c.Media[i].URL)
	}
	return n
}

// bytes is what an item of a conversation takes.
func (it *item) bytes() int {
	return itemBytes + len(it.ID) + len(it.Type) + len(it.Role) + contentBytes(&it.Content) +
		len(it.Name) + len(it.Arguments) + len(it.CallID) + cap(it.Output) + cap(it.raw)
}

func itemsBytes(items []item) (n int) {
	for i := range items {
		n += items[i].bytes()
	}
	return n
}

// bytes is what a response takes.
func (r *storedResponse) bytes() int {
	n := cap(r.body)
	for i := range r.messages {
		m := &r.messages[i]
		n += messageBytes + len(m.Role) + contentBytes(&m.Content)
	}
	return n
}
