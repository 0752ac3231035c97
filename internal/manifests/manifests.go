// Package manifests reads the Kubernetes objects that a user names, from files,
// directories and standard input.
package manifests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
	"github.com/windtunnel/windtunnel/internal/files"
)

// Files are the paths of the files that Load reads at a path.
func Files(path string) (out []string) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}
	}
	entries, _ := os.ReadDir(path) // Load reports the error
	for _, e := range entries {
		if files.IsManifest(e.Name()) {
			out = append(out, filepath.Join(path, e.Name()))
		}
	}
	return out
}

// Load reads the objects of files and directories ("-" is input). The error is
// every mistake in them.
func Load(paths []string, input io.Reader) (*gateway.Set, error) {
	return (&Source{Paths: paths, Input: input}).Load()
}

// Source is files and directories ("-" is Input) that may be read more than once.
type Source struct {
	Paths []string
	Input io.Reader
	// Digest identifies the texts that the last Load read, mistakes included.
	Digest uint64

	once map[string][]byte // what came through pipes, which can be read once
}

// Load reads the objects as Load does.
func (x *Source) Load() (*gateway.Set, error) {
	s := &gateway.Set{}
	var errs []error
	var problems strictyaml.Problems
	digest := xxhash.New()
	defer func() { x.Digest = digest.Sum64() }()
	add := func(path string, data []byte) error {
		fmt.Fprintf(digest, "%s %d\n%s", path, len(data), data)
		err := s.Add(path, data)
		var list strictyaml.Problems
		if errors.As(err, &list) {
			problems = append(problems, list...)
			return nil
		}
		return err
	}
	for _, path := range x.Paths {
		info, err := os.Stat(path)
		switch {
		case x.once[path] != nil:
			errs = append(errs, add(path, x.once[path]))
		case path == "-":
			data, err := files.ReadFrom("standard input", x.Input, objects.MaxFileBytes)
			if err == nil {
				err = x.add(path, data, add)
			}
			errs = append(errs, err)
		case err != nil:
			errs = append(errs, err)
		case info.IsDir():
			errs = append(errs, files.Manifests("manifests", path, objects.MaxFileBytes,
				func(at string, data []byte) error { return add(strings.TrimPrefix(at, "./"), data) }))
		default:
			data, err := files.Read(path, objects.MaxFileBytes)
			switch {
			case err == nil && info.Mode().IsRegular():
				err = add(path, data)
			case err == nil:
				err = x.add(path, data, add)
			}
			errs = append(errs, err)
		}
	}
	errs = append(errs, problems.Err())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if s.Count() == 0 {
		for _, path := range x.Paths {
			if k := files.KindOfFile(path); k.Is != "" && k.Is != files.Objects {
				return nil, fmt.Errorf("%s: found %s; expected %s; %s", path, k.Is, files.Objects, k.Use)
			}
		}
		return nil, fmt.Errorf("%s: no Kubernetes object in it that means something here; expected a Gateway, "+
			"HTTPRoutes "+
			"and what they lead to", strings.Join(x.Paths, ", "))
	}
	return s, nil
}

// add adds what came through a pipe, and keeps it for the next Load.
func (x *Source) add(path string, data []byte, to func(path string, data []byte) error) error {
	if x.once == nil {
		x.once = map[string][]byte{}
	}
	x.once[path] = data
	return to(path, data)
}
