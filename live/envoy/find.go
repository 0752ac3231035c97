package envoy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/windtunnel/windtunnel/internal/cachedir"
)

// Source names where a binary was found.
type Source string

// The places that Find searches, in order.
const (
	FromFlag    Source = "--envoy-path"
	FromEnv     Source = "ENVOY_PATH"
	FromPATH    Source = "PATH"
	FromCache   Source = "cache"
	FromInstall Source = "installed now"
)

// Binary is an Envoy that can be started.
type Binary struct {
	Path    string
	Version Version
	Source  Source
}

// FindOptions select where to search. The zero value means this machine's usual places.
type FindOptions struct {
	// Path is the user's --envoy-path. Find uses it or returns an error; it tries nothing else.
	Path string
	// Getenv replaces os.Getenv, for tests and doctor. Find reads ENVOY_PATH, PATH and WINDTUNNEL_CACHE.
	Getenv func(string) string
	// NoInstall prevents downloads.
	NoInstall bool
	// Log logs an install, which takes seconds. Nil is silent.
	Log *slog.Logger
	// Report is called before an install, because it takes a while; may be nil.
	Report func(what string)
}

// Attempt is one searched place, and the result.
type Attempt struct {
	Place string
	Found string
}

// Find returns the Envoy to use. The order is --envoy-path, ENVOY_PATH, PATH, windtunnel's cache, and last an install
// into that cache. A path that the user named must work; otherwise the error is TooOld or NotFound for that path. In
// other places, Find skips unusable binaries. If nothing is left, a NotFound error lists every place with the result.
func Find(ctx context.Context, o FindOptions) (Binary, error) {
	bin, _, err := search(ctx, o)
	return bin, err
}

// search is Find, but also returns the searched places.
func search(ctx context.Context, o FindOptions) (Binary, []Attempt, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Report == nil {
		o.Report = func(string) {}
	}
	for _, named := range []struct {
		source Source
		path   string
	}{{FromFlag, o.Path}, {FromEnv, o.Getenv("ENVOY_PATH")}} {
		if named.path != "" {
			bin, err := named.source.check(ctx, named.path)
			return bin, nil, err
		}
	}

	var tried []Attempt
	note := func(place, found string) { tried = append(tried, Attempt{place, found}) }

	if path := cachedir.LookPath(o.Getenv("PATH"), "envoy"); path == "" {
		note("PATH", "no program named envoy")
	} else if bin, err := FromPATH.check(ctx, path); err == nil {
		return bin, append(tried, Attempt{"PATH", path}), nil
	} else {
		note("PATH", err.Error())
	}

	cache, err := cachedir.Dir(o.Getenv)
	if err != nil {
		note("cache", err.Error())
		return Binary{}, tried, notFound(tried)
	}
	cached := cachedBinary(cache)
	if _, err := os.Stat(cached); err != nil {
		note("cache", cached+" does not exist")
	} else if bin, err := FromCache.check(ctx, cached); err == nil {
		return bin, append(tried, Attempt{"cache", cached}), nil
	} else {
		note("cache", err.Error())
	}

	if o.NoInstall {
		note("install", "not tried: installing is switched off")
		return Binary{}, tried, notFound(tried)
	}
	if err := install(ctx, cache, o); err != nil {
		if ctx.Err() != nil {
			return Binary{}, tried, ctx.Err()
		}
		if errors.Is(err, cachedir.ErrOffline) {
			return Binary{}, append(tried, Attempt{"install", err.Error()}), fail(NotFound, err,
				"Envoy %s is not here and cannot be installed: %v; expected a network once, or an Envoy by "+
					"--envoy-path or ENVOY_PATH", Pinned, err)
		}
		note("install", err.Error())
		return Binary{}, tried, notFound(tried)
	}
	bin, err := FromInstall.check(ctx, cached)
	return bin, append(tried, Attempt{"install", cached}), err
}

// check makes sure that path runs and is new enough.
func (s Source) check(ctx context.Context, path string) (Binary, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		abs = path
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Binary{}, fail(NotFound, err, "%s: %s does not exist; give the path of an Envoy %s or newer", s, abs,
			MinVersion)
	case err != nil:
		return Binary{}, fail(NotFound, err, "%s: %v", s, err)
	case info.IsDir():
		return Binary{}, fail(NotFound, nil, "%s: %s is a directory; give the path of the envoy program in it", s, abs)
	}
	abs = resolveScript(ctx, abs)
	v, err := askVersion(ctx, abs)
	if err != nil {
		return Binary{}, fail(NotFound, err, "%s: %s cannot be used: %v", s, abs, err)
	}
	if !v.AtLeast(MinVersion) {
		return Binary{}, fail(TooOld, nil,
			"%s: %s is Envoy %s, and windtunnel needs %s or newer (full-duplex request bodies); "+
				"give a newer one with --envoy-path or ENVOY_PATH, or none to have %s installed", s, abs, v, MinVersion,
			Pinned)
	}
	return Binary{Path: abs, Version: v, Source: s}, nil
}

func cachedBinary(cache string) string {
	name := "envoy"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(cache, "envoy", Pinned.String(), name)
}

func notFound(tried []Attempt) error {
	var b strings.Builder
	fmt.Fprintf(&b, "no Envoy %s or newer was found, and none could be installed. Looked at:\n", MinVersion)
	for _, a := range tried {
		fmt.Fprintf(&b, "  %-8s %s\n", a.Place, strings.ReplaceAll(a.Found, "\n", "\n  "))
	}
	b.WriteString("Give one with --envoy-path or ENVOY_PATH, or make python3 with pip (or uv) available.")
	return &Error{Kind: NotFound, Message: b.String()}
}
