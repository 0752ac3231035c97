package modelserver

import (
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
)

// KVPublisher takes the KV events of one server, in order. It batches and sends them by itself. Publish must never
// block, because the engine waits for it.
type KVPublisher interface {
	Publish(kv.Event)
	// Close sends the remaining events and ends the publisher.
	Close()
}

func (s *Server) publish(e kv.Event) {
	if s.publisher == nil {
		return
	}
	e.At = unixSeconds(time.Now())
	s.publisher.Publish(e)
	s.feed.Add(e)
}
