// Package parts has the commands that run one part alone, beside other parts: model servers, the endpoint picker,
// the routing sidecar, the KV-cache manager, the latency predictor. They take the flags of the real parts.
package parts

import (
	"fmt"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// Args rewrites a command line from forms that the flag libraries of the real
// endpoint picker and sidecar read and this program's does not. A flag's old name
// is told on o.Stderr.
func Args(args []string, o *console.Console) []string {
	return sidecarArgs(eppArgs(args), o)
}

// oldFlag prints a hint about a flag that had another name.
func oldFlag(o *console.Console, old, now string) {
	fmt.Fprintf(o.Stderr, "windtunnel: note: %s is %s now; the old name will go\n", old, now)
}
