package envoy

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// FollowEjected tells which endpoints are ejected or fail their health checks (Ejected),
// whenever that has changed, until ctx ends. It asks only while ejects is true. Envoy sends
// requests to such endpoints all the same where a picker names them, so pickers must not.
func (p *Process) FollowEjected(ctx context.Context, log *slog.Logger, ejects func() bool,
	tell func(byCluster map[string][]string)) {
	var last map[string][]string
	for pause.For(ctx, upstream.Look) {
		if !ejects() {
			continue
		}
		now, err := p.Ejected(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Warn("Envoy does not say which endpoints are ejected", "error", err)
		case !maps.EqualFunc(now, last, slices.Equal):
			log.Info("endpoints are ejected", "by cluster", now)
			last = now
			tell(now)
		}
	}
}
