package program

import (
	"testing"

	"github.com/windtunnel/windtunnel/live/modelserver"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	one := []modelserver.ServerOptions{{Listen: "10.0.0.1:65530", Models: []string{"m"}}}
	if got, err := spread(one, 3); err != nil || got[2].Listen != "10.0.0.1:65532" {
		t.Fatalf("%v %v", got, err)
	}
	if _, err := spread(one, 7); err == nil {
		t.Fatal("ports beyond 65535")
	}
	for bind, want := range map[string]string{"tcp://*:5557": "tcp://127.0.0.2:5557", "tcp://0.0.0.0:1": "tcp://127.0.0.2:1", "tcp://10.1.1.1:5": "tcp://10.1.1.1:5", "": ""} {
		if got := own(bind, "127.0.0.2"); got != want {
			t.Errorf("%q: got %q, want %q", bind, got, want)
		}
	}
}

// The ranks of one server publish at ports of their own.
func TestHigher(t *testing.T) {
	for bind, want := range map[string]string{"tcp://127.0.0.1:5557": "tcp://127.0.0.1:5559", "tcp://127.0.0.1:0": "tcp://127.0.0.1:0", "": "", "ipc:///x": "ipc:///x"} {
		if got := higher(bind, 2); got != want {
			t.Errorf("%q: got %q, want %q", bind, got, want)
		}
	}
}
