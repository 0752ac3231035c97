package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
)

// Follow takes over what files and directories say whenever they change, until
// stop is called. told is told of each change, and why it was refused, if it was:
// then the last good state stays in force.
func (u *Up) Follow(paths []string, told func(at string, err error)) (stop func(), err error) {
	var all []*watch.Watch
	stop = func() {
		for _, w := range all {
			w.Close()
		}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == "-" || err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			continue // what came through a pipe does not change
		}
		if err != nil {
			stop()
			return nil, err
		}
		dir, matters := path, files.IsManifest
		if !info.IsDir() {
			dir, matters = filepath.Dir(path), func(name string) bool { return name == filepath.Base(path) }
		}
		first := true
		w, err := watch.Dir("manifests in "+path, dir, u.log, matters, func() error {
			if first {
				first = false
				return nil
			}
			err := u.again(paths)
			u.edited(path, err)
			told(path, err)
			return err
		})
		if err != nil {
			stop()
			return nil, err
		}
		all = append(all, w)
	}
	return stop, nil
}

// again reads everything anew and applies it.
func (u *Up) again(paths []string) error {
	s, err := Load(paths, nil)
	if err != nil {
		return err
	}
	return u.Apply(context.Background(), s)
}

// Dry says what would be brought up: the Program, with its notes and conditions.
func Dry(s *gateway.Set) (*gateway.Program, error) {
	p := gateway.Build(s, gateway.Options{Supply: true})
	_, notes, err := rulesOf(s)
	p.Notes, p.Mistakes = append(p.Notes, notes...), errors.Join(p.Mistakes, err)
	switch {
	case len(p.Gateways) == 0:
		return p, &InvalidError{errNoGateway}
	case p.Mistakes != nil:
		return p, &InvalidError{p.Mistakes}
	}
	return p, nil
}

var errNoGateway = errors.New("there is no Gateway that can be served; expected one with a listener of protocol HTTP or HTTPS")

// Replicas says how many pods there are to be, and of what, for a plan.
func Replicas(s *gateway.Set) (out []string) {
	rules, _, _ := rulesOf(s) // Dry tells what is wrong with them
	for i := range s.Workloads {
		w := &s.Workloads[i]
		c, r := w.Serves()
		what := fmt.Sprintf("%d × %s", w.Replicas, r)
		switch {
		case w.With(gateway.RoleRouter) != nil:
			what = fmt.Sprintf("%d × %s, ahead of the routes", w.Replicas, gateway.RoleRouter)
		case c == nil:
			what = fmt.Sprintf("%s, which runs with the pools that it is for", w.Containers[0].Role())
		case r == gateway.RoleOther:
			what = fmt.Sprintf("%d × image %s, which nothing here simulates: a server that answers with what it was asked", w.Replicas, c.Image)
		}
		if w.With(gateway.RoleSidecar) != nil {
			what += " behind a routing sidecar"
		}
		if x := rules[workloadKey(w)]; x != nil {
			what += fmt.Sprintf(", then %d to %d by %s %s", x.config.Min, x.config.Max, x.kind, x.name)
		}
		out = append(out, fmt.Sprintf("%s %s/%s: %s", w.Kind, w.Namespace, w.Name, what))
	}
	return out
}
