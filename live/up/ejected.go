package up

import "context"

// followEjections withholds endpoints that Envoy has ejected from the pickers, and returns them once Envoy does, until
// ctx ends.
func (u *Up) followEjections(ctx context.Context) {
	u.Envoy.FollowEjected(ctx, u.log, func() bool {
		u.applying.Lock()
		defer u.applying.Unlock()
		return u.program != nil && u.program.Ejects()
	}, func(now map[string][]string) {
		u.applying.Lock()
		defer u.applying.Unlock()
		u.ejected = now
		(&change{u: u, s: u.objects, program: u.program, pods: u.pods, pickers: u.pickers}).tellPickers()
	})
}
