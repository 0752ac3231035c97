package program

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/exit"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md and the scripts' expected output")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"windtunnel": func() { os.Exit(Main()) }})
}

// The scripts play the program as its users do.
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
	})
}

// exits CODE ARGS... runs windtunnel and wants that exit code.
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

// docs/cli.md is what --help says; -update writes it.
func TestReferenceIsCheckedIn(t *testing.T) {
	const file = "../../../docs/cli.md"
	want := reference(t)
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
		t.Fatalf("run go test ./cmd/windtunnel -update (-checked in, +of the program):\n%s", d)
	}
}

func reference(t *testing.T) string {
	var b strings.Builder
	b.WriteString("# Command line\n\nWritten from the program's own `--help`; a test keeps the two equal.\n\n")
	b.WriteString("## Exit codes\n\n| code | name | means |\n|--:|---|---|\n")
	for _, c := range exit.Codes() {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", c.Code, c.Name, c.Means)
	}
	b.WriteString("\nOnly results and the ready line go to standard output; everything else goes to standard error.\n")
	fmt.Fprintf(&b, "\n## windtunnel\n\n```\n%s```\n", help(t))
	parser, err := newParser(&cli{}, testOutside(&bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		fmt.Fprintf(&b, "\n## windtunnel %s\n\n```\n%s```\n", strings.Join(names(leaf), " "), help(t, names(leaf)...))
	}
	return b.String()
}

func names(n *kong.Node) []string {
	var out []string
	for ; n != nil && n.Type == kong.CommandNode; n = n.Parent {
		out = append([]string{n.Name}, out...)
	}
	return out
}

func help(t *testing.T, command ...string) string {
	var out bytes.Buffer
	o := testOutside(&out)
	if code := run(append(command, "--help"), o); code != 0 {
		t.Fatalf("%v --help: exit code %d", command, code)
	}
	return out.String()
}

func testOutside(out *bytes.Buffer) *outside {
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal = out, out, false
	return o
}

// Every command teaches by example.
func TestEveryCommandHasAnExample(t *testing.T) {
	parser, err := newParser(&cli{}, testOutside(&bytes.Buffer{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		command := "windtunnel " + strings.Join(names(leaf), " ")
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
