package epp

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// A Generation is one configuration's picker with all that is around it:
// endpoints, scraper, KV indexes, objects. A new configuration makes a whole
// new generation; if that fails nothing has changed. The old one answers for
// the requests that it has decided or holds in its queue, until the last of
// them has ended.
//
// The new generation begins without the old one's approximate state (prefix
// history, sessions, requests in flight), as a restarted picker does: requests
// are slower for a while, never wrong.
type Generation struct {
	*Picking
	Scraper *Scraper
	KV      *KVIndexes
	file    *EndpointsFile
	objects *ObjectsDir
	// Registry has the figures that belong to this generation alone.
	Registry *prometheus.Registry
	closing  sync.Once
}

// build makes a generation; found is told whether the objects have the pool.
func (s *Standalone) build(o StandaloneOptions, found func(exists bool)) (g *Generation, err error) {
	p, err := BuildPicker(&o)
	if err != nil {
		return nil, err
	}
	discovery := p.EndpointDiscovery()
	if discovery == nil && o.Objects == "" {
		return nil, fmt.Errorf("%s: dataLayer.discovery names no discovery plug-in, and there is no Kubernetes here; declare one of type file-discovery, or give the pool and its pods as files (--objects)", o.ConfigName)
	}
	g = &Generation{Registry: prometheus.NewRegistry()}
	g.Picking, err = NewPicking(PickingOptions{Picker: p, Now: s.now, Errors: o.Errors, EmitScores: o.EmitScores, PoolName: o.PoolName,
		Metrics: s.metrics, History: o.History, Log: o.Log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.ConfigName, err)
	}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	if err := ObservePool(g.Registry, g.Picking, o.PoolName); err != nil {
		return nil, err
	}
	g.Scraper = StartScraper(g.Picking, o.RefreshMetrics, o.Log, s.metrics.ScrapeFailed)
	if g.KV, err = StartKVIndexes(g.Picking, KVOptions{Registry: g.Registry, Log: o.Log}); err != nil {
		return nil, fmt.Errorf("%s: %w", o.ConfigName, err)
	}
	follow := func() {
		g.Scraper.Follow()
		g.KV.Follow()
	}
	if discovery != nil {
		path, watch := discovery.EndpointsFile()
		if g.file, err = OpenEndpointsFile(g.Picking, path, watch, o.Log, follow); err != nil {
			return nil, err
		}
	}
	if o.Objects == "" {
		found(true)
	}
	if o.Objects != "" {
		g.objects, err = OpenObjectsDir(g.Picking, ObjectsOptions{Dir: o.Objects, Namespace: o.Namespace, Pool: o.PoolName,
			Selector: o.Selector, Ports: o.TargetPorts, KeepEndpoints: discovery != nil}, o.Log, func(exists bool) {
			follow()
			found(exists)
		})
	}
	return g, err
}

// Close ends all of it. Requests that it has decided must have ended.
func (g *Generation) Close() {
	g.closing.Do(func() {
		if g.Scraper != nil {
			g.Scraper.Stop()
		}
		g.KV.Close()
		if g.file != nil {
			g.file.Close()
		}
		if g.objects != nil {
			g.objects.Close()
		}
		g.Picking.Close()
	})
}

// Generations is the Director of a picker whose configuration may change: every
// request belongs to the generation that was current when it came.
type Generations struct {
	mu      sync.RWMutex
	current *Generation
	retired sync.WaitGroup
	stop    chan struct{}
	closing sync.Once
}

// NewGenerations has none yet: Replace gives it the first.
func NewGenerations() *Generations { return &Generations{stop: make(chan struct{})} }

// Current is the generation that decides about requests which come now.
func (r *Generations) Current() *Generation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current
}

// Decide lets the current generation decide.
func (r *Generations) Decide(ctx context.Context, req *Request) (stream.Decision, Exchange) {
	r.mu.RLock()
	g := r.current
	g.open.Add(1) // before the lock is gone: a generation that is replaced now waits for this request
	r.mu.RUnlock()
	d, x := g.Picking.Decide(ctx, req)
	if e, ok := x.(*exchange); ok {
		e.settled = g.settled
	} else {
		g.settled()
	}
	return d, x
}

// Undecided is the current generation's.
func (r *Generations) Undecided() Exchange { return r.Current().Undecided() }

// Replace makes g the current generation. The old one ends when its last
// request has.
func (r *Generations) Replace(g *Generation) {
	r.mu.Lock()
	old := r.current
	r.current = g
	if old != nil {
		g.inherit(old.Picking)
	}
	r.mu.Unlock()
	if old == nil {
		return
	}
	r.retired.Go(func() {
		select {
		case <-old.retire():
		case <-r.stop:
		}
		old.Close()
	})
}

// Close ends all generations.
func (r *Generations) Close() {
	r.closing.Do(func() { close(r.stop) })
	r.retired.Wait()
	if g := r.Current(); g != nil {
		g.Close()
	}
}

// Describe sends nothing: which series there are depends on the generation.
func (r *Generations) Describe(chan<- *prometheus.Desc) {}

// Collect tells the current generation's figures.
func (r *Generations) Collect(out chan<- prometheus.Metric) { r.Current().Registry.Collect(out) }

// Pages are the current generation's, whichever that is when they are asked
// for.
func (r *Generations) Pages() map[string]http.Handler {
	out := map[string]http.Handler{}
	for pattern := range r.Current().Pages() {
		out[pattern] = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.Current().Pages()[pattern].ServeHTTP(w, req) })
	}
	return out
}

// openRequests counts what a Picking still answers for, so that it can be
// replaced while it works.
type openRequests struct {
	open    atomic.Int64
	leaving atomic.Bool
	idle    chan struct{}
	once    sync.Once
}

// settled is told of the end of each request that open counted.
func (c *openRequests) settled() {
	if c.open.Add(-1) == 0 && c.leaving.Load() {
		c.once.Do(func() { close(c.idle) })
	}
}

// retire returns what is closed when the last request has ended. Nothing new
// may be counted any more.
func (c *openRequests) retire() <-chan struct{} {
	c.leaving.Store(true)
	if c.open.Load() == 0 {
		c.once.Do(func() { close(c.idle) })
	}
	return c.idle
}

// inherit takes over what outlives a configuration: the numbers of requests,
// so that no id is made twice, and the remembered decisions.
func (k *Picking) inherit(old *Picking) {
	k.number.Store(old.number.Load() + 1<<20)
	old.mu.Lock()
	history := append(k.history[:0:0], old.history...)
	old.others = math.MaxInt // both remember them, so neither may use them again
	old.mu.Unlock()
	k.mu.Lock()
	k.history, k.others = append(history, k.history...), len(history)
	k.mu.Unlock()
}

// watchConfig reads the configuration again whenever its file changes. A bad
// one is refused and told; the old one stays.
func (s *Standalone) watchConfig() error {
	path := s.o.ConfigPath
	var err error
	s.config, err = watch.File("configuration "+path, path, s.o.Log, func() error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return s.Reload(text)
	})
	return err
}

// Reload makes another configuration the current one, without losing a
// request. On an error nothing has changed.
func (s *Standalone) Reload(config []byte) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	if string(config) == string(s.o.Config) {
		return nil
	}
	o := s.o
	o.Config = config
	g, err := s.build(o, func(exists bool) { s.serve(nil, exists) })
	if err != nil {
		return err
	}
	s.o = o
	s.generations.Replace(g)
	s.o.Log.Info("epp: the new configuration is in force", "from", o.ConfigName)
	return nil
}

// Picking is the current configuration's director.
func (s *Standalone) Picking() *Picking { return s.generations.Current().Picking }
