package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// InputFiles are the files of an endless log of inputs. NAME is written until it is full, and then becomes NAME.1, the
// older files move on by one, and the oldest is removed.
type InputFiles struct {
	name string
	most int64
	keep int

	w    *Writer
	f    *os.File
	good int64 // bytes of the file that are written without an error
}

// CreateInputFiles creates a new file with this name, compressed if the name ends in .gz. A file is full with so many
// bytes, and at most keep files exist.
func CreateInputFiles(name string, most int64, keep int) (*InputFiles, error) {
	x := &InputFiles{name: name, most: most, keep: max(1, keep)}
	if _, err := os.Stat(name); err == nil { // from an earlier process
		if err := x.rotate(); err != nil {
			return nil, err
		}
	}
	return x, x.create()
}

func (x *InputFiles) create() (err error) {
	x.good = 0
	x.w, x.f, err = create(x.name)
	return err
}

// Write writes whole lines.
func (x *InputFiles) Write(lines []byte) (int, error) {
	if x.w == nil {
		return 0, fs.ErrClosed
	}
	_, _ = x.w.Write(lines) // the writer keeps the failure
	if err := x.w.Flush(); err != nil {
		return 0, err
	}
	info, err := x.f.Stat()
	if err != nil {
		return 0, err
	}
	x.good = info.Size()
	return len(lines), nil
}

// Full reports whether the file has reached its limit.
func (x *InputFiles) Full() bool { return x.good >= x.most }

// Next begins another file. It truncates a file after the last whole line before an error, and does not keep an empty
// one.
func (x *InputFiles) Next() error {
	if err := x.Close(); err != nil && x.f != nil {
		if os.Truncate(x.name, x.good) != nil { // a device, perhaps
			x.good = 0
		}
	}
	if x.good > 0 {
		if err := x.rotate(); err != nil {
			return err
		}
	}
	return x.create()
}

// rotate renames every file to the next number.
func (x *InputFiles) rotate() error {
	name := func(n int) string {
		if n == 0 {
			return x.name
		}
		return x.name + "." + strconv.Itoa(n)
	}
	if x.keep == 1 {
		return os.Remove(x.name)
	}
	for n := x.keep - 1; n > 0; n-- {
		if err := os.Rename(name(n-1), name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("make room for another file: %w", err)
		}
	}
	return nil
}

// Close flushes and closes the file. It may be called twice.
func (x *InputFiles) Close() error {
	if x.w == nil {
		return nil
	}
	w := x.w
	x.w = nil
	return w.Close()
}
