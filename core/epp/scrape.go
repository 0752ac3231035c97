package epp

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Errors of a data source for a missing page, and for the health of a dead engine, as a server's answer would be
// reported.
var (
	ErrNoPage = errors.New("status 404")
	ErrDead   = errors.New("status 503")
)

// Target is an endpoint that the driver scrapes for metrics and listens to for KV events.
type Target struct {
	*picker.Endpoint
	place   int // index in the view; -1 once it has left the pool
	sources []targetSource
}

// targetSource is the state of one data source at one endpoint.
type targetSource struct {
	busy    bool         // a Scrape is under way
	missed  bool         // the next one was due meanwhile
	shifted bool         // its turn has been shifted against the others'
	current bool         // its metrics are valid
	failing bool         // the last scrape failed
	last    machine.Time // time of the last answer
}

// Source is a data source of the configuration, with its defaults.
type Source struct {
	picker.Scrape
	picker.ScrapeSpec
	pulled bool // metrics come by Pull, not by Scrapes
}

// scraping is the schedule of scrapes: each endpoint at once when it joins, and then every interval. The second turn is
// shifted by the endpoint's place, so that a large pool's pages do not come in one burst that delays requests.
type scraping struct {
	sources []Source
	targets map[string]*Target // by "namespace/name"
	queue   machine.Queue[turn]
	out     int // scrapes without their Scraped
	// Number of this replica of the picker, and of all.
	replica, replicas int

	quiet bool // no scrapes
}

// turn is one target's turn with one source.
type turn struct {
	target *Target
	source int
}

func (s *scraping) init(p *picker.Picker, interval machine.Time) {
	s.targets = map[string]*Target{}
	for _, src := range p.Scrapes() {
		x := Source{Scrape: src, ScrapeSpec: src.Source.Scrape()}
		x.Interval = cmp.Or(max(x.Interval, 0), interval)
		x.Timeout = cmp.Or(max(x.Timeout, 0), DefaultScrapeTimeout)
		s.sources = append(s.sources, x)
	}
}

// Sources returns the data sources; Effect.Source is an index into them.
func (m *Machine) Sources() []Source { return m.scraping.sources }

// Target returns the pool's endpoint of a "namespace/name", nil if there is none.
func (m *Machine) Target(id string) *Target { return m.scraping.targets[id] }

// Scraping returns how many scrapes are under way.
func (m *Machine) Scraping() int { return m.scraping.out }

// Address returns the host:port at which a source scrapes a target.
func (x *Source) Address(t *Target) string {
	if x.Port != "" {
		return picker.JoinHostPort(t.Endpoint.Address, x.Port)
	}
	return t.HostPort()
}

// URL returns the URL at which a source scrapes a target.
func (x *Source) URL(t *Target) string { return x.Scheme + "://" + x.Address(t) + x.Path }

// Wants reports whether any of the source's extractors reads a family of metrics.
func (x *Source) Wants(family string) bool {
	return slices.ContainsFunc(x.Extractors, func(e picker.MetricsExtractor) bool { return e.Wants(family) })
}

