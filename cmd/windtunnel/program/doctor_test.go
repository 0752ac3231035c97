package program

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/exit"
)

// full is a writer to a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// doctor fails if it cannot write.
func TestDoctorCannotWrite(t *testing.T) {
	var stderr strings.Builder
	o := &outside{Stdin: strings.NewReader(""), Stdout: full{}, Stderr: io.Writer(&stderr),
		Env:     func(string) (string, bool) { return "", false },
		Context: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }}
	if code := run([]string{"doctor"}, o); code == int(exit.OK) || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("exit code %d, printed %q", code, stderr.String())
	}
}
