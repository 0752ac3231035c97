package epp

import (
	"log/slog"

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

// followObjects keeps a Picking equal to a directory of Kubernetes objects. It reads the directory, which must be
// right; files that become unreadable or wrong later change nothing. It calls changed after each reading, with whether
// the pool exists. With keep it leaves the endpoints alone.
func followObjects(k *Picking, o PoolOptions, keep bool, log *slog.Logger, changed func(found bool)) (*watch.Watch,
	error) {
	var ages objects.Ages
	found := false
	return watch.Dir("objects in "+o.Objects, o.Objects, log, files.IsManifest, func() error {
		set := &objects.Set{DefaultNamespace: o.Namespace}
		if err := files.Manifests("objects", o.Objects, objects.MaxFileBytes, set.Add); err != nil {
			return err
		}
		for _, w := range set.Warnings {
			log.Warn("epp: objects", "warning", w)
		}
		ages.Settle(set)
		var s objects.Selection
		if o.Selector != nil {
			s.Found, s.Endpoints = true, set.Endpoints(o.Namespace, o.Selector, o.TargetPorts)
		} else {
			s = set.Select(o.Namespace, o.PoolName)
		}
		k.Apply(s, keep)
		if s.Found != found || !s.Found {
			log.Info("epp: objects read", "pool", o.PoolName, "found", s.Found, "endpoints", len(s.Endpoints))
		}
		found = s.Found
		changed(found)
		return nil
	})
}

// Apply makes a pool's objects those in force.
func (k *Picking) Apply(s objects.Selection, keepEndpoints bool) {
	k.Input(core.Objects{Selection: s, KeepEndpoints: keepEndpoints})
}
