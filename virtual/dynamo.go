package virtual

import (
	"errors"

	"github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/plan"
)

// frontend is the pool's Dynamo frontend: its router, which model servers push to and the picker calls.
type frontend struct {
	slot[dynamo.Message, *dynamo.Effects]

	pool   *pool
	spec   *plan.Frontend
	down   bool
	routed dynamo.Routed // the newest answer

	gathers map[*server]bool // servers whose push is scheduled
}

// newFrontend returns nil without a frontend.
func newFrontend(x *pool) *frontend {
	if x.Frontend == nil {
		return nil
	}
	f := &frontend{pool: x, spec: x.Frontend, gathers: map[*server]bool{}}
	f.class, f.while = machine.ClassTimer, x.w.busy
	f.start(x.w)
	f.push(0)
	return f
}

// start starts an empty router.
func (f *frontend) start(w *world) {
	f.down = false
	f.open(w, f.spec.NewRouter(), new(dynamo.Effects), func(i int) { f.routed = f.fx.List[i] })
}

// push pushes the state of all workers, now and after each interval.
func (f *frontend) push(number machine.Time) {
	w := f.w
	if !f.down {
		for _, e := range f.pool.endpoints() {
			if sv := f.pool.byAddr[e.HostPort()]; !sv.core.Dead() {
				f.input(sv.Worker(sv.engine.Stats(), sv.engine.KVBlocksUsed()))
			}
		}
	}
	w.asking++
	w.queue.Push((number+1)*machine.FromDuration(f.spec.PushInterval), machine.ClassLook, event{looks, func() {
		if w.busy() {
			f.push(number + 1)
		}
	}})
}

// changed pushes the state of a server whose number of requests has changed.
func (f *frontend) changed(sv *server) {
	st := sv.engine.Stats()
	if n := st.Running + st.Waiting; n == sv.inFlight || f.gathers[sv] {
		return
	}
	f.gathers[sv] = true
	f.w.queue.Push(f.w.now.Add(dynamo.Debounce), machine.ClassTimer, event{then, func() {
		st := sv.engine.Stats()
		f.gathers[sv], sv.inFlight = false, st.Running+st.Waiting
		if !f.down && !sv.core.Dead() && sv.ready() {
			f.input(sv.Worker(st, sv.engine.KVBlocksUsed()))
		}
	}})
}

// kill ends the router like a crash.
func (f *frontend) kill() {
	f.end()
	f.down = true
}

// route answers a picker's routing call.
func (f *frontend) route(r *request, n *picker.Need, a *picker.Answer) {
	if f.down {
		a.Err = errors.New("connection refused: the frontend is down")
		return
	}
	progress, err := dynamo.ParseProgress(n.Headers.Get(plugins.HeaderProgress))
	if err != nil {
		a.Err = dynamo.ErrUnread
		return
	}
	for _, p := range progress {
		f.input(p)
	}
	tokens := r.promptTokens()
	if tokens == nil {
		a.Err = dynamo.ErrUnread
		return
	}
	f.input(dynamo.Route{ID: r.ID, Prompt: dynamo.PromptOf(f.pool.Model(), tokens, f.spec.Router.BlockSize)})
	if f.routed.Worker == 0 {
		a.Err = dynamo.ErrNoWorker
		return
	}
	answer := dynamo.Answer{Worker: f.routed.Worker, Prefill: f.routed.Prefill, Tokens: tokens}
	a.Value = answer.JSON()
}

// Route answers a frontend before a model server.
func (f *frontend) Route(id string, tokens []uint32) (worker, prefill string) {
	if f.down {
		return "", ""
	}
	f.input(dynamo.Route{ID: id, Prompt: dynamo.PromptOf(f.pool.Model(), tokens, f.spec.Router.BlockSize)})
	return f.routed.Names()
}

// ReportProgress takes that frontend's progress of a request.
func (f *frontend) ReportProgress(id string, over bool) {
	if !f.down {
		f.input(dynamo.Progress{ID: id, Over: over})
	}
}

// send takes progress from the picker.
func (f *frontend) send(n *picker.Need) {
	list, _ := n.Subject.([]dynamo.Progress)
	for _, p := range list {
		if !f.down {
			f.input(p)
		}
	}
}

// far returns the round-trip time of a request's calls.
func (k *picking) far(x *epp.Request) (d machine.Time, late bool) {
	f := k.pool.frontend
	if f == nil {
		return 0, false
	}
	for i := range x.Needs {
		if n := &x.Needs[i]; n.Key == plugins.KeyRoute {
			d = machine.FromDuration(f.spec.RoundTrip)
			return min(d, n.Timeout), d > n.Timeout
		}
	}
	return 0, false
}
