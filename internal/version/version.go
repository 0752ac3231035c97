// Package version reports the version of this windtunnel.
package version

import "runtime/debug"

// release is set in release builds (-ldflags -X github.com/windtunnel/windtunnel/internal/version.release=v1.2.3).
var release string

// Text returns the release, or the commit of the build.
func Text() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+changes"
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return "commit " + revision + modified
}
