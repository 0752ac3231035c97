//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file is read up to its limit, byte for byte, and no further.
func TestLimit(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 4095, 70_000} {
		text := strings.Repeat("x", size)
		path := write(t, text)
		if got, err := Read(path, int64(size)); err != nil || string(got) != text {
			t.Errorf("%d bytes of %d: %v", len(got), size, err)
		}
		if got, err := ReadFrom("input", iotest.OneByteReader(strings.NewReader(text)), int64(size)); err != nil ||
			string(got) != text {
			t.Errorf("%d bytes of %d piece by piece: %v", len(got), size, err)
		}
		if size == 0 {
			continue
		}
		want := "has more than"
		if _, err := Read(path, int64(size-1)); err == nil || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("one byte too many: %v", err)
		}
		if _, err := ReadFrom("input", strings.NewReader(text), int64(size-1)); err == nil ||
			!strings.Contains(err.Error(), "input "+want) {
			t.Errorf("one byte too many: %v", err)
		}
	}
}

// Directories and endless files are refused, as files that are too large are.
func TestWhatIsNoFile(t *testing.T) {
	for path, want := range map[string]string{
		"/dev/zero":  "has more than 1000 bytes",
		t.TempDir():  "is a directory",
		"/dev/null/": "not a directory",
	} {
		if _, err := Read(path, 1000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", path, err, want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "missing"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if got, err := Read("/dev/null", 0); err != nil || len(got) != 0 {
		t.Errorf("/dev/null: %q %v", got, err)
	}
}

// A pipe is read to its end, also if its writer comes late. A pipe whose writer does not stop is cut at the limit.
func TestPipe(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<14) // more than a pipe's buffer
	for _, most := range []int64{int64(len(text)), int64(len(text)) - 1} {
		path := pipe(t)
		wrote := make(chan error, 1)
		go func() {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.Write(text)
				err = errors.Join(err, f.Close())
			}
			wrote <- err
		}()
		got, err := Read(path, most)
		if whole := most == int64(len(text)); whole && (err != nil || !bytes.Equal(got, text)) || !whole && err == nil {
			t.Errorf("at most %d: %d bytes, %v", most, len(got), err)
		}
		if err := <-wrote; err != nil && !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	}
}

// A descriptor's path is readable, as /dev/stdin and a shell's <(command) are.
func TestDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got, err := Read(filepath.Join("/dev/fd", fmt.Sprint(r.Fd())), 100); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
}

// Read gives up on a pipe without a writer.
func TestPipeWithoutAWriter(t *testing.T) {
	patience = time.Millisecond
	defer func() { patience = 10 * time.Second }()
	if _, err := Read(pipe(t), 100); err == nil || !strings.Contains(err.Error(), "nobody has opened it for writing") {
		t.Error(err)
	}
}
