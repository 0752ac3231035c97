package stack

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker"
	"github.com/windtunnel/windtunnel/live/epp"
)

// ConfigError is an EndpointPickerConfig that the picker does not take.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap is the picker's own error.
func (e *ConfigError) Unwrap() error { return e.Err }

// remembered is how many decisions /debug/decisions tells.
const remembered = 1000

// picking is the picker of a pool with an EndpointPickerConfig, with what keeps
// its view of the model servers fresh.
type picking struct {
	*epp.Picking
	scraper *epp.Scraper
	kv      *epp.KVIndexes
}

func (s *Stack) newPicking(o *epp.Options) (*picking, error) {
	log := s.o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	config := &s.pool.EPP.Config
	p, err := epp.BuildPicker(&epp.StandaloneOptions{Config: config.Text, ConfigName: config.File, PoolName: s.pool.Name,
		Seed: s.o.Scenario.Seed, AllowExperimental: true, History: remembered, Log: log})
	if err != nil {
		return nil, &ConfigError{err}
	}
	o.Registry = prometheus.NewRegistry()
	metrics := epp.NewPickMetrics(o.Registry, s.pool.Name)
	k, err := epp.NewPicking(epp.PickingOptions{Picker: p, Now: s.Now, Errors: o.Stream.Errors, EmitScores: true, PoolName: s.pool.Name,
		DocumentHeaders: true, Explain: s.o.Recorder != nil, Metrics: metrics, History: remembered, Hosts: s.hosts(), Log: log})
	if err != nil {
		return nil, &ConfigError{fmt.Errorf("%s: %w", config.File, err)}
	}
	if err := epp.ObservePool(o.Registry, k, s.pool.Name); err != nil {
		k.Close()
		return nil, err
	}
	endpoints, err := s.pickerEndpoints()
	if err != nil {
		k.Close()
		return nil, err
	}
	k.With(func(p *picker.Picker, _ machine.Time) { p.Pool().Set(endpoints) })
	o.Director, o.Pages = k, k.Pages()
	x := &picking{Picking: k, scraper: epp.StartScraper(k, scrapeInterval, log, metrics.ScrapeFailed)}
	x.scraper.Follow()
	if x.kv, err = epp.StartKVIndexes(k, s.kvOptions(o.Registry)); err != nil {
		x.stop()
		return nil, err
	}
	return x, nil
}

// kvOptions are those of the picker's KV indexes, which begin to listen now.
func (s *Stack) kvOptions(registry prometheus.Registerer) epp.KVOptions {
	o := epp.KVOptions{Registry: registry, Publisher: s.eventsOf, Log: s.o.Log}
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

func (p *picking) stop() {
	p.scraper.Stop()
	p.kv.Close()
	p.Close()
}
