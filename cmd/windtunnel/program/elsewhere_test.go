package program

import (
	"bytes"
	"path/filepath"
	"testing"
)

// The endpoints' file has a place of its own that outlives a run.
func TestEndpointsFileStays(t *testing.T) {
	o := testOutside(&bytes.Buffer{})
	o.Env = func(name string) (string, bool) { return filepath.FromSlash("/cache"), name == "WINDTUNNEL_CACHE" }
	x, err := (&runCmd{EPP: "127.0.0.1:9002"}).elsewhere(o)
	if want := filepath.FromSlash("/cache/endpoints.yaml"); err != nil || x.EndpointsFile != want {
		t.Fatalf("%q %v, expected %s", x.EndpointsFile, err, want)
	}
}
