package files

import (
	"io"
	"os"
)

// Lazy is a file that is opened at its first read and closed at its end, because there may be more files than a
// process may have open.
type Lazy struct {
	Path string
	f    *os.File
	over bool
}

// Read opens the file if necessary. Its errors are those of Open and of reading.
func (l *Lazy) Read(b []byte) (n int, err error) {
	if l.over {
		return 0, io.EOF
	}
	if l.f == nil {
		if l.f, err = Open(l.Path); err != nil {
			return 0, err
		}
	}
	if n, err = l.f.Read(b); err != nil {
		l.over = true
		l.Close()
	}
	return n, err
}

// Close closes the file before its end.
func (l *Lazy) Close() {
	if l.f != nil {
		_ = l.f.Close() // it was only read
		l.f = nil
	}
}
