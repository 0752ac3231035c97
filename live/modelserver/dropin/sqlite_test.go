package dropin

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The database was written by SQLite itself, with pages of 512 bytes: its table
// has inner pages, and rows that go over several.
func TestSQLite(t *testing.T) {
	answers, err := ReadDataset("testdata/answers.sqlite3", "")
	if err != nil {
		t.Fatal(err)
	}
	if len(answers) != 40 {
		t.Fatalf("%d answers", len(answers))
	}
	for i, got := range answers {
		winds := 2
		if i%5 == 0 {
			winds = 7 * i
		}
		if want := fmt.Sprintf("answer %d%s", i, strings.Repeat(" wind", winds)); got != want {
			t.Errorf("row %d: got %q, want %q", i, got, want)
		}
	}
	for table, want := range map[string]string{"none": `no table "none" in the database, there are ["other" "llmd"]`,
		"other": "has no column gen_tokens"} {
		if _, err := ReadDataset("testdata/answers.sqlite3", table); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", table, err)
		}
	}
	raw, err := os.ReadFile("testdata/answers.sqlite3")
	if err != nil {
		t.Fatal(err)
	}
	// However it is cut or spoilt: an error or answers, and never a panic.
	for n := range len(raw) {
		if n%37 == 0 {
			_, _ = parseDataset(raw[:n], "")
		}
		if n%11 != 0 {
			continue
		}
		spoilt := append([]byte(nil), raw...)
		spoilt[n] ^= 0xff
		_, _ = parseDataset(spoilt, "")
	}
}
