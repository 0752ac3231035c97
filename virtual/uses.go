package virtual

import (
	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/report/constraint"
)

// uses returns the use of the endpoint pickers' time, if they have a service time, and of the busiest link between
// servers.
func (w *world) uses() (out []constraint.Use) {
	for _, x := range w.pools {
		where := ""
		if len(w.pools) > 1 {
			where = x.Name
		}
		share, n := 0.0, 0
		for _, k := range x.pickers {
			if k.service != nil {
				share += k.service.m.(*epp.Service).Busy(w.over)
				n++
			}
		}
		if n > 0 {
			out = append(out, constraint.Use{Kind: constraint.Picker, Where: where, Share: share / float64(n)})
		}
		if x.net == nil {
			continue
		}
		if share := x.net.net.Busiest(w.over); share > 0 {
			out = append(out, constraint.Use{Kind: constraint.Transfer, Where: where, Share: share})
		}
	}
	return out
}
