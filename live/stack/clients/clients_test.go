package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// missing ends a test that cannot run here: a failure in CI, a skip elsewhere.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// run starts a program with a limit on its time and returns what it printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) (stdout, stderr []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.Bytes(), errs.Bytes(), err
}

// installed is a directory of the user's cache that holds what a list names.
// It is filled once, elsewhere, and then renamed, so it is whole or absent.
func installed(t *testing.T, kind, version, list string, fill func(dir string) (stderr []byte, err error)) string {
	t.Helper()
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	cache := os.Getenv("WINDTUNNEL_CACHE")
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			cache = t.TempDir()
		}
		cache = filepath.Join(cache, "windtunnel")
	}
	sum := sha256.Sum256(append([]byte(version+"\n"), text...))
	dir := filepath.Join(cache, "clients", kind+"-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), kind+"-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	if stderr, err := fill(fresh); err != nil {
		missing(t, "the %s client in %s could not be installed (%v); is a package registry in reach?\n%s", kind,
			filepath.Base(list), err, stderr)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, other := os.Stat(dir); other != nil { // another process was faster: fine
			t.Fatal(err)
		}
	}
	return dir
}

// serve starts a model server and returns the base URL of its API.
func serve(t *testing.T, batching engine.Batching) string {
	t.Helper()
	prefill, token := dist.Fixed(machine.Millisecond), dist.Fixed(200*machine.Microsecond)
	f, err := modelserver.New(modelserver.Options{Seed: 1, Servers: []modelserver.ServerOptions{{Models: []string{"m"},
		APIOptions: modelserver.APIOptions{StoreResponses: true},
		Prefill:    &prefill, TokenTime: &token, Engine: engine.Config{Batching: batching,
			Timer: latency.Constant{TimeToFirstToken: machine.Millisecond,
				InterTokenLatency: 200 * machine.Microsecond}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f.Stop(ctx)
		if n := f.Servers()[0].InFlight(); n != 0 {
			t.Errorf("%d requests still in flight after the clients have left", n)
		}
	})
	return f.Servers()[0].URL() + "/v1"
}

// verdicts runs a script against every target and reports each of its lines, of
// which there have to be so many.
func verdicts(t *testing.T, least int, env []string, name string, args ...string) {
	t.Helper()
	for target, start := range targets() {
		t.Run(target, func(t *testing.T) {
			gateway := target
			if _, behind := stacks[target]; !behind {
				gateway = ""
			}
			env := append([]string{"BASE_URL=" + start(t).url, "GATEWAY=" + gateway, "MODEL=m", "NO_PROXY=127.0.0.1",
				"no_proxy=127.0.0.1"}, env...)
			out, stderr, err := run(t, ".", env, name, args...)
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, stderr)
			}
			checks := 0
			lines := bufio.NewScanner(bytes.NewReader(out))
			for lines.Scan() {
				what, rest, _ := strings.Cut(lines.Text(), " ")
				check, why, _ := strings.Cut(rest, ": ")
				checks++
				t.Run(check, func(t *testing.T) {
					if what != "ok" {
						t.Error(why)
					}
				})
			}
			if checks < least {
				t.Errorf("only %d checks ran:\n%s%s", checks, out, stderr)
			}
		})
	}
}

// withPython runs scripts with the packages of a list.
func withPython(t *testing.T, packages string, scripts map[string]int) {
	t.Helper()
	python, site := packagesOf(t, packages, 10)
	for script, checks := range scripts {
		t.Run(script, func(t *testing.T) {
			verdicts(t, checks, []string{"PYTHONPATH=" + site, "PYTHONDONTWRITEBYTECODE=1", "LANGSMITH_TRACING=false"},
				python, filepath.Join("testdata", script))
		})
	}
}

// packagesOf are the packages of a list, and a Python 3 of at least this minor
// version that has them.
func packagesOf(t *testing.T, packages string, minor int) (python, site string) {
	t.Helper()
	var version []byte
	try := func(name string) error {
		out, stderr, err := run(t, ".", nil, name, "-c",
			fmt.Sprintf("import sys, sysconfig, pip; assert sys.version_info >= (3, %d); print(sys.version_info[:2], "+
				"sysconfig.get_platform())", minor))
		if err != nil {
			return fmt.Errorf("%w\n%s", err, stderr)
		}
		python, version = name, out
		return nil
	}
	for _, name := range []string{"python3", "python3.14", "python3.13", "python3.12"} {
		if try(name) == nil {
			break
		}
	}
	if python == "" {
		if err := try(debianPython(t, minor)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := filepath.Abs(filepath.Join("testdata", packages))
	if err != nil {
		t.Fatal(err)
	}
	site = installed(t, "python", string(version), list, func(dir string) ([]byte, error) {
		_, stderr, err := run(t, dir, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--no-warn-script-location",
			"--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", dir, "-r", list)
		return stderr, err
	})
	return python, site
}

func TestPython(t *testing.T) {
	t.Parallel()
	withPython(t, "requirements.txt", map[string]int{"client.py": 15, "messages.py": 6})
}

// LangChain brings forty packages, which make test-clients fetches.
func TestLangChain(t *testing.T) {
	if !everything {
		t.Skip("make test-clients runs it: it fetches forty packages")
	}
	t.Parallel()
	withPython(t, "langchain.txt", map[string]int{"with_langchain.py": 6})
}

// LiteLLM brings sixty.
func TestLiteLLM(t *testing.T) {
	if !everything {
		t.Skip("make test-clients runs it: it fetches sixty packages")
	}
	t.Parallel()
	withPython(t, "litellm.txt", map[string]int{"with_litellm.py": 8})
}

func TestNode(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		missing(t, "no node on PATH: %v", err)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		missing(t, "no npm on PATH: %v", err)
	}
	version, stderr, err := run(t, ".", nil, node, "--version")
	if err != nil {
		missing(t, "node does not run: %v\n%s", err, stderr)
	}
	list := filepath.Join("testdata", "package.json")
	modules := installed(t, "node", string(version), list, func(dir string) ([]byte, error) {
		text, err := os.ReadFile(list)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, "package.json"), text, 0o644); err != nil {
			return nil, err
		}
		_, stderr, err := run(t, dir, nil, npm, "install", "--no-package-lock", "--ignore-scripts", "--no-audit",
			"--no-fund", "--loglevel", "error")
		return stderr, err
	})
	verdicts(t, 15, []string{"NODE_PATH=" + filepath.Join(modules, "node_modules")}, node,
		filepath.Join("testdata", "client.cjs"))
}
