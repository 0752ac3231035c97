package virtual

import (
	"net"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
)

// server is a model server: its engine and the requests in it.
type server struct {
	slot[enginecore.Message, *enginecore.Effects]
	*plan.Server
	connections

	pool       *pool
	endpoint   string
	sidecar    *sidecar // before a decode server
	core       *enginecore.Core
	reader     modelserver.Reader
	delay      machine.Time     // further time of a page of its metrics
	killed     bool             // an incident has killed its process
	idleLook   bool             // its metrics are those of an idle server
	mute       bool             // its KV events are lost
	updated    []engineListener // of whom the engine has reported something, until notify
	engine     *engine.Engine   // the core's
	spare      []engineListener // memory for updated
	calls      map[enginecore.Call]peer
	fetched    *simplelru.LRU[string, struct{}] // document 002's handles that were fetched
	ends       uint64                           // requests that the engine has ended
	made       uint64                           // their tokens
	kv         kvOutbox
	steps      lifecycle.EngineSteps
	replicaSet *replicaSet      // nil if servers neither start nor end
	phase      deployment.Phase // in the replica set
	lived      bool             // it was ready at some time
	inFlight   int              // the load that the Dynamo router knows
	has        []*answering     // requests that may be unfinished, in a replica set
	metrics    stats.Server     // in the metrics
	pages      []page           // by data source
	readings   []*reading       // of each picker; none if pages are made at their times
}

// changes updates the pickers' views of the server before the server changes.
func (s *server) changes() {
	for _, r := range s.readings {
		r.upTo(s.w.now)
	}
}

// host returns the server's address without its port.
func (s *server) host() string {
	host, _, _ := net.SplitHostPort(s.endpoint)
	return host
}

// behind returns the server's address behind its sidecar.
func (s *server) behind() string { return strings.TrimSuffix(s.endpoint, ":8000") + ":8001" }

// lateBy returns how much longer each message to or from the server takes; nil is a server that is not known yet.
func (s *server) lateBy() machine.Time {
	if s == nil {
		return 0
	}
	return s.late
}

func (s *server) effect(e enginecore.Effect) {
	if e.Do != nil {
		if got, ok := e.Do.(enginecore.Fetched); ok {
			switch q := e.Sequence.Owner.(type) {
			case *sequence:
				q.at.p.GotKV(got.Took, got.Bytes)
			case *computed:
				q.d.leg.gotKV(got.Took, got.Bytes)
			}
		}
		s.act(e.Do)
		return
	}
	f := *s.fx.OfEngine(&e) // a copy, because handling it may move the list
	if f.Kind == engine.Stepped {
		stepped := f
		s.steps.Record(&s.fx.Engine, &stepped)
	}
	if (f.Kind == engine.Finished || f.Kind == engine.Aborted) && (e.Sequence == nil || e.Sequence.Entered()) {
		s.ends++
		s.made += uint64(f.Count)
	}
	if e.Sequence == nil {
		return
	}
	q, ok := e.Sequence.Owner.(*sequence)
	if !ok {
		if q = e.Sequence.Owner.(*computed).applyEffect(s, &f); q == nil {
			return
		}
	}
	if f.Kind == engine.KVHeld {
		q.at.p.Kept = &modelserver.Kept{Host: s.host(), Port: s.pool.SideChannel, Hold: q.Hold}
		return
	}
	if !q.at.p.ApplyEffect(q.Sequence, &f) {
		return
	}
	if a := q.at; !a.updated { // notify follows once the engine has reported everything
		a.updated = true
		s.updated = append(s.updated, a)
	}
}

// engineListener handles the progress that the engine has reported for it.
type engineListener interface{ engineUpdated() }

// notify calls every listener with progress.
func (s *server) notify() {
	listeners := s.updated
	s.updated, s.spare = s.spare[:0], nil
	for i, a := range listeners {
		listeners[i] = nil
		a.engineUpdated()
	}
	s.spare = listeners[:0]
	if s.pool.frontend != nil {
		s.pool.frontend.changed(s)
	}
}

func (a *answering) engineUpdated() {
	a.updated = false
	a.input(&a.p)
}
