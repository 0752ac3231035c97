package stack

import (
	"context"
	"sync"

	"github.com/windtunnel/windtunnel/core/roundrobin"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/live/epp"
)

// director is the picker of a pool without an EndpointPickerConfig.
func (s *Stack) director(errors stream.ErrorStyle) epp.Director {
	picker := roundrobin.New(errors, s.Endpoints, s.Names)
	var mu sync.Mutex
	return epp.DirectorFunc(func(_ context.Context, r *epp.Request) stream.Decision {
		mu.Lock()
		defer mu.Unlock()
		return picker.Pick(r.Head, r.Body)
	})
}
