// Package parts has the commands that run one part alone, beside other parts: model servers, the endpoint picker,
// the routing sidecar, the KV-cache manager, the latency predictor. They take the flags of the real parts.
package parts

import (
	"fmt"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// Args rewrites a command line from forms that the flag libraries of the real
// endpoint picker and sidecar read and this program's does not. A flag's old name
// is printed on o.Stderr.
func Args(args []string, o *console.Console) []string {
	return sidecarArgs(eppArgs(args), o)
}

// oldFlag prints a hint about a flag that had another name.
func oldFlag(o *console.Console, old, now string) {
	fmt.Fprintf(o.Stderr, "windtunnel: note: %s is %s now; the old name will go\n", old, now)
}

// Own has windtunnel's own flags of the parts that otherwise take the real part's flags.
var Own = map[string][]string{
	"epp": {"objects", "listen", "otlp", "hold", "hold-limit", "pod-headers", "explain-headers", "errors", "seed",
		"record", "record-max-bytes", "record-files", "record-bodies", "decisions", "body-idle-timeout", "body-timeout",
		"metrics-token-file", "metrics-client-ca-file"},
	"sidecar": {"objects", "listen", "otlp", "endpoints-file", "advertise", "decoder-host", "kv-block-bytes",
		"body-idle-timeout", "body-timeout"},
}
