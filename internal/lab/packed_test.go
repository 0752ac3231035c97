package lab

import (
	"flag"
	"os"
	"testing"

	"github.com/windtunnel/windtunnel/internal/packed"
)

var update = flag.Bool("update", false, "pack the labs again")

// The archive has the labs and the manifests as they are.
func TestPacked(t *testing.T) {
	patterns := []string{"labs/*", "base/*/*"}
	if *update {
		text, err := packed.Pack(os.DirFS("."), patterns...)
		if err == nil {
			err = os.WriteFile("labs.zip", text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := packed.Check(archive, os.DirFS("."), patterns...); err != nil {
		t.Error(err)
	}
}
