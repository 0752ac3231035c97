package epp

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
)

// Scraper fetches the metrics pages of a Picking's endpoints, each endpoint by
// a goroutine of its own, and hands the figures in together, so that a pool of
// a thousand costs one new view per round and not a thousand.
type Scraper struct {
	k        *Picking
	interval time.Duration // of the configuration's flag
	sources  []scrapeSource
	log      *slog.Logger
	onError  func(source, extractor string)

	mu      sync.Mutex
	fresh   map[string]picker.Metrics // by endpoint ID, not handed in yet
	last    map[string]picker.Metrics
	running map[string]*scrapeTarget
	stop    context.CancelFunc
	ctx     context.Context
	wg      sync.WaitGroup
}

// scrapeSource is one data source of the configuration.
type scrapeSource struct {
	picker.Scrape
	spec   picker.ScrapeSpec
	client *http.Client
}

type scrapeTarget struct {
	hostPort string
	labels   map[string]string
	cancel   context.CancelFunc
	current  map[*scrapeSource]bool // sources whose figures count
}

// known says whether any source's figures count.
func (t *scrapeTarget) known() bool {
	for _, ok := range t.current {
		if ok {
			return true
		}
	}
	return false
}

// StartScraper begins to scrape with the picker's data sources.
func StartScraper(k *Picking, interval time.Duration, log *slog.Logger, onError func(source, extractor string)) *Scraper {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Scraper{k: k, interval: interval, log: log, onError: onError, ctx: ctx, stop: cancel,
		fresh: map[string]picker.Metrics{}, last: map[string]picker.Metrics{}, running: map[string]*scrapeTarget{}}
	k.With(func(p *picker.Picker, _ machine.Time) {
		for _, src := range p.Scrapes() {
			sp := src.Source.Scrape()
			if sp.Interval <= 0 {
				sp.Interval = machine.Time(interval)
			}
			if sp.Timeout <= 0 {
				sp.Timeout = machine.Second
			}
			s.sources = append(s.sources, scrapeSource{src, sp, &http.Client{Timeout: sp.Timeout.Duration(),
				Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
					TLSClientConfig: &tls.Config{InsecureSkipVerify: sp.InsecureSkipVerify}}}})
		}
	})
	s.wg.Go(s.hand)
	s.Follow()
	return s
}

// Follow starts and stops goroutines so that they match the pool's endpoints.
// Call it after the endpoints changed.
func (s *Scraper) Follow() {
	var view *picker.View
	s.k.With(func(p *picker.Picker, _ machine.Time) { view = p.Pool().View() })
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	for place := range view.States {
		e := view.States[place].Endpoint
		seen[e.ID()] = true
		if t := s.running[e.ID()]; t != nil {
			if t.hostPort == e.HostPort() && maps.Equal(t.labels, e.Labels) {
				continue
			}
			t.cancel()
			delete(s.last, e.ID())
		}
		ctx, cancel := context.WithCancel(s.ctx)
		t := &scrapeTarget{e.HostPort(), e.Labels, cancel, map[*scrapeSource]bool{}}
		s.running[e.ID()] = t
		for i := range s.sources {
			phase := s.sources[i].spec.Interval.Duration() * time.Duration(place) / time.Duration(len(view.States))
			s.wg.Go(func() { s.watch(ctx, e, t, &s.sources[i], phase) })
		}
	}
	for id, t := range s.running {
		if !seen[id] {
			t.cancel()
			delete(s.running, id)
			delete(s.last, id)
			delete(s.fresh, id)
		}
	}
}

