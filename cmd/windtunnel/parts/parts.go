// Package parts is the commands that run one part alone, beside anybody's other
// parts: model servers, the endpoint picker, the routing sidecar, the KV-cache
// manager, the latency predictor. Their flags are those of the real ones.
package parts

import "github.com/windtunnel/windtunnel/cmd/windtunnel/console"

// Args rewrites a command line from forms that the flag libraries of the real
// endpoint picker and sidecar read and this program's does not. A flag's old name
// is told on o.Stderr.
func Args(args []string, o *console.Console) []string {
	return sidecarArgs(eppArgs(args), o)
}
