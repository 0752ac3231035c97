package search

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/files"
)

// results is the file that a sweep continues.
type results struct {
	mu  sync.Mutex
	f   *os.File
	had map[string]*Point
}

// maxResults bounds the file, in bytes.
const maxResults = 1 << 30

// open reads the points in the results, and opens the file for appending, with the ending .ndjson in a directory. It
// drops an incomplete last line, whose point is played again. A share reads its own file only.
func (c *Sweep) open(inputs []string) (x *results, err error) {
	x = &results{had: map[string]*Point{}}
	path, own := c.Results, []string{c.Results}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path = c.file() + ".ndjson"; c.Share.Of == 0 {
			if own, err = filepath.Glob(filepath.Join(c.Results, "*.ndjson")); err != nil {
				return nil, exit.Errorf(exit.Usage, "--results: %w", err)
			}
		} else {
			own = []string{path}
		}
	}
	if path == "" {
		return x, nil
	}
	for _, in := range inputs {
		if files.Same(in, path) {
			return nil, exit.Errorf(exit.Usage, "--results %s: this is a file that the sweep reads; choose another",
				path)
		}
	}
	whole := int64(0) // of the file that is appended to
	for _, name := range own {
		n, err := x.read(name)
		if err != nil {
			return nil, err
		}
		if name == path {
			whole = n
		}
	}
	if c.Collect {
		return x, nil
	}
	if x.f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err == nil {
		if err = x.f.Truncate(whole); err == nil {
			_, err = x.f.Seek(0, io.SeekEnd)
		}
	}
	if err != nil {
		return nil, exit.Errorf(exit.Input, "--results: %w", err)
	}
	return x, nil
}

// read adds the points of a file, and returns the length of its complete lines.
func (x *results) read(path string) (int64, error) {
	bad := func(line int) error {
		return exit.Errorf(exit.Input, "--results %s:%d: this is not a point of a sweep; expected a file of "+
			"windtunnel sweep --results, or a new file", path, line)
	}
	data, err := files.Read(path, maxResults)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, exit.Errorf(exit.Input, "--results: %w", err)
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	n := 0
	for line := range bytes.Lines(data[:whole]) {
		n++
		var p Point
		if err := json.Unmarshal(line, &p); err != nil || p.Key == "" {
			return 0, bad(n)
		}
		x.had[p.Key] = &p
	}
	if whole == 0 && len(data) > 0 && data[0] != '{' {
		return 0, bad(1)
	}
	return int64(whole), nil
}

func (x *results) add(p *Point) error {
	if x.f == nil {
		return nil
	}
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	_, err = x.f.Write(append(line, '\n'))
	return err
}

func (x *results) close() error {
	if x.f == nil {
		return nil
	}
	return x.f.Close()
}
