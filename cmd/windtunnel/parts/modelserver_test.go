package parts

import (
	"testing"

	"github.com/windtunnel/windtunnel/live/modelserver"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	one := []modelserver.ServerOptions{{Models: []string{"m"},
		ServingOptions: modelserver.ServingOptions{Listen: "10.0.0.1:65530"}}}
	if got, err := spread(one, 3); err != nil || got[2].Listen != "10.0.0.1:65532" {
		t.Fatalf("%v %v", got, err)
	}
	if _, err := spread(one, 7); err == nil {
		t.Fatal("ports beyond 65535")
	}
}
