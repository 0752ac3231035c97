package sidecar

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"sync"

	"github.com/windtunnel/windtunnel/core/disagg"
	"github.com/windtunnel/windtunnel/core/picker/discovery"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// roleLabel tells what a pod of a pool does.
const roleLabel = "llm-d.ai/role"

// pool is what the sidecar knows of its InferencePool: whom requests may name,
// and who prefills.
type pool struct {
	mu         sync.Mutex // also what disagg.Config.Lock takes
	allow      disagg.Allowlist
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
	info, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	if info.Size() > discovery.MaxFileBytes {
		return fmt.Errorf("%s has %d bytes; at most %d are read", p.path, info.Size(), discovery.MaxFileBytes)
	}
	data, err := os.ReadFile(p.path)
	if err != nil {
		return err
	}
	list, err := discovery.Read(p.path, data, p.namespace)
	if err != nil {
		return err
	}
	var all []netip.AddrPort
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
		if e.Labels[roleLabel] == "prefill" {
			prefillers = append(prefillers, disagg.Target{Host: e.Address, Port: int(port), Addr: a})
		}
	}
	p.set(all, prefillers)
	return nil
}

func (p *pool) set(all []netip.AddrPort, prefillers []disagg.Target) {
	p.mu.Lock()
	p.allow.Set(all)
	p.prefillers = prefillers
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
