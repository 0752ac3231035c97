package virtual

import (
	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/metrics"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/scenario"
)

// serverStats are what a model server counts, and tells those who scrape it.
type serverStats struct {
	*stats.Stats
	told stats.Server
	last machine.Time // up to which it is known whether the engine computed

	pages []page // by data source
}

// page is what the server said last.
type page struct {
	at stats.Moment
	metrics.Page
}

func newServerStats(p *scenario.Pool, e *engine.Engine) serverStats {
	x := serverStats{told: stats.Server{Engine: e.Config(), Model: p.Model, MemoryBytes: p.MemoryTaken(), TensorParallel: p.ModelServer.TensorParallelSize}}
	x.Stats = stats.New(&x.told.Engine)
	return x
}

// entered is told before the engine is.
func (s *server) entered() {
	s.stats.Computed(s.stats.last, s.w.now, s.engine.Computing())
	s.stats.last = s.w.now
}

// count hears an effect of the engine's.
func (s *server) count(e *engine.Effect) {
	if r := s.requests[e.Request]; r != nil {
		s.stats.Effect(&s.fx, e, &r.seq)
	} else {
		s.stats.Effect(&s.fx, e, nil)
	}
}

// page is what the server's metrics say to a data source: the families that it
// wants.
func (s *server) page(source int, c *metrics.Collector) metrics.Page {
	s.entered()
	s.engine.Advance(s.w.now, &s.fx) // a long run is counted up to now
	s.play()
	for len(s.stats.pages) <= source {
		s.stats.pages = append(s.stats.pages, page{})
	}
	known, at := &s.stats.pages[source], s.stats.Moment(s.w.now, s.engine)
	if known.Page != nil && known.at == at {
		return known.Page
	}
	if s.stats.Hardware() != nil && s.engine.Computing() {
		s.input(engine.Look{})
	}
	x := s.stats.At(s.w.now, &s.stats.told, s.engine)
	x.Unix = s.w.now.Seconds() // there is no date
	if len(s.w.adapters) > 0 {
		x.UseAdapters(s.engine, func(yield func(*stats.Sequence) bool) {
			for _, r := range s.requests {
				if !yield(&r.seq) {
					return
				}
			}
		})
	}
	x.Write(c)
	*known = page{at, c.Take()}
	return known.Page
}
