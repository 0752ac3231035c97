package modelserver

import (
	"net/http"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// seenMedia are the latest media in a server's requests. They stand for vLLM's cache of its multi-modal processor's
// results.
type seenMedia struct {
	mu            sync.Mutex
	known         *simplelru.LRU[string, struct{}]
	queries, hits uint64
}

// seenLength limits how many media the server remembers. vLLM's 4 GiB hold some thousand images.
const seenLength = 4096

func (x *seenMedia) show(all []modelserver.Media) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known == nil {
		x.known, _ = simplelru.NewLRU[string, struct{}](seenLength, nil) // fails only for lengths below 1
	}
	for i := range all {
		x.queries++
		if _, ok := x.known.Get(all[i].Hash); ok {
			x.hits++
		}
		x.known.Add(all[i].Hash, struct{}{})
	}
}

func (x *seenMedia) counts() (queries, hits float64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return float64(x.queries), float64(x.hits)
}

// query answers GET /query as Mooncake's bootstrap server does: it names the engine of each data-parallel rank.
func (s *Server) query(w http.ResponseWriter, _ *http.Request) {
	b := openai.AppendString([]byte(`{"0":{"engine_id":`), s.reader.EngineID)
	wire.Write(w, http.StatusOK, wire.JSON, append(b, "}}"...))
}
