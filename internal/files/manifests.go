package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The limits of a directory of manifests.
const (
	maxManifests     = 10_000
	maxManifestBytes = 256 << 20
)

// IsManifest reports whether a file name is that of a YAML or JSON file that is not hidden.
func IsManifest(name string) bool {
	name = filepath.Base(name)
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml" || ext == ".json")
}

// Manifests calls add for every manifest of a directory, in the order of their names. It returns all errors: files
// above limit bytes, and add's own. What names the kind of manifests in errors.
func Manifests(what, dir string, limit int64, add func(path string, data []byte) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var errs []error
	count, size := 0, int64(0)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !IsManifest(path) {
			continue
		}
		info, err := os.Stat(path) // a ConfigMap's files are links
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted since the directory was read
		}
		if err != nil || !info.Mode().IsRegular() {
			errs = append(errs, err)
			continue
		}
		count, size = count+1, size+info.Size()
		if count > maxManifests || size > maxManifestBytes {
			return fmt.Errorf("%s: %s has more than %d files or %d bytes", what, dir, maxManifests, maxManifestBytes)
		}
		data, err := Read(path, limit)
		if err == nil {
			err = add(path, data)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
