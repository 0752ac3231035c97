package virtual

import (
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/bbr"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
	"github.com/windtunnel/windtunnel/core/load/workload"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/wire/header"
)

// front is the Gateway of a scenario's manifests. It routes requests to pools, and rewrites them.
type front struct {
	w      *world
	table  *gateway.Table
	port   int
	router *bbr.Router // before the routes; nil without one
	pools  map[string]int
	asking map[*gateway.Asking]*modes
	rates  map[*gateway.Route]*proxy.Bucket
}

func newFront(w *world, g *plan.Front) *front {
	if g == nil {
		return nil
	}
	f := &front{w: w, table: g.Port.Table, port: g.Port.Number, pools: g.Pools, asking: map[*gateway.Asking]*modes{},
		rates: map[*gateway.Route]*proxy.Bucket{}}
	if g.Served.Router != nil {
		f.router = &g.Served.Router.Router
	}
	return f
}

// send sends a conversation's next request along its route.
func (f *front) send(v *workload.Conversation, q workload.Request) {
	r := f.w.newRequest()
	r.Request = q
	list := header.Of("content-type", r.ContentType(), "x-request-id", r.ID)
	if f.router != nil {
		for _, name := range f.router.Headers() { // clients must not set them
			r.Header = slices.DeleteFunc(slices.Clone(r.Header),
				func(h header.Header) bool { return strings.EqualFold(h.Name, name) })
		}
		d := f.router.Decide(r.Bytes())
		if d.Answer != nil {
			f.answer(r, v, d.Answer.Status, []byte(d.Answer.Message))
			return
		}
		r.Header = append(r.Header, d.Set...)
	}
	draw := machine.DrawFor(f.w.hops.seed, "envoy", "share", r.ID)
	said := f.table.Decide(gateway.Request{Method: "POST", Host: r.Host, Target: r.Path,
		Headers: append(list, r.Header...)}, f.port, draw.Intn)
	if route := said.Route; route != nil && route.RateLimit != nil && said.Status != gateway.StatusNoKey {
		if f.rates[route] == nil {
			f.rates[route] = &proxy.Bucket{Limit: *route.RateLimit}
		}
		if !f.rates[route].Take(f.w.now) {
			limited := proxy.TooFast()
			f.answer(r, v, limited.Status, limited.Body)
			return
		}
	}
	if said.Status != 0 {
		f.answer(r, v, said.Status, nil)
		return
	}
	r.pool = f.w.pools[f.pools[said.Share.Backend.Key]]
	r.path, r.headers, r.route, r.asked = said.Target, said.Headers, said.Route, f.modesOf(said.Route.Asking)
	f.w.sendTo(r, v)
}

// answer sends Envoy's own answer to a request.
func (f *front) answer(r *request, v *workload.Conversation, status int, body []byte) {
	r.pool, r.seen.alone = f.w.pools[0], true
	r.answers = &stream.Answer{Status: status, Body: body}
	f.w.sendTo(r, v)
}
