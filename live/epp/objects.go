package epp

import (
	"log/slog"
	"sync/atomic"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// ObjectsOptions say where Kubernetes objects are and which of them count.
type ObjectsOptions struct {
	// Dir holds YAML and JSON files of any number of objects.
	Dir string
	// Namespace and Pool name the InferencePool.
	Namespace, Pool string
	// Selector and Ports, with a selector that is not nil, are the mode without
	// a pool (--endpoint-selector): no objectives, no rewrites.
	Selector picker.Selector
	Ports    []int
	// KeepEndpoints leaves the endpoints alone: they come from elsewhere.
	KeepEndpoints bool
}

// ObjectsDir keeps a Picking equal to a directory of Kubernetes objects. Files
// that become unreadable or wrong change nothing.
type ObjectsDir struct {
	o       ObjectsOptions
	k       *Picking
	log     *slog.Logger
	changed func(found bool)
	ages    objects.Ages
	found   atomic.Bool
	watcher *watch.Watch
}

// OpenObjectsDir reads the directory, which must be right, and follows it.
// changed is called after each reading, with whether the pool exists.
func OpenObjectsDir(k *Picking, o ObjectsOptions, log *slog.Logger, changed func(found bool)) (*ObjectsDir, error) {
	d := &ObjectsDir{o: o, k: k, log: log, changed: changed}
	var err error
	d.watcher, err = watch.Dir("objects in "+o.Dir, o.Dir, log, files.IsManifest, d.load)
	return d, err
}

// Close ends the watching.
func (d *ObjectsDir) Close() { d.watcher.Close() }

func (d *ObjectsDir) load() error {
	set := &objects.Set{DefaultNamespace: d.o.Namespace}
	if err := files.Manifests("objects", d.o.Dir, objects.MaxFileBytes, set.Add); err != nil {
		return err
	}
	for _, w := range set.Warnings {
		d.log.Warn("epp: objects", "warning", w)
	}
	d.ages.Settle(set)
	var s objects.Selection
	if d.o.Selector != nil {
		s.Found, s.Endpoints = true, set.Endpoints(d.o.Namespace, d.o.Selector, d.o.Ports)
	} else {
		s = set.Select(d.o.Namespace, d.o.Pool)
	}
	d.k.Apply(s, d.o.KeepEndpoints)
	if s.Found != d.found.Swap(s.Found) || !s.Found {
		d.log.Info("epp: objects read", "pool", d.o.Pool, "found", s.Found, "endpoints", len(s.Endpoints))
	}
	if d.changed != nil {
		d.changed(s.Found)
	}
	return nil
}

// Apply makes a pool's objects those in force.
func (k *Picking) Apply(s objects.Selection, keepEndpoints bool) {
	k.Input(core.Objects{Selection: s, KeepEndpoints: keepEndpoints})
}
