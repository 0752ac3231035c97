package packed

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
)

// Digest returns a hexadecimal number that differs where the names or bytes of a tree's files differ.
func Digest(from fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, name)
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}
