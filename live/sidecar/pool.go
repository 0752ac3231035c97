package sidecar

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/discovery"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// roleLabel holds the role of a pool's pod.
const roleLabel = "llm-d.ai/role"

// pool holds the part of the InferencePool that the sidecar needs: the targets that requests may name, and the prefill
// servers.
type pool struct {
	mu         sync.Mutex // disagg.Config.Lock locks it, too
	allow      disagg.Allowlist
	names      map[string]netip.Addr // the pool's endpoints, and the loopback
	prefillers []disagg.Target

	path, namespace, name string // name is the InferencePool's, if path is a directory
	log                   *slog.Logger
	changed               func(size int)
	watcher               *watch.Watch
}

// openPool reads the endpoints file or the directory of objects, and follows its changes. It returns an error if the
// first reading fails.
func openPool(o *Options, changed func(size int)) (*pool, error) {
	p := &pool{path: o.EndpointsFile, namespace: o.Namespace, log: o.Log, changed: changed}
	var err error
	if o.EndpointsFile != "" {
		p.watcher, err = watch.File("endpoints file "+p.path, p.path, p.log, p.loadFile)
	} else {
		p.path, p.name = o.Objects, o.PoolName
		p.watcher, err = watch.Dir("objects in "+p.path, p.path, p.log, files.IsManifest, p.loadObjects)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pool) loadFile() error {
	data, err := files.Read(p.path, discovery.MaxFileBytes)
	if err != nil {
		return fmt.Errorf("endpoints file: %w", err)
	}
	list, err := discovery.Read(p.path, data, p.namespace)
	if err != nil {
		return err
	}
	return p.load(list)
}

// loadObjects reads the pods that the InferencePool selects, as the real sidecar does from Kubernetes. A pool that does
// not exist allows no target.
func (p *pool) loadObjects() error {
	set := &objects.Set{DefaultNamespace: p.namespace}
	if err := files.Manifests("objects", p.path, objects.MaxFileBytes, set.Add); err != nil {
		return err
	}
	for _, w := range set.Warnings {
		p.log.Warn("sidecar: objects", "warning", w)
	}
	s := set.Select(p.namespace, p.name)
	if !s.Found {
		p.log.Warn("sidecar: no such InferencePool among the objects: no prefiller is allowed", "namespace",
			p.namespace, "pool", p.name)
	}
	return p.load(s.Endpoints)
}

func (p *pool) load(list []*picker.Endpoint) error {
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
		names[strings.TrimSuffix(e.Name, "-rank-"+strconv.Itoa(e.Rank))] = a // the pod's own name
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
	p.log.Info("allowlist_updated", "addresses", size, "prefillers", len(prefillers), "from", p.path)
	p.changed(size)
}

func (p *pool) known() []disagg.Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prefillers
}

func (p *pool) close() { p.watcher.Close() }
