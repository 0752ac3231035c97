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

// PoolOptions name a pool and the source of its endpoints.
type PoolOptions struct {
	// Namespace and PoolName name the InferencePool.
	PoolName, Namespace string
	// Objects is a directory of Kubernetes objects (InferencePool, Pod, InferenceObjective, InferenceModelRewrite) in
	// YAML and JSON files; "" is none.
	Objects string
	// Selector and TargetPorts, with a selector that is not nil, are the mode without a pool (--endpoint-selector): the
	// endpoints are the selected pods, without objectives and rewrites.
	Selector    picker.Selector
	TargetPorts []int
}

// ObjectsDir keeps a Picking equal to a directory of Kubernetes objects. Files
// that become unreadable or wrong change nothing.
type ObjectsDir struct {
	o       PoolOptions
	keep    bool // the endpoints come from elsewhere
	k       *Picking
	log     *slog.Logger
	changed func(found bool)
	ages    objects.Ages
	found   atomic.Bool
	watcher *watch.Watch
}

// openObjects reads the directory, which must be right, and follows it. It calls changed after each reading, with
// whether the pool exists. With keep it leaves the endpoints alone.
func openObjects(k *Picking, o PoolOptions, keep bool, log *slog.Logger, changed func(found bool)) (*ObjectsDir,
	error) {
	d := &ObjectsDir{o: o, keep: keep, k: k, log: log, changed: changed}
	var err error
	d.watcher, err = watch.Dir("objects in "+o.Objects, o.Objects, log, files.IsManifest, d.load)
	return d, err
}

// Close ends the watching.
func (d *ObjectsDir) Close() { d.watcher.Close() }

func (d *ObjectsDir) load() error {
	set := &objects.Set{DefaultNamespace: d.o.Namespace}
	if err := files.Manifests("objects", d.o.Objects, objects.MaxFileBytes, set.Add); err != nil {
		return err
	}
	for _, w := range set.Warnings {
		d.log.Warn("epp: objects", "warning", w)
	}
	d.ages.Settle(set)
	var s objects.Selection
	if d.o.Selector != nil {
		s.Found, s.Endpoints = true, set.Endpoints(d.o.Namespace, d.o.Selector, d.o.TargetPorts)
	} else {
		s = set.Select(d.o.Namespace, d.o.PoolName)
	}
	d.k.Apply(s, d.keep)
	if s.Found != d.found.Swap(s.Found) || !s.Found {
		d.log.Info("epp: objects read", "pool", d.o.PoolName, "found", s.Found, "endpoints", len(s.Endpoints))
	}
	d.changed(s.Found)
	return nil
}

// Apply makes a pool's objects those in force.
func (k *Picking) Apply(s objects.Selection, keepEndpoints bool) {
	k.Input(core.Objects{Selection: s, KeepEndpoints: keepEndpoints})
}
