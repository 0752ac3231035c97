package program

import (
	"fmt"
	"runtime"

	"github.com/windtunnel/windtunnel/internal/version"
)

type versionCmd struct {
	textOrJSON
}

func (c *versionCmd) Run(o *outside) error {
	if c.json() {
		return writeJSON(o.Stdout, map[string]string{
			"windtunnel": version.Text(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "go": runtime.Version(),
		})
	}
	_, err := fmt.Fprintf(o.Stdout, "windtunnel %s %s/%s %s\n", version.Text(), runtime.GOOS, runtime.GOARCH,
		runtime.Version())
	return err
}
