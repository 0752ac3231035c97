package archtest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ratchet compares the number of violations in each directory with the allowed numbers in a file of testdata. A
// directory with more fails, and the error names the first 20. With -update, the file gets the current numbers,
// unless their sum has grown.
func ratchet(t *testing.T, name string, places map[string][]string, instead string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	allowed, before := map[string]int{}, 0
	for line := range strings.Lines(string(data)) {
		var n int
		var dir string
		if _, err := fmt.Sscan(line, &n, &dir); err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		allowed[dir] = n
		before += n
	}
	now := 0
	for _, dir := range slices.Sorted(maps.Keys(places)) {
		list := places[dir]
		now += len(list)
		if n := allowed[dir]; len(list) > n && !*update {
			t.Errorf("%s: %d places, expected at most %d (%s); %s:\n\t%s", dir, len(list), n, file, instead,
				strings.Join(list[:min(len(list), 20)], "\n\t"))
		}
	}
	if !*update {
		return
	}
	if data != nil && now > before {
		t.Fatalf("%s: %d places, more than the %d before: the numbers may only fall", file, now, before)
	}
	var out strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(places)) {
		fmt.Fprintf(&out, "%d %s\n", len(places[dir]), dir)
	}
	if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
