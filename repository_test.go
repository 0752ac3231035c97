package windtunnel

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/packed"
)

var update = flag.Bool("update", false, "pack the files again")

// The archive has the files of the repository.
func TestPacked(t *testing.T) {
	patterns := []string{"docs/claims.md", "examples/*.yaml", "experiments/*.yaml"}
	if *update {
		archive, err := packed.Pack(os.DirFS("."), patterns...)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("repository.zip", archive, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := packed.Check(archive, os.DirFS("."), patterns...); err != nil {
		t.Errorf("%v; pack again with: go test . -run TestPacked -update", err)
	}
}

// scripts/traces keeps a file with the id of its list, does not fetch a second time, and refuses other bytes.
func TestTraces(t *testing.T) {
	for _, tool := range []string{"sh", "git", "curl"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") == "true" {
			t.Fatal(err)
		} else if err != nil {
			t.Skip(err)
		}
	}
	dir, cache := t.TempDir(), t.TempDir()
	source, list := filepath.Join(dir, "a.csv"), filepath.Join(dir, "list")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want string, good bool) {
		c := exec.CommandContext(t.Context(), "sh", "scripts/traces", list)
		c.Env = append(os.Environ(), "WINDTUNNEL_CACHE="+cache)
		out, err := c.CombinedOutput()
		if (err == nil) != good || !strings.Contains(string(out), want) {
			t.Errorf("found %v and %s; expected %s", err, out, want)
		}
	}
	write(source, "hello\n")
	const line = "a.csv ce013625030ba8dba906f756967f9e9ca394464a CC-BY-4.0 file://"
	write(list, "# a comment\n\n"+line+source+"\n")
	run("a.csv (CC-BY-4.0), fetched from file://", true)
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	run("ok    "+filepath.Join(cache, "traces", "a.csv")+" (CC-BY-4.0)\n", true)
	write(source, "other")
	write(list, "b.csv"+line[len("a.csv"):]+source+"\n")
	run("b.csv: found the git id 27fa34919ae70aa0d7eaccdfbf393cfc440e7d25; expected ce0136", false)
	write(list, "c.csv"+line[len("a.csv"):]+source+".none\n")
	run("c.csv: file://", false)
	left, err := os.ReadDir(filepath.Join(cache, "traces"))
	if err != nil || len(left) != 1 || left[0].Name() != "a.csv" {
		t.Errorf("the cache has %v, %v; expected a.csv alone", left, err)
	}
}
