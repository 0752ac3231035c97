package program

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md and the scripts' expected output")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"windtunnel": func() { os.Exit(Main()) }})
}

// The scripts run the program as its users do.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			root, err := os.Getwd()
			if err != nil {
				return err
			}
			e.Setenv("ROOT", root+"/../../..")
			// Envoy is looked for, and kept, where the user's own is.
			for _, name := range []string{"HOME", "XDG_CACHE_HOME", "ENVOY_PATH"} {
				if v, ok := os.LookupEnv(name); ok {
					e.Setenv(name, v)
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		// A process that starts with SIGHUP ignored, as under nohup, and its children never see that signal.
		Condition: func(name string) (bool, error) {
			switch name {
			case "hangup":
				return !signal.Ignored(syscall.SIGHUP), nil
			case "nightly":
				return nightly.On(), nil
			}
			return false, fmt.Errorf("condition %q is unknown; expected hangup or nightly", name)
		},
	})
}

// exits CODE ARGS... runs windtunnel and checks the exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE windtunnel ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		exited, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exited.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, expected %s", got, args[0])
	}
}

// docs/cli.md and docs/flags.md are the program's own help; -update writes them.
func TestReferenceIsCheckedIn(t *testing.T) {
	var all bytes.Buffer
	if code := run([]string{"help", "--all"}, testOutside(&all)); code != 0 {
		t.Fatalf("help --all: exit code %d", code)
	}
	page, err := overview(testOutside(&bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"cli.md": page,
		"flags.md": "# Flags\n\nThe help of every command, as `windtunnel help --all` prints it. A test keeps the " +
			"two equal. [cli.md](cli.md) is the short\nform.\n\n" + all.String()} {
		file := "../../../docs/" + name
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(have), want); d != "" {
			t.Fatalf("%s: run go test ./cmd/windtunnel/program -update (-checked in, +of the program):\n%s", name, d)
		}
	}
}

func testOutside(out *bytes.Buffer) *outside {
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal = out, out, false
	return o
}

// Every command's help has an example.
func TestEveryCommandHasAnExample(t *testing.T) {
	parser, err := newParser(&cli{}, testOutside(&bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		command := "windtunnel " + strings.Join(commandOf(leaf), " ")
		if leaf.Name != "version" && !strings.Contains(leaf.Detail, "  "+command) {
			t.Errorf("%s: its help has no example, a line that begins with the command", command)
		}
	}
}

func TestColor(t *testing.T) {
	env := map[string]string{}
	o := &outside{Terminal: true, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	if !o.Color() {
		t.Error("no colour on a terminal")
	}
	env["NO_COLOR"] = ""
	if o.Color() {
		t.Error("colour despite NO_COLOR")
	}
	delete(env, "NO_COLOR")
	env["TERM"] = "dumb"
	if o.Color() {
		t.Error("colour on a dumb terminal")
	}
}
