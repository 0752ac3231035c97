package modelserver

import (
	"net/http"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/stats"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
	"github.com/windtunnel/windtunnel/live/serve"
)

// look returns one consistent look at the server: all its values are from the same moment.
func (s *Server) look() (x stats.Look, ok bool) {
	ok = s.engine.With(func(now machine.Time) {
		l := s.engine.Core
		stats := l.Stats() // counts a long run of steps up to now
		if stats.Hardware() != nil && l.Engine().Computing() {
			s.engine.InputLocked(now, enginecore.Look{})
		}
		x = stats.At(now, &s.exposed, l.Engine())
		x.Stats, x.Unix = stats.Snapshot(), unixSeconds(time.Now())
		if len(s.adapters.list()) > 0 {
			x.UseAdapters(l.Engine(), l.Counted)
		}
	})
	x.SleepLevel = s.engine.SleepLevel()
	x.MediaQueries, x.MediaHits = s.seen.counts()
	if f := s.fake.Load(); f != nil && ok {
		f.Pretend(&x, time.Since(s.started))
	}
	return x, ok
}

// metrics answers GET and HEAD /metrics in Prometheus' text format.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	delay, frozen := s.metricsFault()
	if delay > 0 && !pause.For(r.Context(), delay) {
		return
	}
	if frozen {
		s.pages.mu.Lock()
		page := s.pages.body
		s.pages.mu.Unlock()
		if page != nil {
			wire.Write(w, http.StatusOK, promType, page)
			return
		}
	}
	page, ok := s.page()
	if !ok {
		serve.Stopping(w, "the server is stopping")
		return
	}
	wire.Write(w, http.StatusOK, promType, page)
}

const promType = "text/plain; version=0.0.4; charset=utf-8"

// pageKey holds everything that a metrics page depends on.
type pageKey struct {
	stats.Moment
	faked    int64 // the current tenth of a second, if metrics are faked
	adapters int
	sleep    int
	fake     *stats.FakeMetrics
	http     uint64 // version of the counts of HTTP requests
	second   int64  // second of the process's own metrics
}

type pageCache struct {
	mu   sync.Mutex
	key  pageKey
	body []byte
}

func (s *Server) page() ([]byte, bool) {
	var key pageKey
	if !s.engine.With(func(now machine.Time) {
		l := s.engine.Core
		key = pageKey{Moment: l.Stats().Moment(now, l.Engine()), adapters: len(s.adapters.list()),
			sleep: s.engine.SleepLevel()}
		if key.fake = s.fake.Load(); key.fake != nil {
			key.faked = int64(now / fakeRefresh)
		}
	}) {
		return nil, false
	}
	key.second = time.Now().Unix()
	s.traffic.mu.Lock()
	key.http = s.traffic.counts.Version()
	s.traffic.mu.Unlock()
	s.pages.mu.Lock()
	defer s.pages.mu.Unlock()
	if s.pages.body != nil && s.pages.key == key {
		return s.pages.body, true
	}
	x, ok := s.look()
	if !ok {
		return nil, false
	}
	t := metrics.Text{Page: make([]byte, 0, len(s.pages.body)+1024), Created: unixSeconds(s.started)}
	x.Write(&t)
	s.traffic.mu.Lock()
	s.traffic.counts.Write(&t)
	s.traffic.mu.Unlock()
	t.End()
	t.Page = append(t.Page, processPage(key.second)...)
	s.pages.key, s.pages.body = key, t.Page
	return t.Page, true
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// fakeRefresh is how long the server keeps a page with changing metrics.
const fakeRefresh = 100 * machine.Millisecond

// SetFakeMetrics replaces metrics in /metrics from now on; nil ends that.
func (s *Server) SetFakeMetrics(f *stats.FakeMetrics) { s.fake.Store(f) }

// fakeMetrics answers POST /fake_metrics, the older form of the key fake-metrics of /admin/config.
func (s *Server) fakeMetrics(w http.ResponseWriter, r *http.Request) {
	body, ok := wire.ReadBody(w, r, s.opts.MaxBodyBytes)
	if !ok {
		return
	}
	s.injector.changing.Lock()
	defer s.injector.changing.Unlock()
	f, err := s.fake.Load().With(body)
	if err != nil {
		wire.Answer(w, openai.BadRequest("fake-metrics", "%v.", err))
		return
	}
	s.SetFakeMetrics(f)
	wire.Empty(w)
}
