package program

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// oneServer writes a scenario whose server computes one prompt after another, and returns the file.
func oneServer(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.yaml")
	text := "apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools: [{name: p, modelServer: {batching: none, " +
		"accelerator: H100, outputTokens: 5}}]\nworkload: {requests: 30, rate: 5}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// On a terminal, capacity shows what it plays and each load that it has judged, then the verdict in colour. With
// NO_COLOR, and on no terminal, there is the result alone.
func TestCapacityOnATerminal(t *testing.T) {
	t.Parallel()
	file := oneServer(t)
	args := strings.Fields("capacity " + file + " --objective ttft.mean=1s --duration 1s --precision 50 -r 3")
	for _, plain := range []bool{false, true} {
		var out bytes.Buffer
		o := testOutside(&out)
		o.Terminal, o.Columns, o.Screen = true, 80, &out
		o.Env = func(name string) (string, bool) { return "1", plain && name == "NO_COLOR" }
		if code := run(args, o); code != 0 {
			t.Fatalf("exit code %d\n%s", code, out.String())
		}
		_, result, found := strings.Cut(out.String(), "\x1b[1m\x1b[32manswer   up to ")
		switch {
		case plain && (!strings.HasPrefix(out.String(), "answer   up to ") || strings.Contains(out.String(), "\x1b")):
			t.Errorf("with NO_COLOR:\n%q", out.String())
		case !plain && !found:
			t.Errorf("no verdict:\n%q", out.String())
		case !plain:
			for _, want := range []string{`0 of 2 runs at [\d.]+ requests/s`, `requests/s with 1 server: pilot`,
				`requests/s with 1 server: keeps\n`, `3 of 3 runs at`} {
				if !regexp.MustCompile(want).MatchString(out.String()) {
					t.Errorf("no %q:\n%q", want, out.String())
				}
			}
			for line := range strings.Lines(result) {
				if n := terminal.Columns(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("%d columns: %q", n, line)
				}
			}
		}
	}
}

// On a terminal, sweep shows how many combinations it has played and each one's measures, then a table of the
// terminal's width. validate shows how many requests have ended in wall time.
func TestDecidingOnATerminal(t *testing.T) {
	file := oneServer(t)
	for command, want := range map[string][]string{
		"sweep " + file + " --vary pools[0].modelServer.outputTokens=5,6 --vary workload.rate=5,10 -n 50": {
			`0 of 4 combinations`, `outputTokens=6 workload.rate=10: ttft p99 `, `4 of 4 combinations`,
			`\x1b\[32m4 combinations: all requests completed`, `\nleft out: output tokens/s `,
			`\noutputTokens  rate  [^\n]*ttft p99`},
		"validate " + file + " -n 3 --rate 50 --prefill 10ms --tolerance 1000": {
			`0 of 3 requests in wall time`, `3 of 3 requests in wall time`, `1 of 1 run in virtual time`,
			`\x1b\[1m\x1b\[\d+manswer `},
	} {
		var out bytes.Buffer
		o := testOutside(&out)
		o.Terminal, o.Columns, o.Screen = true, 80, &out
		o.Env = func(name string) (string, bool) {
			value, found := os.LookupEnv(name)
			return value, found && name != "NO_COLOR"
		}
		if code := run(strings.Fields(command), o); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", command, code, out.String())
		}
		for _, w := range want {
			if !regexp.MustCompile(w).MatchString(out.String()) {
				t.Errorf("%s: no %q:\n%q", command, w, out.String())
			}
		}
		for line := range strings.Lines(out.String()) {
			if line = line[strings.LastIndexByte(line, '\r')+1:]; terminal.Columns(strings.TrimSpace(line)) > 80 {
				t.Errorf("%s: %d columns: %q", command, terminal.Columns(line), line)
			}
		}
	}
}

// Ctrl-C prints what the loads before it have shown.
func TestInterruptedCapacity(t *testing.T) {
	t.Parallel()
	file := oneServer(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out bytes.Buffer
	screen := &onWrite{&out, func(text string) {
		if strings.Contains(text, " server: ") {
			interrupt()
		}
	}}
	o := testOutside(&out)
	o.Terminal, o.Columns, o.Screen = true, 80, screen
	o.Env = func(string) (string, bool) { return "", false }
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, interrupt }
	code := run([]string{"capacity", file, "--objective", "ttft.mean=1s", "--duration", "1s"}, o)
	if code != int(exit.Interrupted) || !strings.Contains(out.String(), "none: interrupted after 1 load") {
		t.Errorf("exit code %d\n%q", code, out.String())
	}
}

// onWrite calls do with everything that is written.
type onWrite struct {
	out *bytes.Buffer
	do  func(text string)
}

func (w *onWrite) Write(b []byte) (int, error) {
	w.do(string(b))
	return w.out.Write(b)
}

// A verdict that takes several lines is coloured on each of them, and the lines after it are not.
func TestVerdictIsColouredWhole(t *testing.T) {
	var out bytes.Buffer
	o := testOutside(&out)
	o.Terminal, o.Screen, o.Env = true, &out, func(string) (string, bool) { return "", false }
	err := textOrJSON{}.verdict(o, nil, false, func(to io.Writer, _ int) error {
		_, err := io.WriteString(to, "answer   not\n         kept\nwhy      it\n         wraps\nrate misses\n")
		return err
	}, "misses")
	const red, bold, end = "\x1b[31m", "\x1b[1m", "\x1b[0m"
	want := bold + red + "answer   not" + end + end + "\n" + bold + red + "         kept" + end + end +
		"\nwhy      it\n         wraps\n" + red + "rate misses" + end + "\n"
	if err != nil || out.String() != want {
		t.Errorf("%v\n%q\n%q", err, out.String(), want)
	}
}
