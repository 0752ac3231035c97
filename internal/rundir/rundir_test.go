package rundir

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// runDirVar makes this test binary a run, with a directory inside the named one, until it is killed.
const runDirVar = "WINDTUNNEL_TEST_RUN_DIR"

func serveRunDir(temp string) {
	var err error
	theRunDir, err = New(temp, Run, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(theRunDir.Path)
	time.Sleep(time.Hour) // an empty select would be a deadlock, which ends the process
}

func TestMain(m *testing.M) {
	if temp := os.Getenv(runDirVar); temp != "" {
		serveRunDir(temp)
	}
	os.Exit(m.Run())
}

// theRunDir exists as long as that process.
var theRunDir *Dir

// A run removes the directory of a killed run and no other: not the directory of another running run, in this process
// or another, nor the kept directory of a failed run, nor a directory with a similar name.
func TestKilledRunsDirectoryIsCleared(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	start := func() (*exec.Cmd, string) {
		t.Helper()
		c := exec.Command(os.Args[0])
		c.Env, c.Stderr = append(os.Environ(), runDirVar+"="+temp), os.Stderr
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Kill() // in case the test did not get there
			_ = c.Wait()         // the error says that it was killed
		})
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatal("the run did not start")
		}
		return c, lines.Text()
	}
	run := func() *Dir {
		t.Helper()
		d, err := New(temp, Run, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := func(name string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(temp, name)
		must(os.Mkdir(path, mode))
		must(os.WriteFile(filepath.Join(path, lockFile), nil, 0o600))
		return path
	}

	own := run()
	if own.lock == nil {
		t.Skip("this system has no locks that end with their process")
	}
	killed, killedDir := start()
	_, otherDir := start()
	stay := []string{otherDir, own.Path, dir("windtunnel-notes", 0o700), dir("windtunnel-123", 0o755),
		dir("other-123", 0o700), filepath.Join(temp, "windtunnel-5")}
	elsewhere := t.TempDir()
	must(os.WriteFile(filepath.Join(elsewhere, lockFile), nil, 0o600))
	must(os.Symlink(elsewhere, stay[5]))
	bare := filepath.Join(temp, "windtunnel-7")
	must(os.Mkdir(bare, 0o700))
	linked := filepath.Join(temp, "windtunnel-8")
	must(os.Mkdir(linked, 0o700))
	must(os.Symlink(filepath.Join(elsewhere, lockFile), filepath.Join(linked, lockFile)))
	failed := run()
	logs := errors.New("it ended (log: " + filepath.Join(failed.Path, "it.log") + ")")
	if err := failed.End(logs); !errors.Is(err, logs) {
		t.Errorf("the run's error became %v", err)
	}
	stay = append(stay, bare, linked, failed.Path, filepath.Join(elsewhere, lockFile))

	must(killed.Process.Kill())
	_ = killed.Wait() // the error says that it was killed
	next := run()
	if exists(killedDir) {
		t.Error("the killed run's directory is still there")
	}
	for _, path := range stay {
		if !exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
	other := errors.New("bad")
	if err := run().End(other); err != other { //nolint:errorlint // nothing else failed
		t.Errorf("the run's error became %v", err)
	}
	must(next.End(nil))
	if exists(next.Path) {
		t.Error("a run that ended well left its directory")
	}
	long := time.Now().Add(-keptFor - time.Hour)
	must(os.Chtimes(filepath.Join(failed.Path, keptFile), long, long))
	// A process that another test is starting shares all open files, and so the lock, until it executes its own
	// program.
	n := clear(temp)
	for end := time.Now().Add(time.Minute); n == 0 && time.Now().Before(end); n = clear(temp) {
		runtime.Gosched()
	}
	if n != 1 || exists(failed.Path) {
		t.Errorf("%d removed: a failed run's directory stays for ever", n)
	}
	runtime.KeepAlive(own) // the lock ends when its file is garbage-collected
}

// A directory of Only has one owner at a time, in this process, too. A new owner finds it empty, and End removes it.
func TestOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "only")
	if Held(path) {
		t.Error("a directory that does not exist is held")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(path, "left")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Only(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files of an earlier owner: %v", err)
	}
	if _, err := Only(path); !errors.Is(err, ErrHeld) && runtime.GOOS != "windows" || !Held(path) {
		t.Errorf("a second owner: %v, held %v", err, Held(path))
	}
	if err := d.End(nil); err != nil || Held(path) {
		t.Errorf("after the end: %v, held %v", err, Held(path))
	}
}
