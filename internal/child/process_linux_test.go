package child

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Stop kills only a process that does not end by itself, and the log has the output of both.
func TestProcessStop(t *testing.T) {
	t.Parallel()
	for what, killed := range map[string]bool{"echo up; exec sleep 600": false,
		"trap '' TERM; echo up; while :; do sleep 600; done": true} {
		p, err := Run(exec.Command("sh", "-c", what), filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		for p.Tail(100) == "" && !p.Ended() {
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if !killed {
			ctx = t.Context()
		}
		if got := p.Stop(ctx, time.Minute); got != killed || !p.Ended() || p.Wait() == nil || p.Tail(100) != "up" {
			t.Errorf("%s: killed %v, ended %v, log %q", what, got, p.Ended(), p.Tail(100))
		}
	}
}
