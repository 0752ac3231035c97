package jobs

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
)

// mine is a scenario with a file of its own.
const mine = `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools: [{name: p, epp: {config: config/epp.yaml}, modelServer: {batching: none, prefill: 10ms, outputTokens: 5}}]
workload: {requests: 30, rate: 5}
`

// played runs a command of windtunnel-k8s in a directory with the scenario, and returns its output.
func played(t *testing.T, line string) (stdout, stderr string, err error) {
	t.Helper()
	args := strings.Fields(line)
	var out, text bytes.Buffer
	o := console.New()
	o.Args, o.Stdout, o.Stderr, o.Terminal, o.Columns = args, &out, &text, false, 0
	var c struct {
		Sweep    Sweep    `cmd:""`
		Capacity Capacity `cmd:""`
		Tune     Tune     `cmd:""`
	}
	parser, err := kong.New(&c, kong.Bind(o), kong.Resolvers(o.Flags()))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(args)
	if err == nil {
		err = parsed.Run()
	}
	return out.String(), text.String(), err
}

// inScenario changes to a directory with the scenario, below which sub is.
func inScenario(t *testing.T, sub string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"mine.yaml": mine, "config/epp.yaml": `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
`, "sub/.keep": ""} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(dir, sub))
	return dir
}

// Every wrong value is refused with its flag and what was expected, before an API server is asked.
func TestRefused(t *testing.T) {
	inScenario(t, "")
	t.Setenv("KUBECONFIG", "nowhere")
	const ok = "sweep mine.yaml --vary workload.rate=5,10,20 --image windtunnel:test "
	for line, want := range map[string]string{
		ok + "--namespace Mine":                      `--namespace: found "Mine"; expected lower-case`,
		ok + "--name " + strings.Repeat("a", 51):     "--name: found",
		ok + "--claim a_b":                           "--claim: found",
		ok + "--storage-class a_b":                   "--storage-class: found",
		ok + "--cpu fast":                            `--cpu: found "fast"; expected a quantity such as 2`,
		ok + "--memory 0":                            "--memory: found",
		ok + "--size -1Gi":                           "--size",
		ok + "--indexes -1":                          "--indexes",
		ok + "--indexes 200000":                      "--indexes: found 200000; expected from 1 to 100000",
		ok + "--parallel 4":                          "--parallel: found 4; expected from 1 to 3",
		ok + "--retries 2000":                        "--retries: found 2000; expected from 0 to 1000",
		ok + "--access-mode Many":                    "--access-mode",
		ok + "--results here":                        "--on kubernetes: found --results",
		ok + "--vary pools[0].replica=1":             "replica",
		"sweep - --vary a=1":                         "",
		"sweep mine.yaml --vary workload.rate=5":     "--image: this build",
		"capacity mine.yaml --image a":               "--objective is missing",
		"capacity mine.yaml --image a --duration 1m": "--objective is missing",
		"tune mine.yaml --image a --save x":          "found no --from-cluster",
		"tune mine.yaml --from-cluster":              "found a scenario",
		"tune --from-cluster":                        "no API server",
		ok:                                           "no API server",
		"sweep nothere.yaml":                         "nothere.yaml",
	} {
		if _, _, err := played(t, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; expected %q", line, err, want)
		}
	}
}

// The dry run prints all objects: the claim, the files at their places beside each other, the Indexed Job with the
// command in its directory and a share for each index, and the Job that collects.
func TestDryRun(t *testing.T) {
	dir := inScenario(t, "sub")
	text, _, err := played(t, "sweep "+filepath.Join(dir, "mine.yaml")+" --vary workload.rate=5,10,20 --image a:b "+
		"--dry-run --parallel=2 --cpu 500m -o csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind: PersistentVolumeClaim", "path: config/epp.yaml", "path: sub/.command",
		"completionMode: Indexed", "completions: 3", "parallelism: 2", "backoffLimitPerIndex: 3",
		"workingDir: /windtunnel/files/sub", "- /windtunnel/files/mine.yaml", "- $(JOB_COMPLETION_INDEX)/3",
		"- csv\n        - --results\n        - /windtunnel/results\n        - --share", "cpu: 500m",
		"- /windtunnel/results\n        - --collect\n        - --output\n        - json", "readOnlyRootFilesystem: true"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, not := range []string{"--dry-run", "--parallel", "--cpu", dir} {
		if strings.Contains(text, not) {
			t.Errorf("found %q in\n%s", not, text)
		}
	}
	again, _, err := played(t, "sweep ../mine.yaml --vary workload.rate=5,10,20 --image a:b --dry-run --claim mine")
	if err != nil || strings.Contains(again, "PersistentVolumeClaim\n") ||
		!strings.Contains(again, "claimName: mine") ||
		!strings.Contains(again, "- ../mine.yaml") {
		t.Errorf("%v; with a claim:\n%s", err, again)
	}
}

// Arguments of the cluster do not reach the pods, in both forms of a flag.
func TestOwn(t *testing.T) {
	got := own(strings.Fields("sweep a.yaml --namespace b --vary x=1 --keep-job --cpu=2 -n 5 --name -- --vary=y=2"))
	if want := strings.Fields("sweep a.yaml --vary x=1 -n 5 --vary=y=2"); !slices.Equal(got, want) {
		t.Errorf("%q; expected %q", got, want)
	}
}

// Files that a ConfigMap cannot take are refused.
func TestLargeFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 600_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := gather(dir, []string{"sweep"}, []string{"a"}); err != nil {
		t.Error(err)
	}
	if _, err := gather(dir, []string{"sweep"}, []string{"a", "b"}); err == nil ||
		!strings.Contains(err.Error(), "ConfigMap, which takes 1000000 bytes") {
		t.Errorf("%v; expected the limit", err)
	}
}

// A log has JSON on one line or on several, among notes.
func TestObjectsIn(t *testing.T) {
	for log, want := range map[string]string{
		"windtunnel: note: a\n{\"key\":1}\n{\"key\":2}\nwindtunnel: b\n": "{\"key\":1}\n{\"key\":2}\n",
		"x\n{\n  \"find\": {\n  }\n}\nwindtunnel: {\n":                   "{\n  \"find\": {\n  }\n}\n",
		"windtunnel: mine.yaml: no such file\n":                          "",
		"{\n  \"cut\": 1\n":                                              "{\n  \"cut\": 1\n",
	} {
		var b bytes.Buffer
		rest, found, err := objectsIn(&b, strings.NewReader(log))
		if complete := strings.HasSuffix(want, "}\n"); err != nil || b.String() != want || found != complete ||
			strings.Contains(rest, "\"key\"") {
			t.Errorf("%q: found %q, %v, %v, and %q beside", log, &b, found, err, rest)
		}
	}
}
