// Package files reads files that a user names, up to a limit, and replaces files atomically. A path may name an
// endless device or a pipe that nobody writes to, and a file may grow while it is read; the limits hold for all of
// them.
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

// maxStream bounds what is read from anything but a regular file (a pipe, a terminal, a device). Such a file has no
// length, so its content is collected in memory.
const maxStream = 64 << 20

// maxPEM bounds a file of certificates or keys, in bytes.
const maxPEM = 4 << 20

// patience is how long the writer of a pipe may take to open it.
var patience = 10 * time.Second

// Read returns the content of a file of at most so many bytes. Errors name the file.
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
		err = fmt.Errorf("%w; a regular file may have %d", err, most)
	}
	return data, err
}

// ReadFrom is Read for an open file. The name is used in errors.
func ReadFrom(name string, r io.Reader, most int64) ([]byte, error) { return read(name, r, 0, most) }

// largeError is the error of a file that is too large. Like all files that cannot be read, it is an fs.PathError.
type largeError struct {
	path string
	most int64
}

func (e *largeError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes, which is the limit", e.path, e.most)
}

func (e *largeError) Unwrap() error {
	return &fs.PathError{Op: "read", Path: e.path, Err: errors.New("too large")}
}

// read reads to the end. Size is the expected number of bytes.
func read(name string, r io.Reader, size, most int64) ([]byte, error) {
	out := make([]byte, 0, max(512, size+1)) // one more byte, to find the end
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

// Open opens a file for reading. For a named pipe it waits a limited time until a writer opens it.
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
	// Opening for reading and writing ends the wait of the open for reading.
	if w, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
		if o := <-got; o.err == nil {
			o.f.Close()
		}
		w.Close()
	}
	return nil, &fs.PathError{Op: "open", Path: path,
		Err: fmt.Errorf("it is a pipe, and nobody has opened it for writing within %v", patience)}
}

// KeyPair reads a certificate and its key, like tls.LoadX509KeyPair.
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

// Same reports whether two paths lead to the same regular file, directly or by links. Writing to one path would
// overwrite the other.
func Same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil || !x.Mode().IsRegular() {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// Replace replaces or creates a file that every user may read. Readers see either the old or the new content,
// complete.
func Replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The new file must be in the same directory, or the rename would be a copy. It has the same extension, because
	// some readers depend on that.
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
