package windtunnel

import (
	"flag"
	"os"
	"testing"

	"github.com/windtunnel/windtunnel/internal/packed"
)

var update = flag.Bool("update", false, "pack the files again")

// The archive has the files of the repository.
func TestPacked(t *testing.T) {
	patterns := []string{"docs/claims.md", "examples/*.yaml", "experiments/*.yaml"}
	if *update {
		archive, err := packed.Pack(os.DirFS("."), patterns...)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("repository.zip", archive, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := packed.Check(archive, os.DirFS("."), patterns...); err != nil {
		t.Errorf("%v; pack again with: go test . -run TestPacked -update", err)
	}
}
