// Package files reads the files that a user names, and replaces files whole: as much of them is read as was
// agreed, whatever they turn out to be. A path may be a device without an end,
// or a pipe that nobody writes to; a file may grow while it is read.
package files

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// maxStream is the most that is read of what is no regular file (a pipe, a
// terminal, a device): it does not say its length, so it is gathered in memory
// first.
const maxStream = 64 << 20

// maxPEM is the most that a file of certificates or keys may have.
const maxPEM = 4 << 20

// patience is how long the writer of a pipe may take to open it.
var patience = 10 * time.Second

// Read reads a whole file of at most so many bytes. Errors name the file.
func Read(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() {
		if info.Size() > most {
			return nil, &largeError{path, most}
		}
		return read(path, f, info.Size(), most)
	}
	data, err := read(path, f, 0, min(most, maxStream))
	if err != nil && most > maxStream {
		err = fmt.Errorf("%w; of a regular file %d are", err, most)
	}
	return data, err
}

// ReadFrom is Read for what is open already; name is for errors.
func ReadFrom(name string, r io.Reader, most int64) ([]byte, error) { return read(name, r, 0, most) }

// largeError is a file that cannot be read for its size. It counts as one that
// cannot be read for whatever reason (fs.PathError).
type largeError struct {
	path string
	most int64
}

func (e *largeError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes, the most that are read of it", e.path, e.most)
}

func (e *largeError) Unwrap() error {
	return &fs.PathError{Op: "read", Path: e.path, Err: errors.New("too large")}
}

// read reads to the end, with room for size bytes from the beginning.
func read(name string, r io.Reader, size, most int64) ([]byte, error) {
	out := make([]byte, 0, max(512, size+1)) // one more read finds the end
	for {
		n, err := r.Read(out[len(out):min(int64(cap(out)), most+1)])
		out = out[:len(out)+n]
		switch {
		case int64(len(out)) > most:
			return nil, &largeError{name, most}
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case len(out) == cap(out):
			out = append(out, 0)[:len(out)]
		}
	}
}

// Open opens a file for reading. For a named pipe it waits until a writer opens
// it for writing, but not for ever.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a directory; expected a file")}
	case err != nil || info.Mode()&fs.ModeNamedPipe == 0:
		return os.Open(path)
	}
	type opened struct {
		f   *os.File
		err error
	}
	got := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		got <- opened{f, err}
	}()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case o := <-got:
		return o.f, o.err
	case <-timeout.C:
	}
	// The open for reading returns once there is a writer.
	if w, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		if o := <-got; o.err == nil {
			o.f.Close()
		}
		w.Close()
	}
	return nil, &fs.PathError{Op: "open", Path: path,
		Err: fmt.Errorf("it is a pipe, and nobody has opened it for writing within %v", patience)}
}

// KeyPair reads a certificate and its key, as tls.LoadX509KeyPair does.
func KeyPair(cert, key string) (tls.Certificate, error) {
	certPEM, err := Read(cert, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyPEM, err := Read(key, maxPEM)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

// ReadPEM reads a file of certificates.
func ReadPEM(path string) ([]byte, error) { return Read(path, maxPEM) }

// Same says whether two paths lead to one regular file, by links or by another
// way. What is written to the one overwrites the other.
func Same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil || !x.Mode().IsRegular() {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// Replace writes a file, which every user may read, in place of one that may be there: readers see the old or the new
// one, whole.
func Replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The new file comes from beside the old one, or the move would be a copy. Its name ends alike: some readers go by
	// that.
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*"+filepath.Ext(path))
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one to report
	}
	return err
}
