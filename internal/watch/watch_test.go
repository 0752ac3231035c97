package watch_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/watch"
)

// A log that sends its lines to a channel.
type written chan string

func (c written) Write(line []byte) (int, error) { c <- string(line); return len(line), nil }

// A file is read at once and after each replacement of any kind, but not after changes of other files. Errors are
// logged.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	read := make(chan string, 100)
	load := func() error {
		text, err := os.ReadFile(path)
		if err == nil && string(text) == "bad" {
			err = errors.New("it is bad")
		}
		read <- string(text)
		if string(text) == "worse" {
			panic("it is worse")
		}
		return err
	}
	lines := make(written, 100)
	log := slog.New(slog.NewTextHandler(lines, nil))
	if w, err := watch.File("it", path, log, load); err == nil || w != nil {
		t.Errorf("no file: %v", err)
	}
	<-read
	if _, err := watch.File("it", filepath.Join(dir, "nowhere", "file"), log, load); err == nil ||
		!strings.Contains(err.Error(), "it: cannot watch it") {
		t.Errorf("no directory: %v", err)
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("file", "one")
	w, err := watch.File("it", path, log, load)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		for got := range read {
			if got == want {
				return
			}
		}
	}
	expect("one")
	put("file", "two")
	expect("two")
	put("other", "x")
	put("file", "bad")
	expect("bad")
	if line := <-lines; !strings.Contains(line, "from=it") || !strings.Contains(line, "it is bad") {
		t.Errorf("told: %s", line)
	}
	put("file", "worse")
	expect("worse")
	if line := <-lines; !strings.Contains(line, "from=it") || !strings.Contains(line, "it is worse") {
		t.Errorf("told: %s", line)
	}
	put("next", "three")
	if err := os.Rename(filepath.Join(dir, "next"), path); err != nil {
		t.Fatal(err)
	}
	expect("three")
	// Kubernetes replaces files this way: the file is a link through a directory that is swapped.
	for _, version := range []string{"v4", "v5"} {
		if err := errors.Join(os.Mkdir(filepath.Join(dir, version), 0o700),
			os.WriteFile(filepath.Join(dir, version, "file"), []byte(version), 0o600),
			os.Symlink(version, filepath.Join(dir, "..tmp")),
			os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
		if version == "v4" {
			if err := errors.Join(os.Symlink("..data/file", filepath.Join(dir, "link")),
				os.Rename(filepath.Join(dir, "link"), path)); err != nil {
				t.Fatal(err)
			}
		}
		expect(version)
	}
	w.Close()
	put("file", "after the end")
	close(read) // a load now would panic and leave a line in the log
	if len(lines) > 0 {
		t.Errorf("told: %s", <-lines)
	}
	(*watch.Watch)(nil).Close()
}
