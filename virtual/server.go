package virtual

import (
	"net"
	"strconv"
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

// server is one model server: its engine and the requests in it.
type server struct {
	slot[enginecore.Message, *enginecore.Effects]
	*plan.Server

	pool     *pool
	endpoint string
	sidecar  *sidecar // before a decode server
	core     *enginecore.Core
	reader   modelserver.Reader
	delay    machine.Time   // that a page of its metrics takes besides
	news     []hearer       // of whom the engine has said something
	engine   *engine.Engine // the core's
	spare    []hearer       // memory for news
	calls    map[enginecore.Call]peer
	fetched  *simplelru.LRU[string, struct{}] // document 002's handles that were
	ends     uint64                           // requests of which the engine has said that they are over
	made     uint64                           // their tokens
	kv       kvOutbox
	steps    lifecycle.EngineSteps
	fleet    *fleet           // nil where servers neither come nor go
	phase    deployment.Phase // in it
	lived    bool             // it was ever there
	inHand   int              // requests, as Dynamo's router was told
	has      []*answering     // what it may have in hand, in a fleet
	told     stats.Server     // in the metrics
	pages    []page           // by data source
	readings []*reading       // of each picker; none where pages are made at their times
}

// changes brings up to date what the picker knows of the server as it was.
func (s *server) changes() {
	for _, r := range s.readings {
		r.upTo(s.w.now)
	}
}

// host is the server's address without its port.
func (s *server) host() string {
	host, _, _ := net.SplitHostPort(s.endpoint)
	return host
}

// behind is the server's address behind its sidecar.
func (s *server) behind() string { return strings.TrimSuffix(s.endpoint, ":8000") + ":8001" }

func statusText(status int) string { return strconv.Itoa(status) }

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
	f := *s.fx.OfEngine(&e) // what is said of it may move the list
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
		if q = e.Sequence.Owner.(*computed).hear(s, &f); q == nil {
			return
		}
	}
	if f.Kind == engine.KVHeld {
		q.at.p.Kept = &modelserver.Kept{Host: s.host(), Port: s.pool.SideChannel, Hold: q.Hold}
		return
	}
	if !q.at.p.Heard(q.Sequence, &f) {
		return
	}
	if a := q.at; !a.news { // told once all of it is said
		a.news = true
		s.news = append(s.news, a)
	}
}

// hearer is told what the engine has said of it.
type hearer interface{ told() }

// tell tells all of whom the engine has said something.
func (s *server) tell() {
	news := s.news
	s.news, s.spare = s.spare[:0], nil
	for i, a := range news {
		news[i] = nil
		a.told()
	}
	s.spare = news[:0]
	if s.pool.frontend != nil {
		s.pool.frontend.changed(s)
	}
}

func (a *answering) told() {
	a.news = false
	a.input(&a.p)
}
