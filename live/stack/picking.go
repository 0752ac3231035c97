package stack

import (
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/scenario"
)

// ConfigError is an EndpointPickerConfig that the picker does not take.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap is the picker's own error.
func (e *ConfigError) Unwrap() error { return e.Err }

// remembered is how many decisions /debug/decisions tells.
const remembered = 1000

// picking is the picker of a pool with an EndpointPickerConfig, which may change
// while the run goes on.
type picking struct {
	generations *epp.Generations
	metrics     *epp.PickMetrics
	stream      stream.Config
	watcher     *watch.Watch

	mu   sync.Mutex // one change at a time
	text []byte     // the configuration in force
}

// now is what decides about requests that come now.
func (p *picking) now() *epp.Generation { return p.generations.Current() }

func (s *Stack) newPicking(o *epp.Options) (*picking, error) {
	o.Registry = prometheus.NewRegistry()
	p := &picking{generations: epp.NewGenerations(), metrics: epp.NewPickMetrics(o.Registry, s.pool.Name), stream: s.streams(), text: s.pool.EPP.Config.Text}
	g, err := s.generation(p, &s.pool.EPP.Config)
	if err != nil {
		return nil, err
	}
	p.generations.Replace(g)
	o.Registry.MustRegister(p.generations)
	o.Pickers, o.Pages = p.generations, p.generations.Pages()
	if p.watcher, err = s.watchConfig(p); err != nil {
		p.generations.Close()
		return nil, err
	}
	return p, nil
}

// generation is the picker of one configuration with what keeps its view of the
// model servers fresh.
func (s *Stack) generation(p *picking, config *scenario.PickerConfig) (g *epp.Generation, err error) {
	o := epp.StandaloneOptions{Config: config.Text, ConfigName: config.File, PoolName: s.pool.Name,
		Seed: s.o.Scenario.Seed, AllowExperimental: true, Predictor: s.predicts(), History: remembered, Registry: s.o.Plugins, Log: s.o.Log}
	built, err := epp.BuildPicker(&o)
	if err != nil {
		return nil, &ConfigError{err}
	}
	g = &epp.Generation{Registry: prometheus.NewRegistry()}
	g.Picking, err = epp.NewPicking(epp.PickingOptions{
		Config: core.Config{Picker: built, Stream: p.stream, EmitScores: true, DocumentHeaders: true, Explain: s.o.Explain, History: remembered, Describe: s.o.Describe},
		Made:   o.Made(), Now: s.Now, PoolName: s.pool.Name, Metrics: p.metrics, Hosts: s.hosts().Address, KV: s.kvOptions(g.Registry), Scraped: s.o.Scraped, Log: s.o.Log})
	if err != nil {
		return nil, &ConfigError{fmt.Errorf("%s: %w", config.File, err)}
	}
	made := g // a step that returns an error has set g to nil by then
	defer func() {
		if err != nil {
			made.Close()
		}
	}()
	if err := epp.ObservePool(g.Registry, g.Picking, s.pool.Name); err != nil {
		return nil, err
	}
	endpoints, err := s.pickerEndpoints()
	if err != nil {
		return nil, err
	}
	if o, given := s.pool.EPP.Objects(); given {
		g.Apply(o, true)
	}
	g.SetEndpoints(endpoints)
	return g, nil
}

// streams is what the EPP's streams share.
func (s *Stack) streams() stream.Config {
	c := s.o.Scenario.Stream(s.pool)
	c.Recorder = s.o.Recorder
	// Only our own client compares; requests by hand (--keep) leave nothing.
	ours := s.o.Scenario.Generator().Prefix()
	c.OnMetadata = func(request, metadata string) {
		if strings.HasPrefix(request, ours) {
			s.made.Store(request, metadata)
		}
	}
	return c
}

// kvOptions are those of the picker's KV indexes, which begin to listen now.
func (s *Stack) kvOptions(registry prometheus.Registerer) epp.KVOptions {
	o := epp.KVOptions{Registry: registry, Publisher: s.eventsOf}
	if s.kv != nil {
		s.kv.mu.Lock()
		for i, e := range s.Endpoints {
			if a := s.kv.list[i]; a != nil {
				s.kv.pods[e] = a
			}
		}
		s.kv.mu.Unlock()
		o.OnIndex, o.OnMessage = s.kv.understand, s.kv.indexed()
	}
	return o
}

func (s *Stack) pickerEndpoints() ([]*picker.Endpoint, error) {
	var out []*picker.Endpoint
	for i, e := range s.Endpoints {
		host, port, err := net.SplitHostPort(e)
		if err != nil {
			return nil, err
		}
		out = append(out, picker.NewEndpoint("default", s.Names[i], host, port, s.pool.Labels(i)))
	}
	return out, nil
}

// Record has what enters the picker written down from now on. Somebody else's
// picker is not recorded.
func (s *Stack) Record(x *epp.InputLog) {
	if s.picking != nil {
		s.picking.generations.Record(x)
	}
}

func (p *picking) stop() {
	p.watcher.Close()
	p.generations.Close()
}
