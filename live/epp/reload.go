package epp

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/files"
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
	file, objects *watch.Watch // where the endpoints come from
	// Registry has the metrics that belong to this generation alone.
	Registry *prometheus.Registry
	closing  sync.Once
}

// build makes a generation.
func (s *Standalone) build(o StandaloneOptions) (g *Generation, err error) {
	p, err := BuildPicker(&o.PickerOptions)
	if err != nil {
		return nil, &ConfigError{err}
	}
	discovery := p.EndpointDiscovery()
	if discovery == nil && o.Objects == "" && o.Fill == nil {
		return nil, fmt.Errorf("%s: dataLayer.discovery names no discovery plug-in, and there is no Kubernetes here; "+
			"declare one of type file-discovery, or give the pool and its pods as files (--objects)", o.ConfigName)
	}
	g = &Generation{Registry: prometheus.NewRegistry()}
	po := o.Picking
	po.Picker, po.History, po.ScrapeInterval = p, o.History, machine.FromDuration(o.RefreshMetrics)
	po.Describe = po.Describe || po.Inputs != nil
	po.Made = o.Made()
	po.Made.Replica, po.Made.Pool = o.Picking.Made.Replica, o.Picking.Made.Pool
	po.Now, po.PoolName, po.Metrics, po.KV.Registry, po.Log = s.now, o.PoolName, s.metrics, g.Registry, o.Log
	if g.Picking, err = NewPicking(po); err != nil {
		return nil, &ConfigError{fmt.Errorf("%s: %w", o.ConfigName, err)}
	}
	made := g // a step that returns an error has set g to nil by then
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	if err := ObservePool(g.Registry, g.Picking, o.PoolName); err != nil {
		return nil, err
	}
	if o.Fill != nil {
		if err := o.Fill(g.Picking); err != nil {
			return nil, err
		}
	}
	if discovery != nil {
		path, follow := discovery.EndpointsFile()
		if g.file, err = followEndpoints(g.Picking, path, follow, o.Log); err != nil {
			return nil, err
		}
	}
	found := func(exists bool) { s.serve(nil, exists) }
	if o.Objects == "" {
		found(true)
	} else {
		g.objects, err = followObjects(g.Picking, o.PoolOptions, discovery != nil, o.Log, found)
	}
	return g, err
}

// Close ends the generation. Requests that it has decided must have ended.
func (g *Generation) Close() {
	g.closing.Do(func() {
		g.file.Close()
		g.objects.Close()
		g.Picking.Close()
	})
}

// Generations are the pickers of a server whose configuration may change: every
// stream belongs to the generation that was current when it began.
type Generations struct {
	mu      sync.RWMutex
	current *Generation
	inputs  *InputLog
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

// Take gives a stream to the current generation.
func (r *Generations) Take() (*Picking, func()) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.current
	g.open.Add(1) // before the lock is gone: a generation that is replaced now waits for this request
	return g.Picking, g.settled
}

// Replace makes g the current generation. The old one ends when its last
// request has.
func (r *Generations) Replace(g *Generation) {
	r.mu.Lock()
	old := r.current
	if r.inputs != nil {
		g.Record(r.inputs)
	}
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

// Record has what enters the current picker, and later ones, written down.
func (r *Generations) Record(x *InputLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inputs = x
	r.current.Record(x)
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

// Collect sends the current generation's metrics.
func (r *Generations) Collect(out chan<- prometheus.Metric) { r.Current().Registry.Collect(out) }

// Pages returns pages that show the generation that is current at each request.
func (r *Generations) Pages() map[string]http.Handler {
	out := map[string]http.Handler{}
	for pattern := range r.Current().Pages() {
		out[pattern] = http.HandlerFunc(
			func(w http.ResponseWriter, req *http.Request) { r.Current().Pages()[pattern].ServeHTTP(w, req) })
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

// settled counts the end of a request that open counted.
func (c *openRequests) settled() {
	if c.open.Add(-1) == 0 && c.leaving.Load() {
		c.once.Do(func() { close(c.idle) })
	}
}

// retire returns a channel that is closed when the last request has ended. No request may be counted after the call.
func (c *openRequests) retire() <-chan struct{} {
	c.leaving.Store(true)
	if c.open.Load() == 0 {
		c.once.Do(func() { close(c.idle) })
	}
	return c.idle
}

// inherit copies the state that outlives a configuration: the numbers of requests, so that no id is made twice, and the
// remembered decisions.
func (k *Picking) inherit(old *Picking) {
	k.number.Store(old.number.Load() + 1<<20)
	old.With(func(was *core.Machine, _ machine.Time) {
		k.With(func(m *core.Machine, _ machine.Time) { m.Inherit(was) })
	})
}

// watchConfig reads the configuration again whenever its file changes. It refuses and logs a bad one; the old one
// stays.
func (s *Standalone) watchConfig() error {
	path := s.o.ConfigPath
	var err error
	s.config, err = watch.File("configuration "+path, path, s.o.Log, func() error {
		text, err := files.Read(path, strictyaml.MaxBytes)
		if err != nil {
			return err
		}
		return Reload([]*Standalone{s}, path, text)
	})
	return err
}

// Reload makes another configuration, which errors call name, the current one of all pickers, without losing a request.
// On an error nothing has changed.
func Reload(all []*Standalone, name string, config []byte) error {
	var change []func()
	made := make([]*Generation, 0, len(all))
	for _, s := range all {
		s.reloading.Lock()
		defer s.reloading.Unlock()
		if string(config) == string(s.o.Config) {
			continue
		}
		o := s.o
		o.Config, o.ConfigName = config, name
		g, err := s.build(o)
		if err != nil {
			for _, g := range made {
				g.Close()
			}
			return err
		}
		made = append(made, g)
		change = append(change, func() {
			s.o = o
			s.generations.Replace(g)
			s.o.Log.Info("epp: the new configuration is in force", "from", o.ConfigName)
		})
	}
	for _, f := range change {
		f()
	}
	return nil
}

// Picking is the current configuration's director.
func (s *Standalone) Picking() *Picking { return s.generations.Current().Picking }
