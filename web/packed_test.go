package web

import (
	"os"
	"testing"

	"github.com/windtunnel/windtunnel/internal/packed"
)

// The archive has the page and its libraries.
func TestPacked(t *testing.T) {
	patterns := []string{"page/*", "third_party/*.json", "third_party/*/*"}
	if *update {
		archive, err := packed.Pack(os.DirFS("."), patterns...)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("site.zip", archive, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := packed.Check(archive, os.DirFS("."), patterns...); err != nil {
		t.Errorf("%v; pack again with: go test ./web -run TestPacked -update", err)
	}
}
