package epp

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
	"github.com/windtunnel/windtunnel/live/serve"
)

// scraper fetches pages of endpoints when the picker wants them, and hands in
// what they say. When that is, and what becomes of it, is core/epp's to decide.
type scraper struct {
	k       *Picking
	sources []*pageSource
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	fetches map[fetchKey]*fetch // the picker's lock guards it
}

// pageSource is one data source of the configuration.
type pageSource struct {
	*core.Source
	client *http.Client
	// reader reads the pages of all endpoints, which are alike, one after the
	// other: what it returns is good until the next.
	mu     sync.Mutex
	reader *metrics.Reader
}

type fetchKey struct {
	target *core.Target
	source int
}

// fetch is one source's connection to one endpoint, and its goroutine. At most
// one page is on its way.
type fetch struct {
	endpoint string // its name: the target itself is the picker's
	*pageFetch
	wanted chan struct{} // closed when the endpoint has left

	// These two are the fetching goroutine's.
	failing bool // the last page could not be had
	reading bool // a page could be used, and the log has a line about it

	unreadable bool // a page could not be used; guarded by the picker's lock
}

func newScraper(k *Picking) *scraper {
	s := &scraper{k: k, fetches: map[fetchKey]*fetch{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	sources := k.m.Sources()
	for i := range sources {
		src := &sources[i]
		p := &pageSource{Source: src,
			client: &http.Client{Timeout: src.Timeout.Duration(), CheckRedirect: serve.Stay,
				Transport: &http.Transport{MaxIdleConnsPerHost: 1,
					IdleConnTimeout: time.Minute,
					TLSClientConfig: &tls.Config{InsecureSkipVerify: src.InsecureSkipVerify}}}}
		if len(src.Extractors) > 0 {
			p.reader = metrics.NewReader(src.Wants)
		}
		s.sources = append(s.sources, p)
	}
	return s
}

// scrape starts fetching a page. The caller holds the picker.
func (s *scraper) scrape(t *core.Target, source int) {
	if s.ctx.Err() != nil {
		return
	}
	key := fetchKey{t, source}
	f := s.fetches[key]
	if f == nil {
		src := s.sources[source]
		f = &fetch{pageFetch: newPageFetch(src.client, src.Timeout.Duration(), src.URL(t)), endpoint: t.ID(),
			wanted: make(chan struct{}, 1)}
		s.fetches[key] = f
		s.wg.Go(func() { // one goroutine for all pages: a new one would have to grow its stack for each
			defer f.close()
			for range f.wanted {
				s.fetch(f, key)
			}
		})
	}
	f.wanted <- struct{}{} // one at most is on its way, so there is room
}

// departed forgets an endpoint that has left the pool. The caller holds the picker.
func (s *scraper) departed(t *core.Target) {
	for i := range s.sources {
		key := fetchKey{t, i}
		if f := s.fetches[key]; f != nil {
			delete(s.fetches, key)
			close(f.wanted)
		}
	}
}

func (s *scraper) fetch(f *fetch, key fetchKey) {
	fetch := func() ([]byte, error) { return f.page(s.ctx) }
	if s.k.o.Fetch != nil {
		fetch = func() ([]byte, error) { return s.k.o.Fetch(f.url) }
	}
	began := time.Now()
	page, err := fetch()
	if s.ctx.Err() != nil {
		f.done()
		return
	}
	src := s.sources[key.source]
	msg := core.Scraped{Target: key.target, Source: key.source, Err: err}
	if src.reader != nil && err == nil {
		src.mu.Lock()
		defer src.mu.Unlock()
		// extractors choose the families to read
		panicked := guarded(s.k.o.Log, "the reading of a page", "",
			func() { msg.Page, msg.Err = src.reader.Read(page) })
		msg.Err = cmp.Or(panicked, msg.Err)
	}
	f.done() // before the next one may begin
	if msg.Err != nil {
		s.failed(f, key, msg.Err, err == nil)
	} else {
		if f.failing || !f.reading {
			s.k.o.Log.Info("epp: the scraper reads the endpoint's metrics", "endpoint", f.endpoint, "url", f.url,
				"scraper", src.Source.Source.Type())
		}
		f.failing, f.reading = false, true
		if s.k.o.Scraped != nil {
			s.k.o.Scraped(time.Since(began))
		}
	}
	s.k.report(msg)
}

// failed counts and logs a page that could not be had, or read: the first time
// in a row.
func (s *scraper) failed(f *fetch, key fetchKey, err error, had bool) {
	src := s.sources[key.source]
	extractor := ""
	if had && len(src.Extractors) > 0 {
		extractor = src.Extractors[0].Type()
	}
	s.k.o.Metrics.ScrapeFailed(src.Source.Source.Type(), extractor)
	if !f.failing {
		s.k.o.Log.Warn("epp: scrape failed; the endpoint keeps its last metrics", "endpoint", f.endpoint, "url", f.url,
			"scraper", src.Source.Source.Type(), "error", err)
	}
	f.failing = true
}

// unread counts and logs a page that an extractor could not use. The caller holds the picker.
func (s *scraper) unread(e *core.Effect) {
	src := s.sources[e.Source]
	s.k.o.Metrics.ScrapeFailed(src.Source.Source.Type(), e.Plugin.Type())
	if f := s.fetches[fetchKey{e.Target, e.Source}]; f != nil && !f.unreadable {
		f.unreadable = true
		s.k.o.Log.Warn("epp: scrape failed; the endpoint keeps its last metrics", "endpoint", e.Target.ID(), "url",
			f.url, "scraper", src.Source.Source.Type(), "error", e.Err)
	}
}

// close ends all fetching.
func (s *scraper) close() {
	s.k.With(func(*core.Machine, machine.Time) {
		s.cancel()
		for _, f := range s.fetches {
			close(f.wanted)
		}
		clear(s.fetches)
	})
	s.wg.Wait()
	for _, src := range s.sources {
		src.client.CloseIdleConnections()
	}
}
