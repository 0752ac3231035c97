package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// InputFiles are the files of a log of inputs that never ends: one is written
// until it is full, and then becomes the first of those that are kept, whose
// oldest one goes. NAME is the newest, NAME.1 the one before it.
type InputFiles struct {
	name string
	most int64
	keep int

	w    *Writer
	f    *os.File
	good int64 // of the file, in bytes, as far as all was well
}

// CreateInputFiles begins with a new file of a name, compressed if that ends in
// .gz. A file is full with so many bytes, and so many are there at most.
func CreateInputFiles(name string, most int64, keep int) (*InputFiles, error) {
	x := &InputFiles{name: name, most: most, keep: max(1, keep)}
	if _, err := os.Stat(name); err == nil { // of the process before this one
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

// Full says that the file is as large as it may be.
func (x *InputFiles) Full() bool { return x.good >= x.most }

// Next begins another file. One that could not be written is cut where all was
// well; one that has nothing is not kept.
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

// rotate gives every file the name of the one before it.
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

// Close closes the file.
func (x *InputFiles) Close() error {
	if x.w == nil {
		return nil
	}
	w := x.w
	x.w = nil
	return w.Close()
}
