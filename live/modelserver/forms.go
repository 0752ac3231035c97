package modelserver

import (
	"sync"

	"github.com/windtunnel/windtunnel/core/modelserver"
)

// forms caches the forms that requests asked for lately. It is safe for concurrent use.
type forms struct {
	mu   sync.Mutex
	kept *modelserver.FormStore
}

// Get implements modelserver.Forms.
func (f *forms) Get(k modelserver.FormKey) (modelserver.Form, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept.Get(k)
}

// Put implements modelserver.Forms.
func (f *forms) Put(k modelserver.FormKey, x modelserver.Form) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept.Put(k, x)
}
