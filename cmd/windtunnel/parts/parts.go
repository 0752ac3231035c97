// Package parts has the commands that run one part alone, beside other parts: model servers, the endpoint picker,
// the routing sidecar, the KV-cache manager, the latency predictor. They take the flags of the real parts.
package parts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// Args rewrites a command line from forms that the flag libraries of the real endpoint picker and sidecar read and this
// program's does not. It prints the new name of a renamed flag on o.Stderr. Flags may stand before the command.
func Args(args []string, o *console.Console) []string {
	command := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if command < 0 {
		return args
	}
	rewrite, ok := map[string]func(arg string, o *console.Console) string{"epp": eppArg,
		"sidecar": sidecarArg}[args[command]]
	if !ok {
		return args
	}
	out := slices.Clone(args)
	for i := command + 1; i < len(out); i++ {
		name, value, assigned := strings.Cut(out[i], "=")
		if value, ok := letters[value]; ok && assigned && strings.HasPrefix(name, "-") {
			out[i] = name + "=" + value
		}
		out[i] = rewrite(out[i], o)
	}
	return out
}

// letters are further forms of true and false, which Go's flag package reads.
var letters = map[string]string{"t": "true", "T": "true", "TRUE": "true", "True": "true", "f": "false", "F": "false",
	"FALSE": "false", "False": "false"}

// oldFlag prints a hint about a flag that had another name.
func oldFlag(o *console.Console, old, now string) {
	fmt.Fprintf(o.Stderr, "windtunnel: note: %s is %s now; the old name will go\n", old, now)
}

// within returns an error for a flag's number outside of a range.
func within(flag string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%s %d: expected %d to %d", flag, n, least, most)
	}
	return nil
}

// maxPort is the highest port.
const maxPort = 65535

// Own has windtunnel's own flags of the parts that otherwise take the real part's flags.
var Own = map[string][]string{
	"epp": {"objects", "listen", "otlp", "hold", "hold-limit", "pod-headers", "explain-headers", "errors", "seed",
		"record", "record-max-bytes", "record-files", "record-bodies", "decisions", "body-idle-timeout", "body-timeout",
		"metrics-token-file", "metrics-client-ca-file"},
	"sidecar": {"objects", "listen", "otlp", "endpoints-file", "advertise", "decoder-host", "kv-block-bytes",
		"body-idle-timeout", "body-timeout"},
}
