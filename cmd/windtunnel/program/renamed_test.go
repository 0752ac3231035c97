package program

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// An old flag gets its new name and a hint, also after a flag before the command.
func TestRenamedFlags(t *testing.T) {
	for line, want := range map[string]string{
		"sweep mine.yaml --set a=1,2":          "sweep mine.yaml --vary a=1,2",
		"--help sweep mine.yaml --set a=1,2":   "--help sweep mine.yaml --vary a=1,2",
		"scenario import --from=guidellm x":    "scenario import --format=guidellm x",
		"-h scenario import --from guidellm x": "-h scenario import --format guidellm x",
		"trace x.ndjson --format chrome":       "trace x.ndjson --output chrome",
		"sim mine.yaml --set a=1":              "sim mine.yaml --set a=1",
		"sweep mine.yaml -- --set":             "sweep mine.yaml -- --set",
		"preview --state 127.0.0.1:9090":       "preview --from 127.0.0.1:9090",
		"preview --state state.yaml":           "preview --state state.yaml",
		"--help preview --state=state.yaml":    "--help preview --state=state.yaml",
	} {
		var stderr bytes.Buffer
		o := console.New()
		o.Stderr = &stderr
		got := strings.Join(renameFlags(strings.Fields(line), o), " ")
		if d := cmp.Diff(want, got); d != "" || strings.Contains(stderr.String(), "is --") != (got != line) {
			t.Errorf("%s: the result (+) differs (-):\n%s%s", line, d, &stderr)
		}
	}
}
