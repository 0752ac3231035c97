package program

import (
	"fmt"
	"slices"
	"strings"
)

// renamed is a flag that had another name. The old name is accepted until the release after the first.
type renamed struct {
	command, old, now string
	// applies reports whether a value has the old meaning; nil where every value has. A flag without a value has "".
	applies func(value string) bool
}

var renamedFlags = []renamed{
	{"calibrate", "-o", "--file", nil},
	{"capacity", "--slo", "--objective", nil},
	{"compare", "--set", "--variant", nil},
	{"config", "--epp", "--picker", func(value string) bool { return !strings.Contains(value, ":") }},
	{"config", "--epp-address", "--epp", nil},
	{"explain", "--recording", "--from", nil},
	{"pods", "--from", "--state", func(value string) bool { return !isAddress(value) }},
	{"predictor", "--model", "--load-model", nil},
	{"preview", "--state", "--from", isAddress},
	{"scenario import", "--from", "--format", nil},
	{"sweep", "--set", "--vary", nil},
	{"trace", "--format", "--output", nil},
	{"validate", "--hops", "--measured-hops", nil},
}

// renameFlags replaces old names of flags, with a hint on stderr. Flags may stand before the command.
func renameFlags(args []string, o *outside) []string {
	words := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "-") })
	line, out := strings.Join(words, " ")+" ", slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, value, assigned := strings.Cut(arg, "=")
		if !assigned && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		for _, r := range renamedFlags {
			if name == r.old && strings.HasPrefix(line, r.command+" ") && (r.applies == nil || r.applies(value)) {
				out[i] = r.now + strings.TrimPrefix(arg, r.old)
				fmt.Fprintf(o.Stderr, "windtunnel: note: %s of windtunnel %s is %s now; the old name will go\n", r.old,
					r.command, r.now)
			}
		}
	}
	return out
}
