package up

import "context"

// followEjections withholds endpoints that Envoy has ejected from the pickers, and returns them once Envoy does, until
// ctx ends.
func (u *Up) followEjections(ctx context.Context) {
	u.Envoy.FollowEjected(ctx, u.log, func() bool {
		u.applying.Lock()
		defer u.applying.Unlock()
		return u.applied.Program != nil && u.applied.Program.Ejects()
	}, func(now map[string][]string) {
		u.applying.Lock()
		defer u.applying.Unlock()
		u.ejected = now
		u.inForce().tellPickers()
	})
}
