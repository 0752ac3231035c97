package up

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/misfits"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/manifests"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/live/cluster"
)

// Manifests are files and directories ("-" is the input) that are read again after each edit. Edits before the first
// reading count, too: Open comes before Load.
type Manifests struct {
	source  manifests.Source
	log     *slog.Logger
	watches []*watch.Watch
	changed chan struct{} // capacity 1 is enough, because each reading reads everything

	mu     sync.Mutex
	edited []string // paths edited since the last reading
}

// Load reads the objects of files and directories ("-" is the input). The error lists every mistake in them.
func Load(paths []string, input io.Reader) (*gateway.Set, error) { return manifests.Load(paths, input) }

// Digest returns what Manifests.Digest returns once the manifests at these paths have been read as they are now.
func Digest(paths []string) (uint64, error) {
	x := manifests.Source{Paths: paths}
	_, err := x.Load()
	if x.Digest == 0 {
		return 0, err
	}
	return x.Digest, nil // mistakes are reported when the manifests are applied
}

// Open watches for edits until Close. Input from a pipe does not change.
func Open(paths []string, input io.Reader, log *slog.Logger) (*Manifests, error) {
	m := &Manifests{source: manifests.Source{Paths: paths, Input: input}, log: cmp.Or(log, discard),
		changed: make(chan struct{}, 1)}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			continue // Load reports the error
		}
		dir, matters := path, files.IsManifest
		if !info.IsDir() {
			dir, matters = filepath.Dir(path), func(name string) bool { return name == filepath.Base(path) }
		}
		first := true
		w, err := watch.Dir("manifests in "+path, dir, m.log, matters, func() error {
			if !first {
				m.edit(path)
			}
			first = false
			return nil
		})
		if err != nil {
			m.Close()
			return nil, err
		}
		m.watches = append(m.watches, w)
	}
	return m, nil
}

// Close stops the watching.
func (m *Manifests) Close() {
	for _, w := range m.watches {
		w.Close()
	}
}

func (m *Manifests) edit(path string) {
	m.mu.Lock()
	if !slices.Contains(m.edited, path) {
		m.edited = append(m.edited, path)
	}
	m.mu.Unlock()
	pause.Wake(m.changed)
}

// Load reads the objects. The error lists every mistake in them.
func (m *Manifests) Load() (*gateway.Set, error) { return m.source.Load() }

// Digest identifies the texts that the last Load read.
func (m *Manifests) Digest() uint64 { return m.source.Digest }

// Follow applies the manifests whenever they change, one edit after another, until ctx ends. It calls the callback for
// each edit, with the error if the edit was refused. After a refused edit, the last good state stays in force.
func (u *Up) Follow(ctx context.Context, m *Manifests, outcome func(at string, err error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		m.mu.Lock()
		edited := m.edited
		m.edited = nil
		m.mu.Unlock()
		s, err := m.Load()
		if err == nil {
			err = u.Apply(ctx, s)
		}
		if ctx.Err() != nil && err != nil {
			return // interrupted, not refused
		}
		at := strings.Join(edited, ", ")
		u.edited(at, err)
		outcome(at, err)
	}
}

// edited records the outcome of an edit.
func (u *Up) edited(file string, err error) {
	e := record.Event{Hop: record.Envoy, Step: record.ConfigApplied, Details: record.Details{record.D("file", file)}}
	if err != nil {
		e.Step, e.Details = record.ConfigRefused, append(e.Details, record.D("reason", err.Error()))
	}
	u.Happens(e)
}

// Dry returns the Cluster that Start would bring up with these Options. The mistakes of its Program are all those that
// Start refuses before it listens anywhere.
func Dry(s *gateway.Set, o Options) (*plan.Cluster, error) {
	c := plan.Compile(s, plan.Options{Options: gateway.Options{Supply: true}})
	p := c.Program
	o.Note = func(text string) { p.Notes = append(p.Notes, text) }
	u := &Up{o: o, Run: cluster.Run{Log: discard}, noted: map[string]bool{}, applied: new(plan.Cluster),
		addresses: new(cluster.Addresses)}
	one := *c
	one.Pods = slices.CompactFunc(slices.Clone(c.Pods),
		func(a, b plan.Pod) bool { return a.Workload == b.Workload })
	x := u.newChange(&one)
	p.Mistakes = errors.Join(p.Mistakes, x.read())
	p.Notes = append(p.Notes, misfits.Of(s)...)
	x.drop()
	return c, refused(c)
}

// refused returns an *InvalidError for a Cluster that cannot be brought up.
func refused(c *plan.Cluster) error {
	switch {
	case !c.Serves():
		return &InvalidError{errNoGateway}
	case c.Program.Mistakes != nil:
		return &InvalidError{c.Program.Mistakes}
	}
	return nil
}

var errNoGateway = errors.New(
	"there is no Gateway that can be served; expected one with a listener of protocol HTTP or HTTPS")
