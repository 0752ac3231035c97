package chaos

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/nightly"
)

// Within 200 seeds, chaos finds bugs that the compiler gets in place of what the files have: a KV block that an aborted
// request leaks, effects that a continued process loses, and an outcome that a late answer doubles.
func TestPlanted(t *testing.T) {
	if !nightly.On() {
		t.Skip("make test-nightly compiles windtunnel with each bug")
	}
	for bug, c := range map[string]struct{ file, from, to, want string }{
		"a leaked block": {"core/modelserver/engine/settle.go",
			"	e.pool.drop(&r.holding)\n	if r.remote",
			"	r.holding.blocks -= min(1, r.holding.blocks-r.holding.indexed)\n" +
				"	e.pool.drop(&r.holding)\n	if r.remote",
			`has 0 requests and \d+ KV blocks`},
		"lost effects": {"virtual/slot.go",
			"		s.input(m)\n	}\n	s.advance()",
			"		s.input(m)\n	}\n	s.m.Advance(s.w.now, s.fx)\n	s.fx.Reset()",
			"this is a fault of windtunnel"},
		"a doubled outcome": {"virtual/client.go",
			"	if r.over {\n		return\n	}\n", "",
			`\d+ requests were sent and \d+ ended`},
	} {
		t.Run(bug, func(t *testing.T) {
			dir := t.TempDir()
			path, err := filepath.Abs("../../" + c.file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), c.from) {
				t.Fatalf("%s: found no %q: %v", path, c.from, err)
			}
			planted, overlay := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: planted}})
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{planted: strings.ReplaceAll(string(text), c.from, c.to),
				overlay: string(replace)} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("go", "run", "-overlay", overlay, "../../cmd/windtunnel", "chaos",
				"../../examples/pd.yaml", "--seeds", "200").CombinedOutput()
			if err == nil || !regexp.MustCompile("(?m)^seed .*"+c.want).Match(out) {
				t.Errorf("not found (%v):\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
