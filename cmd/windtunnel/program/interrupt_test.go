package program

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// Ctrl-C while requests are held prints the measurements, stops everything, and sets the exit code.
func TestInterrupt(t *testing.T) {
	for _, command := range [][]string{
		{"run", "--prefill", "5m", "--view", "steps"},
		{"run", "--prefill", "10ms", "--keep", "--view", "steps"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		read, write := io.Pipe()
		var stderr bytes.Buffer
		o := console.New()
		o.Stdout, o.Stderr, o.Terminal = write, &stderr, false
		o.Context = func() (context.Context, context.CancelFunc) { return ctx, interrupt }
		code := make(chan int, 1)
		go func() {
			code <- run(command, o)
			write.Close()
		}()
		var out strings.Builder
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			out.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "prefill_started") && command[2] == "5m" ||
				strings.Contains(lines.Text(), "curl -N") {
				interrupt()
			}
		}
		kept := command[len(command)-3] == "--keep"
		switch got := <-code; {
		case kept && got != 0:
			t.Errorf("%v: exit code %d after --keep, expected 0: the requests had all ended\n%s%s", command, got, &out,
				&stderr)
		case !kept && (got != 130 || !strings.Contains(out.String(), "1 request in ") ||
			!strings.Contains(out.String(), ", interrupted, seed 1")):
			t.Errorf("%v: exit code %d\n%s%s", command, got, &out, &stderr)
		}
	}
}