// follow makes the targets those of a view. An endpoint whose address or labels changed is a new target. It returns the
// targets that are gone.
func (s *scraping) follow(now machine.Time, view *picker.View) (gone []*Target) {
	for _, t := range s.targets {
		t.place = -1
	}
	for place := range view.States {
		e := view.States[place].Endpoint
		if t := s.targets[e.ID()]; t != nil && t.HostPort() == e.HostPort() && maps.Equal(t.Labels, e.Labels) {
			t.Endpoint, t.place = e, place
			continue
		} else if t != nil {
			gone = append(gone, t)
		}
		t := &Target{Endpoint: e, place: place, sources: make([]targetSource, len(s.sources))}
		s.targets[e.ID()] = t
		for i := range s.sources {
			t.sources[i].last = now
			if !s.quiet && !s.sources[i].pulled {
				s.queue.Push(now, machine.ClassTimer, turn{t, i})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.targets)) {
		if t := s.targets[id]; t.place < 0 {
			delete(s.targets, id)
			gone = append(gone, t)
		}
	}
	return gone
}

// scrapes emits a Scrape for every turn that is due.
func (m *Machine) scrapes() {
	s := &m.scraping
	for {
		at, ok := s.queue.Next()
		if !ok || at > m.now {
			return
		}
		_, x := s.queue.Pop()
		if x.target.place < 0 {
			continue
		}
		src, t := &s.sources[x.source], &x.target.sources[x.source]
		next := src.Interval
		if !t.shifted {
			t.shifted = true
			next += s.shift(x.target, src.Interval)
		}
		s.queue.Push(at.Add(next), machine.ClassTimer, x)
		if t.busy {
			t.missed = true
			continue
		}
		m.scrape(x)
	}
}

func (m *Machine) scrape(x turn) {
	x.target.sources[x.source].busy = true
	m.scraping.out++
	m.emit(Effect{Kind: Scrape, Target: x.target, Source: x.source})
}

// scraped takes the result of a scrape. After a failure the metrics stay as they were until they are older than the
// source's TTL; then they are dropped.
func (m *Machine) scraped(x *Scraped) {
	src, t := &m.scraping.sources[x.Source], &x.Target.sources[x.Source]
	t.busy = false
	m.scraping.out--
	if x.Target.place < 0 {
		return
	}
	if t.missed { // it took longer than its interval
		t.missed = false
		m.scrape(turn{x.Target, x.Source})
	}
	m.scrapeFailed(x, src, t)
	pool := m.p.Pool()
	values := pool.View().States[x.Target.place].Metrics
	if p, ok := src.Source.(picker.Prober); ok {
		_ = m.p.Guard(src.Source, func() { p.Probed(x.Target.Slot(), x.Err) })
	}
	extractor, err := picker.Plugin(nil), x.Err
	if err == nil {
		extractor, err = m.extract(x.Target, src, x.Page, &values)
	}
	switch {
	case err == nil:
		t.current, t.last = true, m.now
		pool.Update(m.now, x.Target.place, values)
		m.loaded(x.Target.place)
	case x.Err == nil:
		m.emit(Effect{Kind: Unread, Target: x.Target, Source: x.Source, Plugin: extractor, Err: err})
	}
	if err == nil || src.TTL <= 0 || !t.current || m.now-t.last <= src.TTL {
		return
	}
	t.current = false
	values = pool.View().States[x.Target.place].Metrics
	for _, e := range src.Extractors {
		if f, ok := e.(picker.MetricsForgetter); ok {
			_ = m.p.Guard(e, func() { f.Forget(&values) })
		}
	}
	known := slices.ContainsFunc(x.Target.sources, func(s targetSource) bool { return s.current })
	pool.Expire(x.Target.place, values, known)
	m.emit(Effect{Kind: Forgotten, Target: x.Target, Source: x.Source})
	m.loaded(x.Target.place)
}

// extract reads a page into metrics. On an error it returns the plug-in that failed.
func (m *Machine) extract(t *Target, src *Source, page metrics.Page, into *picker.Metrics) (picker.Plugin, error) {
	for _, x := range src.Extractors {
		if err := m.p.Extract(x, page, t.Labels, into); err != nil {
			return x, err
		}
	}
	return nil, nil
}

// Pull makes the driver bring a data source's metrics just before plug-ins read them, instead of a Scrape for each
// page. The Machine calls pull during its turn, and pull calls Read and Refresh. A nil pull brings nothing; it is for a
// source whose pages change no decision. The driver calls Pull before the first endpoints, and never on a Machine with
// a log or with flow control, which need every page.
func (m *Machine) Pull(source int, pull func(now machine.Time)) {
	if m.scraping.sources[source].pulled = true; pull != nil {
		m.pull = pull
	}
}

// Read returns an endpoint's metrics, updated from a data source's page; false if the page cannot be read.
func (m *Machine) Read(t *Target, source int, page metrics.Page) (picker.Metrics, bool) {
	values := m.Known(t)
	_, err := m.extract(t, &m.scraping.sources[source], page, &values)
	return values, err == nil
}

// Known returns an endpoint's latest metrics.
func (m *Machine) Known(t *Target) picker.Metrics { return m.p.Pool().View().States[t.place].Metrics }

// Refresh stores an endpoint's metrics from a page of time at. Metrics of another source may be newer.
func (m *Machine) Refresh(at machine.Time, t *Target, values picker.Metrics) {
	m.p.Pool().Update(max(at, m.p.Pool().View().States[t.place].UpdatedAt), t.place, values)
}

// Place returns an endpoint's index in the pool, which shifts its scrapes; -1 once it has left.
func (t *Target) Place() int { return t.place }

// Turn returns the time of an endpoint's turn with a data source, for a pool that is unchanged since time zero. The
// first turn after zero is number 1.
func (m *Machine) Turn(t *Target, source int, number int64) machine.Time {
	interval := m.scraping.sources[source].Interval
	return interval*machine.Time(number) + m.scraping.shift(t, interval)
}

// shift returns the delay of an endpoint's turns against those of the first endpoint at the first replica of the
// picker.
func (s *scraping) shift(t *Target, interval machine.Time) machine.Time {
	return interval * machine.Time(t.place*s.replicas+s.replica) / machine.Time(len(s.targets)*s.replicas)
}

// loaded reports an endpoint's new metrics to flow control.
func (m *Machine) loaded(endpoint int) {
	if m.fc != nil {
		m.load(endpoint)
		m.play()
	}
}
