package program

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/cluster"
	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/fakebin"
)

// On a cluster, the runs are windtunnel-k8s's: it gets the same arguments, and its output and exit code are the
// command's. Without it, the error says what installs it.
func TestOnKubernetes(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	args := strings.Fields("sweep mine.yaml --vary workload.rate=1,2 --on kubernetes --shares 4")
	var out bytes.Buffer
	if code := run(args, testOutside(&out)); code != int(exit.Environment) ||
		!strings.Contains(out.String(), "neither beside windtunnel nor on PATH") ||
		!strings.Contains(out.String(), "go install ") {
		t.Errorf("exit code %d: %s", code, &out)
	}
	fakebin.Write(t, filepath.Join(dir, cluster.Program), "#!/bin/sh\necho \"$@\"; exit 3\n")
	for _, on := range [][]string{args, append([]string{"capacity", "--on=kubernetes"}, args[1:3]...),
		strings.Fields("tune --from-cluster --namespace prod")} {
		out.Reset()
		want := on[0] + " " + strings.Join(on[1:], " ") + "\n"
		want = strings.NewReplacer(" --on kubernetes", "", " --on=kubernetes", "").Replace(want)
		if code := run(on, testOutside(&out)); code != 3 || out.String() != want {
			t.Errorf("%v: exit code %d and %q; expected 3 and %q", on, code, &out, want)
		}
	}
}

// A command that a cluster plays is checked as a whole before anything is created, and prints what one process prints
// from the output of --collect.
func TestDivided(t *testing.T) {
	t.Parallel()
	file := oneServer(t)
	sweep := func(change func(*Sweep)) *Sweep {
		c := &Sweep{Vary: []string{"workload.rate=5,10,15"}, Replications: 1, Output: "text"}
		c.File = file
		change(c)
		return c
	}
	for name, c := range map[string]Divided{
		"expected a file":  sweep(func(c *Sweep) { c.File = "-" }),
		"on a volume":      sweep(func(c *Sweep) { c.Results = "results" }),
		"workload.rate: ":  sweep(func(c *Sweep) { c.Vary = []string{"workload.rate=fast"} }),
		"--replications: ": sweep(func(c *Sweep) { c.Replications = 0 }),
		"--duration: ": &Capacity{loadFlags: loadFlags{File: file}, Objectives: []string{"ttft.p99=1s"},
			Precision: 5},
		"--objective is": &Capacity{loadFlags: loadFlags{File: file}},
	} {
		if _, _, err := c.Check(testOutside(new(bytes.Buffer))); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v; expected %q", err, name)
		}
	}
	c := sweep(func(*Sweep) {})
	inputs, shares, err := c.Check(testOutside(new(bytes.Buffer)))
	if err != nil || shares != 3 || len(inputs) != 1 || inputs[0] != file {
		t.Errorf("%v, %d, %v; expected %s and 3 shares", inputs, shares, err, file)
	}
	for _, args := range []string{"sweep " + file + " --vary workload.rate=5,10,15",
		// Its combination has no measures.
		"sweep " + filepath.Join(repository, "examples/kv-aware.yaml") + " -n 300 --vary workload.rate=28",
		"capacity " + file + " --objective ttft.mean=1s --duration 1s --precision 50 -r 3"} {
		want, results := printed(t, strings.Fields(args)...), filepath.Join(t.TempDir(), "results")
		for _, share := range []string{"0/2", "1/2"} {
			printed(t, strings.Fields(args+" --results "+results+" --share "+share)...)
		}
		text := printed(t, strings.Fields(args+" --output json --collect --results "+results)...)
		one := filepath.Join(t.TempDir(), "collected")
		if err := os.WriteFile(one, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		o := testOutside(&out)
		o.Columns = 0
		commands := &cli{}
		parser, err := newParser(commands, console.New())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = parser.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		var c Divided = &commands.Sweep
		if strings.HasPrefix(args, "capacity") {
			c = &commands.Capacity
		}
		if err := c.Collected(o, one); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s\nexpected\n%s", args, err, &out, want)
		}
	}
}
