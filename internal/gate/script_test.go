package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/fakebin"
)

const repository = "../.."

// make bench lists missed gates at its end and fails if a benchmark does. Errors of go itself, such as a package that
// does not compile, are failures too.
func TestScriptNamesMissedGates(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("make bench needs a shell")
	}
	for _, c := range []struct {
		name, says string
		code       int
		missed     string
	}{
		{"all kept", "BenchmarkA 1 2 ns/op\nok x", 0, ""},
		{"one missed", "    bench_test.go:7: gate missed: BenchmarkA: cpu-ratio is 1.6; expected at most " +
			"1.5\n--- FAIL: BenchmarkA", 1,
			"\ngates missed:\nbench_test.go:7: gate missed: BenchmarkA: cpu-ratio is 1.6; expected at most 1.5\n"},
		{"does not compile", "x.go:1:1: expected 'package'", 2, ""},
	} {
		fake := filepath.Join(t.TempDir(), "go")
		text := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *\" -bench . ./some/package \"*) ;; *) echo \"asked for "+
			"$*\"; exit 9 ;; esac\ncat <<'END'\n%s\nEND\nexit %d\n", c.says, c.code)
		fakebin.Write(t, fake, text)
		out, err := exec.Command(filepath.Join(repository, "scripts", "bench"), fake, "./some/package").Output()
		code := 0
		if e := (*exec.ExitError)(nil); errors.As(err, &e) {
			code = e.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if want := c.says + "\n" + c.missed; code != c.code || string(out) != want {
			t.Errorf("%s: exit code %d, want %d\n%s\nwant\n%s", c.name, code, c.code, out, want)
		}
	}
}

// Every benchmark with a gate, and the one of KV events, is in the list of make bench.
func TestEveryGateIsPlayed(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^BENCHED := (.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no list of what is benched")
	}
	gated := map[string]bool{"./live/kvevents": true}
	err = filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if regexp.MustCompile(`\bgate\.At(Most|Least)\(`).Match(text) {
			dir, _ := filepath.Rel(repository, filepath.Dir(path))
			gated["./"+filepath.ToSlash(dir)] = true
		}
		return err
	})
	if err != nil || len(gated) < 8 {
		t.Fatal(err, gated)
	}
	for dir := range gated {
		played := false
		for _, pattern := range strings.Fields(string(list[1])) {
			above, all := strings.CutSuffix(pattern, "/...")
			played = played || dir == pattern || all && (dir == above || strings.HasPrefix(dir, above+"/"))
		}
		if !played {
			t.Errorf("make bench does not play %s", dir)
		}
	}
}
