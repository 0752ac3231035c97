package virtual

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// page is the last page of a server's metrics for a data source.
type page struct {
	at stats.Moment
	metrics.Page
}

// page returns the server's metrics for a data source: the families that it wants.
func (s *server) page(source int, c *metrics.Collector) metrics.Page {
	s.advance() // count the steps up to now

	if s.pages == nil { // the first of many pages
		s.metrics.Remember()
	}
	for len(s.pages) <= source {
		s.pages = append(s.pages, page{})
	}
	counts := s.core.Stats()
	known, at := &s.pages[source], counts.Moment(s.w.now, s.engine)
	if known.Page != nil && known.at == at {
		return known.Page
	}
	if counts.Hardware() != nil && s.engine.Computing() {
		s.input(enginecore.Look{})
	}
	x := s.look(s.w.now)
	x.Write(c)
	*known = page{at, c.Take()}
	return known.Page
}

// look returns the state of the server for its metrics.
func (s *server) look(now machine.Time) stats.Look {
	x := s.core.Stats().At(now, &s.metrics, s.engine)
	x.Unix = now.Seconds() // virtual time has no date
	if len(s.pool.adapters) > 0 {
		x.UseAdapters(s.engine, s.core.Counted)
	}
	if s.idleLook {
		stats.Idle.Pretend(&x, 0)
	}
	return x
}
