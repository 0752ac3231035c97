package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/manifests"
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
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Load reads the objects. The error lists every mistake in them.
func (m *Manifests) Load() (*gateway.Set, error) { return m.source.Load() }

// Follow applies the manifests whenever they change, one edit after another, until ctx ends. It calls the callback for
// each edit, with the error if the edit was refused. After a refused edit, the last good state stays in force.
func (u *Up) Follow(ctx context.Context, m *Manifests, told func(at string, err error)) {
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
		told(at, err)
	}
}

// Dry returns the Program that Start would bring up with these Options, with its notes and conditions. Its mistakes are
// all those that Start refuses before it listens anywhere.
func Dry(s *gateway.Set, o Options) (*gateway.Program, error) {
	p := gateway.Build(s, gateway.Options{Supply: true})
	_, notes, err := rulesOf(s)
	p.Notes = append(p.Notes, notes...)
	o.Note = func(text string) { p.Notes = append(p.Notes, text) }
	u := &Up{o: o, log: discard, noted: map[string]bool{}, addresses: &cluster.Addresses{}}
	p.Mistakes = errors.Join(p.Mistakes, err, u.check(s, p))
	switch {
	case nothingServed(s, p):
		return p, &InvalidError{errNoGateway}
	case p.Mistakes != nil:
		return p, &InvalidError{p.Mistakes}
	}
	return p, nil
}

var errNoGateway = errors.New(
	"there is no Gateway that can be served; expected one with a listener of protocol HTTP or HTTPS")

// nothingServed reports whether there is no Gateway to serve. Objects without any Gateway and route can still be served
// by their pods alone, which a note says.
func nothingServed(s *gateway.Set, p *gateway.Program) bool {
	if len(p.Gateways) > 0 {
		return false
	}
	if len(s.Gateways)+len(s.Routes) > 0 || !slices.ContainsFunc(s.Workloads, func(w gateway.Workload) bool {
		c, _ := w.Serves()
		return c != nil
	}) {
		return true
	}
	p.Notes = append(p.Notes, "there is no Gateway and no route: the pods answer at their own addresses alone")
	return false
}

// Replicas returns, for a plan, the number of pods and the role that each container is taken for.
func Replicas(s *gateway.Set) (out []string) {
	rules, _, _ := rulesOf(s) // Dry returns the mistakes
	for i := range s.Workloads {
		w := &s.Workloads[i]
		serves, _ := w.Serves()
		var parts []string
		for k := range w.Containers {
			c := &w.Containers[k]
			r, by := c.Taken()
			part := fmt.Sprintf("%s (container %s, by its %s)", r, c.Name, by)
			if r == gateway.RoleOther {
				part = fmt.Sprintf("image %s, which nothing here simulates (container %s)", c.Image, c.Name)
				if c == serves {
					part += ": a server that answers with what it was asked"
				}
			}
			parts = append(parts, part)
		}
		what := fmt.Sprintf("%d × %s", w.Replicas, strings.Join(parts, ", "))
		if x := rules[workloadKey(w)]; x != nil {
			what += fmt.Sprintf(", then %d to %d by %s %s", x.config.Min, x.config.Max, x.Kind, x.Name)
		}
		out = append(out, fmt.Sprintf("%s %s/%s: %s", w.Kind, w.Namespace, w.Name, what))
	}
	return out
}
