package program

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set when a release is built (-ldflags -X github.com/windtunnel/windtunnel/cmd/windtunnel/program.version=v1.2.3).
var version string

type versionCmd struct {
	shownAs
}

func (c *versionCmd) Run(o *outside) error {
	if c.json() {
		return writeJSON(o.Stdout, map[string]string{
			"windtunnel": versionText(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "go": runtime.Version(),
		})
	}
	_, err := fmt.Fprintf(o.Stdout, "windtunnel %s %s/%s %s\n", versionText(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	return err
}

// versionText is the release, or the commit that this was built from.
func versionText() string {
	if version != "" {
		return version
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
