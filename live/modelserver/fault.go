package modelserver

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/live/serve"
)

// killBy carries out the faults of a header that concern the whole engine: crash, and fail-rank=N. The request that
// asks for one is the first to find the engine dead. killBy returns the rest of the header, which concerns the request
// alone.
func (s *Server) killBy(r *http.Request, value string) (rest string, err error) {
	var own []string
	for item := range strings.SplitSeq(value, ";") {
		item = strings.TrimSpace(item)
		rank, lost := strings.CutPrefix(item, "fail-rank=")
		c := engine.Control{Op: engine.OpCrash}
		switch {
		case lost:
			if c.Op, c.Rank, err = s.rankOf(rank); err != nil {
				return "", fmt.Errorf("%s %q: %w", modelserver.FaultHeader, value, err)
			}
		case item != "crash":
			own = append(own, item)
			continue
		}
		if len(s.opts.APIKeys) == 0 && !serve.Local(r) {
			return "", fmt.Errorf("%s %q: a server without --api-key takes this from its own machine alone",
				modelserver.FaultHeader, value)
		}
		_ = s.live(c) // an engine that is already dead stays dead
	}
	return strings.Join(own, ";"), nil
}

// rankOf parses the number of a rank of the server's tensor-parallel group.
func (s *Server) rankOf(text string) (engine.Op, int, error) {
	rank, err := strconv.Atoi(text)
	if last := max(1, s.opts.TensorParallel) - 1; err != nil || rank < 0 || rank > last {
		return 0, 0, fmt.Errorf("fail-rank: expected a rank from 0 to %d, got %q", last, text)
	}
	return engine.OpFailRank, rank, nil
}
