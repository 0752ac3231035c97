package envoy

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// FollowEjected calls its callback with the endpoints that are ejected or fail their health checks (Ejected), at each
// change, until ctx ends. It asks Envoy only while ejects returns true. Envoy sends requests to such endpoints anyway
// if a picker names them, so pickers must not name them.
func (p *Process) FollowEjected(ctx context.Context, log *slog.Logger, ejects func() bool,
	changed func(byCluster map[string][]string)) {
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
			changed(now)
		}
	}
}
