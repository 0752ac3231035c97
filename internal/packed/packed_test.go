package packed

import (
	"crypto/sha512"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// What is packed is found again, and Check finds a file that changed, came or went.
func TestPack(t *testing.T) {
	files := fstest.MapFS{"a/one.txt": {Data: []byte("one")}, "a/two.txt": {Data: []byte("two")},
		"b/none.md": {Data: []byte("none")}}
	archive, err := Pack(files, "a/*.txt", "a/one.*")
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(Open(archive), "a/two.txt")
	if string(text) != "two" || err != nil {
		t.Fatalf("found %q, %v", text, err)
	}
	if err := Check(archive, files, "a/*"); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(fstest.MapFS){
		"a/two.txt is not":         func(f fstest.MapFS) { f["a/two.txt"] = &fstest.MapFile{Data: []byte("2")} },
		"a/three.txt is not":       func(f fstest.MapFS) { f["a/three.txt"] = &fstest.MapFile{} },
		"2 packed files; expected": func(f fstest.MapFS) { delete(f, "a/one.txt") },
	} {
		changed := fstest.MapFS{}
		for k, v := range files {
			changed[k] = v
		}
		change(changed)
		if err := Check(archive, changed, "a/*"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("found %v; expected %s", err, name)
		}
	}
}

// Files that resemble each other take little more than one of them.
func TestPackAlike(t *testing.T) {
	files, text := fstest.MapFS{}, ""
	for i := range 16 {
		text += fmt.Sprintf("%x", sha512.Sum512([]byte{byte(i)}))
	}
	for i := range 20 {
		files[fmt.Sprint(i)] = &fstest.MapFile{Data: []byte(text)}
	}
	if archive, err := Pack(files, "*"); err != nil || len(archive) > 2*len(text) {
		t.Errorf("found %d bytes for 20 times %d, %v", len(archive), len(text), err)
	}
}
