// Package packed embeds files of the repository compressed, as one archive beside them. A test in the package that
// embeds the archive holds it against the files, and with -update packs them again:
//
//	go test . ./web -run TestPacked -update
package packed

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
)

// solid is the only file of an archive: a second archive, whose files are not compressed. Files that resemble each
// other thus take about half of the bytes that they take each compressed by itself.
const solid = "files.zip"

// lazy are files that are unpacked when the first of them is opened.
type lazy struct {
	once    sync.Once
	archive []byte
	files   *zip.Reader
}

// Open implements fs.FS.
func (l *lazy) Open(name string) (fs.File, error) {
	l.once.Do(func() {
		inner, err := fs.ReadFile(reader(l.archive), solid)
		if err != nil {
			panic(err)
		}
		l.files = reader(inner)
	})
	return l.files.Open(name)
}

// reader reads an archive. It panics if the bytes are none, which the first test finds.
func reader(archive []byte) *zip.Reader {
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		panic(err)
	}
	return files
}

// Open returns the files of an archive.
func Open(archive []byte) fs.FS { return &lazy{archive: archive} }

// Pack returns an archive of the files that match any of the patterns of fs.Glob.
func Pack(from fs.FS, patterns ...string) ([]byte, error) {
	names, err := named(from, patterns)
	if err != nil {
		return nil, err
	}
	inner, err := zipped(zip.Store, func(name string) ([]byte, error) { return fs.ReadFile(from, name) }, names...)
	if err != nil {
		return nil, err
	}
	return zipped(zip.Deflate, func(string) ([]byte, error) { return inner, nil }, solid)
}

// zipped returns a zip archive of files.
func zipped(method uint16, read func(name string) ([]byte, error), names ...string) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	archive.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(to, flate.BestCompression)
	})
	for _, name := range names {
		text, err := read(name)
		if err != nil {
			return nil, err
		}
		to, err := archive.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(text); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

// Check returns an error that names a file which the archive has otherwise than from does, or does not have.
func Check(archive []byte, from fs.FS, patterns ...string) error {
	names, err := named(from, patterns)
	if err != nil {
		return err
	}
	packed := Open(archive)
	has := 0
	err = fs.WalkDir(packed, ".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			has++
		}
		return err
	})
	for _, name := range names {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		if is, err := fs.ReadFile(packed, name); err != nil || !bytes.Equal(is, text) {
			return fmt.Errorf("%s is not the packed file", name)
		}
	}
	if err == nil && has != len(names) {
		err = fmt.Errorf("found %d packed files; expected %d", has, len(names))
	}
	return err
}

// named returns the files that match any of the patterns, sorted.
func named(from fs.FS, patterns []string) (names []string, err error) {
	for _, p := range patterns {
		found, err := fs.Glob(from, p)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
