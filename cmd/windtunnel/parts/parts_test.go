package parts

import (
	"io"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// The forms of the real parts' flags are read after flags before the command, too, and only for their commands.
func TestArgs(t *testing.T) {
	o := console.New()
	o.Stderr = io.Discard
	for line, want := range map[string]string{
		"epp -v=4 --secure-serving=f":           "epp -v4 --secure-serving=false",
		"--help epp -v=4 --secure-serving=TRUE": "--help epp -v4 --secure-serving=true",
		"--help sidecar -vllm-port=8001 -secure-proxy=F": "--help sidecar --model-server-port=8001 " +
			"--secure-proxy=false",
		"sidecar --connector nixlv2 -v 4": "sidecar --kv-connector nixlv2 -v 4",
		"kv-manager --replay-port=t":      "kv-manager --replay-port=t",
		"--help":                          "--help",
	} {
		if got := strings.Join(Args(strings.Fields(line), o), " "); got != want {
			t.Errorf("%s: found %s, expected %s", line, got, want)
		}
	}
}
