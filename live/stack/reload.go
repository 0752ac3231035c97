package stack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/scenario"
)

// The picker's configuration may be edited during a run, in the file that the scenario names or in the scenario
// itself. A valid one is taken over without losing a request; an invalid one is refused, and the old one stays.

// watchConfig follows the configuration's file, if it is one.
func (s *Pool) watchConfig() (*watch.Watch, error) {
	file := s.pool.Picker.File
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil, nil // the embedded scenario, or one that came through a pipe
		}
		return nil, err
	}
	return watch.File("picker configuration "+file, file, s.o.Log, func() error {
		changed, err := s.reload(file)
		if s.o.Reloaded != nil && (changed || err != nil) {
			s.o.Reloaded(file, err)
		}
		return err
	})
}

// reload replaces the pickers' configuration by the file's, if they differ.
func (s *Pool) reload(file string) (changed bool, err error) {
	text, err := s.configIn(file)
	if err != nil || len(text) == 0 {
		return false, err
	}
	return s.configure(file, text)
}

// configIn is the picker's configuration in a file: the whole file, or the part of the scenario that configures the
// picker. An empty file is about to be written, and gives nothing.
func (s *Pool) configIn(file string) ([]byte, error) {
	text, err := files.Read(file, scenario.MaxFileBytes)
	switch {
	case err != nil:
		return nil, err
	case len(bytes.TrimSpace(text)) == 0:
		return nil, nil
	case file != s.o.Scenario.File:
		return text, nil
	}
	again, err := scenario.Parse(file, text)
	if err != nil {
		return nil, err
	}
	for i := range again.Pools {
		if p := &again.Pools[i]; p.Name == s.pool.Name && p.EPP.Config.File == file {
			return p.EPP.Config.Text, nil
		}
	}
	return nil, fmt.Errorf("%s has no picker configuration of pool %s any more; expected pools[].epp.config", file,
		s.pool.Name)
}
