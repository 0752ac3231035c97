package up

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	core "github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/internal/pause"
)

// looked is how often Envoy is asked which endpoints it has ejected: it sends
// requests there all the same where a picker names them, so pickers must not.
const looked = 200 * time.Millisecond

// followEjections takes what Envoy has ejected from the pickers, and gives it back,
// until ctx ends.
func (u *Up) followEjections(ctx context.Context) {
	for pause.For(ctx, looked) {
		u.lookForEjected(ctx)
	}
}

func (u *Up) lookForEjected(ctx context.Context) {
	u.applying.Lock()
	defer u.applying.Unlock()
	if u.program == nil || !slices.ContainsFunc(u.program.Backends, func(b *gateway.Backend) bool {
		return b.Pool != nil && (b.Health != nil || b.Limits != nil && b.Limits.Outlier != nil)
	}) {
		return
	}
	now, err := u.Envoy.Ejected(ctx)
	if err != nil {
		if ctx.Err() == nil {
			u.log.Warn("Envoy does not say which endpoints are ejected", "error", err)
		}
		return
	}
	if reflect.DeepEqual(now, u.ejected) || len(now)+len(u.ejected) == 0 {
		return
	}
	u.log.Info("endpoints are ejected", "by cluster", now)
	u.ejected = now
	(&change{u: u, s: u.objects, program: u.program, pods: u.pods, pickers: u.pickers}).tellPickers()
}

// withoutEjected leaves out what Envoy has ejected; where that is all of them, they
// stay: somebody must answer.
func (u *Up) withoutEjected(key string, list []*core.Endpoint) []*core.Endpoint {
	out := slices.DeleteFunc(slices.Clone(list), func(e *core.Endpoint) bool { return slices.Contains(u.ejected[key], e.HostPort()) })
	if len(out) == 0 {
		return list
	}
	return out
}
