package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// archives are where Debian keeps its packages: as long as they are the newest, and
// as they were at one time.
var archives = []string{"https://deb.debian.org/debian/",
	"https://snapshot.debian.org/archive/debian/20261122T000000Z/"}

// starter runs Python with the C library that it was built for.
const starter = `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
lib=$here/../lib/x86_64-linux-gnu
exec "$lib/ld-linux-x86-64.so.2" --argv0 "$here/python3" --library-path "$lib" "$here/python3.13" "$@"
`

// debianPython is Debian's Python 3.13 with its libraries and pip, unpacked into the
// user's cache, for machines whose own is older than a client needs.
func debianPython(t *testing.T, minor int) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		missing(t, "no Python with pip, 3.%d or newer, on PATH", minor)
	}
	list, err := filepath.Abs(filepath.Join("testdata", "python.txt"))
	if err != nil {
		t.Fatal(err)
	}
	dir := installed(t, "debian", starter, list, func(dir string) ([]byte, error) {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			sum, name, _ := strings.Cut(lines.Text(), " ")
			deb, err := download(t.Context(), name, sum)
			if err != nil {
				return nil, err
			}
			file := filepath.Join(dir, path.Base(name))
			if err := os.WriteFile(file, deb, 0o600); err != nil {
				return nil, err
			}
			if _, stderr, err := run(t, dir, nil, "dpkg-deb", "-x", file, "."); err != nil {
				return stderr, err
			}
			if err := os.Remove(file); err != nil {
				return nil, err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "usr", "bin", "python3"), []byte(starter), 0o755); err != nil {
			return nil, err
		}
		_, stderr, err := run(t, dir, nil, "sh", "-c",
			"usr/bin/python3 -m zipfile -e usr/share/python-wheels/pip-*.whl usr/lib/python3/dist-packages")
		return stderr, err
	})
	return filepath.Join(dir, "usr", "bin", "python3")
}

// download is a package of Debian's that has this SHA-256.
func download(ctx context.Context, name, sum string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var failures []error
	for _, archive := range archives {
		deb, err := fetch(ctx, archive+name)
		if err == nil {
			if got := sha256.Sum256(deb); hex.EncodeToString(got[:]) == sum {
				return deb, nil
			}
			err = fmt.Errorf("%s%s is not the pinned one, whose SHA-256 is %s", archive, name, sum)
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 64<<20))
}
