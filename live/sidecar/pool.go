package sidecar

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strconv"
	"sync"

	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/picker/discovery"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// roleLabel tells what a pod of a pool does.
const roleLabel = "llm-d.ai/role"

// pool is what the sidecar knows of its InferencePool: whom requests may name,
// and who prefills.
type pool struct {
	mu         sync.Mutex // also what disagg.Config.Lock takes
	allow      disagg.Allowlist
	names      map[string]netip.Addr // of the pool's endpoints, and of the loopback
	prefillers []disagg.Target

	path, namespace string
	log             *slog.Logger
	changed         func(size int)
	watcher         *watch.Watch
}

// openPool reads the endpoints file, which must be right, and follows it.
func openPool(path, namespace string, log *slog.Logger, changed func(size int)) (*pool, error) {
	p := &pool{path: path, namespace: namespace, log: log, changed: changed}
	var err error
	if p.watcher, err = watch.File("endpoints file "+path, path, log, p.load); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pool) load() error {
	data, err := files.Read(p.path, discovery.MaxFileBytes)
	if err != nil {
		return fmt.Errorf("endpoints file: %w", err)
	}
	list, err := discovery.Read(p.path, data, p.namespace)
	if err != nil {
		return err
	}
	var all []netip.AddrPort
	names := map[string]netip.Addr{}
	var prefillers []disagg.Target
	for _, e := range list {
		a, err := netip.ParseAddr(e.Address)
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", e.Name, err)
		}
		port, err := strconv.ParseUint(e.Port, 10, 16)
		if err != nil {
			return fmt.Errorf("endpoint %s: port %q: %w", e.Name, e.Port, err)
		}
		all = append(all, netip.AddrPortFrom(a, uint16(port)))
		names[e.Name] = a
		if e.Labels[roleLabel] == "prefill" {
			prefillers = append(prefillers, disagg.Target{Host: e.Address, Port: int(port), Addr: a})
		}
	}
	p.set(all, names, prefillers)
	return nil
}

func (p *pool) set(all []netip.AddrPort, names map[string]netip.Addr, prefillers []disagg.Target) {
	known := map[string]netip.Addr{"localhost": netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	maps.Copy(known, names)
	p.mu.Lock()
	p.allow.Set(all)
	p.names, p.prefillers = known, prefillers
	size := p.allow.Size()
	p.mu.Unlock()
	p.log.Info("allowlist_updated", "addresses", size, "prefillers", len(prefillers), "file", p.path)
	p.changed(size)
}

func (p *pool) known() []disagg.Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prefillers
}

func (p *pool) close() { p.watcher.Close() }