// watch scrapes one endpoint: at once, and then every interval. phase shifts
// its turns against the others', so that a large pool's pages do not all come
// in one burst that requests would have to wait behind.
func (s *Scraper) watch(ctx context.Context, e *picker.Endpoint, t *scrapeTarget, src *scrapeSource, phase time.Duration) {
	tick := time.NewTicker(src.spec.Interval.Duration() + phase)
	defer tick.Stop()
	shifted := phase > 0
	host, id := t.hostPort, e.ID()
	if src.spec.Port != "" {
		host = net.JoinHostPort(e.Address, src.spec.Port)
	}
	url := src.spec.Scheme + "://" + host + src.spec.Path
	from := newPageFetch(src.client, src.spec.Timeout.Duration(), url)
	defer from.close()
	failing, last := false, time.Now()
	for {
		page, err := from.page(ctx)
		extractor := ""
		if err == nil {
			extractor, err = s.take(ctx, id, t, src, page)
		}
		from.done()
		if err != nil && ctx.Err() == nil {
			if s.onError != nil {
				s.onError(src.Source.Type(), extractor)
			}
			if !failing {
				s.log.Warn("epp: scrape failed; the endpoint keeps its last figures", "endpoint", id, "url", url, "error", err)
			}
		}
		failing = err != nil
		switch ttl := src.spec.TTL.Duration(); {
		case !failing:
			last = time.Now()
		case ttl > 0 && !last.IsZero() && time.Since(last) > ttl && ctx.Err() == nil:
			s.expire(id, t, src)
			last = time.Time{} // until the next success
			s.log.Warn("epp: figures are older than their ttl and are forgotten", "scraper", src.Source.Name(), "endpoint", id, "ttl", ttl)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if shifted {
				shifted = false
				tick.Reset(src.spec.Interval.Duration())
			}
		}
	}
}

// take reads a page; on an error it names the extractor's type.
func (s *Scraper) take(ctx context.Context, id string, t *scrapeTarget, src *scrapeSource, page []byte) (string, error) {
	s.mu.Lock() // also while reading: two sources may write the same endpoint
	defer s.mu.Unlock()
	m := s.last[id]
	for _, x := range src.Extractors {
		if err := x.Extract(page, t.labels, &m); err != nil {
			return x.Type(), fmt.Errorf("%s: %w", x.Name(), err)
		}
	}
	if ctx.Err() == nil && s.running[id] == t {
		t.current[src] = true
		s.last[id], s.fresh[id] = m, m
	}
	return "", nil
}

// expire takes a source's figures back: they are older than its TTL.
func (s *Scraper) expire(id string, t *scrapeTarget, src *scrapeSource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[id] != t {
		return
	}
	m := s.last[id]
	for _, x := range src.Extractors {
		if f, ok := x.(picker.MetricsForgetter); ok {
			f.Forget(&m)
		}
	}
	t.current[src] = false
	s.last[id], s.fresh[id] = m, m
}

// hand gives the figures that came in to the picker, a few times per interval.
func (s *Scraper) hand() {
	tick := time.NewTicker(max(s.interval/5, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		fresh := s.fresh
		none := len(fresh) == 0 // asked under the lock: the map is then still shared
		if !none {
			s.fresh = make(map[string]picker.Metrics, len(fresh))
		}
		unknown := map[string]bool{} // nothing is believed of these any more
		for id := range fresh {
			if t := s.running[id]; t != nil && !t.known() {
				unknown[id] = true
			}
		}
		s.mu.Unlock()
		if none {
			continue
		}
		s.k.With(func(p *picker.Picker, now machine.Time) {
			v := p.Pool().View()
			var indexes, expired []int
			for i := range v.States {
				id := v.States[i].ID()
				if _, ok := fresh[id]; ok && unknown[id] {
					expired = append(expired, i)
				} else if ok {
					indexes = append(indexes, i)
				}
			}
			take := func(_ int, st *picker.State) { st.Metrics = fresh[st.ID()] }
			p.Pool().Update(now, indexes, take)
			if len(expired) > 0 {
				p.Pool().Expire(expired, take)
			}
		})
	}
}

// Stop ends all scraping.
func (s *Scraper) Stop() {
	s.stop()
	s.wg.Wait()
	for i := range s.sources {
		s.sources[i].client.CloseIdleConnections()
	}
}
