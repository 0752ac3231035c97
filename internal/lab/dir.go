package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/internal/files"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/internal/rundir"
	"github.com/windtunnel/windtunnel/internal/watch"
	"github.com/windtunnel/windtunnel/live/up"
)

// Dir is the path of the directory of the user's lab. One process at a time owns it, the lab that runs.
type Dir string

// The files in a Dir.
func (d Dir) file(name string) string { return filepath.Join(string(d), name) }

// Manifests is the directory with the manifests that the user edits.
func (d Dir) Manifests() string { return d.file("manifests") }

// Scenario is the file with the lab's traffic.
func (d Dir) Scenario() string { return d.file("traffic.yaml") }

// Status is the file with the status of every object.
func (d Dir) Status() string { return d.file("status.yaml") }

// Run is the directory of Envoy's files.
func (d Dir) Run() string { return d.file("run") }

// Link makes the programs of Bin: links to this one.
func (d Dir) Link() error {
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(d.Bin(), 0o700)
	}
	for _, name := range []string{"kubectl", "nvidia-smi"} {
		if err == nil {
			err = os.Symlink(self, filepath.Join(d.Bin(), name))
		}
	}
	return err
}

// Bin is the directory with kubectl and nvidia-smi.
func (d Dir) Bin() string { return d.file("bin") }

// OnStop calls end once Stop asks for the lab's end, until the Watch is closed.
func (d Dir) OnStop(log *slog.Logger, end func()) (*watch.Watch, error) {
	return watch.File("the lab's end", d.stopFile(), log, func() error {
		if _, err := os.Stat(d.stopFile()); err == nil {
			end()
		}
		return nil
	})
}

// stopFile is the file whose existence ends the lab.
func (d Dir) stopFile() string { return d.file("stop") }

// State describes a running lab. Its process writes it for other processes.
type State struct {
	Lab       string        `json:"lab"`
	Since     time.Time     `json:"since"`
	Addresses *up.Addresses `json:"addresses"`
	// Applied is the digest of the manifests that windtunnel has read last, and Refused the error if it did not put
	// them in force.
	Applied uint64 `json:"applied"`
	Refused string `json:"refused,omitempty"`
}

// ErrNone is the error of a command for a running lab where none runs.
var ErrNone = errors.New("no lab is running; expected one that windtunnel lab start NAME has started")

const maxState = 16 << 20

// State returns the running lab's state.
func (d Dir) State() (s State, err error) {
	if !rundir.Held(string(d)) {
		return s, ErrNone
	}
	text, err := files.Read(d.file("state.json"), maxState)
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("%w; one is starting now", ErrNone)
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// Write replaces the state.
func (d Dir) Write(s State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return files.Replace(d.file("state.json"), text)
}

// Fill writes the manifests, and removes others.
func (d Dir) Fill(texts map[string]string) error {
	if err := os.MkdirAll(d.Manifests(), 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.Manifests())
	for _, e := range entries {
		if _, ours := texts[e.Name()]; !ours && files.IsManifest(e.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(d.Manifests(), e.Name())))
		}
	}
	for name, text := range texts {
		err = errors.Join(err, files.Replace(filepath.Join(d.Manifests(), name), []byte(text)))
	}
	return err
}

// patience limits the wait for edited manifests to be applied.
const patience = 30 * time.Second

// Applied waits until the lab has read the manifests as they are now, and returns its state then. The error of refused
// manifests is in the state.
func (d Dir) Applied(ctx context.Context) (s State, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		now, err := up.Digest([]string{d.Manifests()})
		if err == nil {
			s, err = d.State()
		}
		if err != nil || s.Applied == now {
			return s, err
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return s, fmt.Errorf("the lab has not applied the edits in %s within %s", d.Manifests(), patience)
		}
	}
}

// Stop ends the running lab, and returns once its process has removed the directory.
func (d Dir) Stop(ctx context.Context) error {
	if !rundir.Held(string(d)) {
		return ErrNone
	}
	if err := os.WriteFile(d.stopFile(), nil, 0o600); err != nil {
		return err
	}
	for rundir.Held(string(d)) {
		if !pause.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// Hints adds a number of hints to those that the user has seen, and returns them all.
func (d Dir) Hints(more int) (int, error) {
	text, err := files.Read(d.file("hints"), 1<<10)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	seen := len(text) + more
	return seen, files.Replace(d.file("hints"), []byte(strings.Repeat("\n", seen)))
}
