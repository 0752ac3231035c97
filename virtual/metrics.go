package virtual

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// page is what a server said last to a data source.
type page struct {
	at stats.Moment
	metrics.Page
}

// page is what the server's metrics say to a data source: the families that it
// wants.
func (s *server) page(source int, c *metrics.Collector) metrics.Page {
	s.advance() // a long run is counted up to now

	if s.pages == nil { // many pages will be made
		s.told.Remember()
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

// look is the server as its engine stands.
func (s *server) look(now machine.Time) stats.Look {
	x := s.core.Stats().At(now, &s.told, s.engine)
	x.Unix = now.Seconds() // there is no date
	if len(s.pool.adapters) > 0 {
		x.UseAdapters(s.engine, s.core.Counted)
	}
	return x
}
