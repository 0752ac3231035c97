package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/internal/lab"
	"github.com/windtunnel/windtunnel/internal/nightly"
)

// labRig is a lab in a directory of the test's own.
type labRig struct {
	*running
	dir  lab.Dir
	lab  *lab.Lab
	from struct{ Manifests string }
}

// startLab starts a lab whose Gateway has an address of its own.
func startLab(t *testing.T, l *lab.Lab, number int) *labRig {
	t.Helper()
	r := &labRig{dir: lab.Dir(filepath.Join(t.TempDir(), "lab")), lab: l,
		running: &running{t: t, out: &locked{}, notes: &locked{}, code: make(chan int, 1)}}
	o := r.console(r.out, r.notes)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	t.Cleanup(stop)
	admin := fmt.Sprint(freeport.Row(t, 1))
	o.Context = func() (context.Context, context.CancelFunc) { return ctx, stop }
	go func() {
		r.code <- run([]string{"lab", "start", l.Name, "--listen", fmt.Sprintf("127.93.%d.1", number),
			"--admin-port", admin, "--output", "json"}, o)
	}()
	r.await("the lab", func() bool { return json.Unmarshal([]byte(r.out.String()), &r.from) == nil })
	return r
}

func (r *labRig) console(out, notes *locked) *console.Console {
	o := console.New()
	o.Stdout, o.Stderr, o.Terminal, o.Columns = out, notes, false, 0
	o.Env = func(name string) (string, bool) {
		if name == "WINDTUNNEL_LAB" {
			return string(r.dir), true
		}
		return os.LookupEnv(name)
	}
	return o
}

// do runs a command, and returns its exit code with what it prints.
func (r *labRig) do(args ...string) (code int, out string) {
	r.t.Helper()
	text := &locked{}
	code = run(args, r.console(text, text))
	return code, text.String()
}

// check runs lab check, which must end with a code.
func (r *labRig) check(after string, want int) {
	r.t.Helper()
	if code, out := r.do("lab", "check"); code != want {
		r.t.Errorf("%s: lab check ends with %d, expected %d:\n%s", after, code, want, out)
	}
}

// In each lab the symptom appears, the wrong repairs do not pass, and the right ones do. Stop leaves nothing behind.
func TestLabs(t *testing.T) {
	t.Parallel()
	labs, err := lab.All()
	if err != nil {
		t.Fatal(err)
	}
	byDay := []string{"ssrf-pool-name"} // live ones that take little
	for i, l := range labs {
		if len(l.Hints) == 0 || len(l.Remedies) == 0 || len(l.Wrong) == 0 || len(l.Look) == 0 {
			t.Errorf("%s: found no hint, command, remedy or wrong repair; expected one of each", l.Name)
		}
		t.Run(l.Name, func(t *testing.T) {
			if l.Play == "virtual" {
				labVirtually(t, l)
				return
			}
			if !nightly.On() && !slices.Contains(byDay, l.Name) {
				t.Skip("live labs are played nightly")
			}
			t.Parallel()
			labLive(t, l, i)
		})
	}
}

func labLive(t *testing.T, l *lab.Lab, number int) {
	r := startLab(t, l, number)
	r.check("with the fault", 1)
	for i := range l.Wrong {
		r.fill(&l.Wrong[i])
		r.check(l.Wrong[i].Name, 1)
	}
	for i := range l.Remedies {
		if code, out := r.do("lab", "solve", l.Remedies[i].Name); code != 0 {
			t.Fatalf("lab solve ends with %d:\n%s", code, out)
		}
		r.check(l.Remedies[i].Name, 0)
	}
	if code, out := r.do("lab", "stop"); code != 0 || <-r.code != 0 {
		t.Errorf("lab stop ends with %d:\n%s%s", code, out, r.notes.String())
	}
	if _, err := os.Stat(string(r.dir)); !os.IsNotExist(err) {
		t.Errorf("the lab has left its directory: %v", err)
	}
}

func (r *labRig) fill(x *lab.Remedy) {
	r.t.Helper()
	texts, err := r.lab.Files(x)
	if err == nil {
		err = r.dir.Fill(texts)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func labVirtually(t *testing.T, l *lab.Lab) {
	r := &labRig{dir: lab.Dir(t.TempDir()), lab: l, running: &running{t: t}}
	if err := os.WriteFile(r.dir.Scenario(), []byte(l.Traffic), 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(x *lab.Remedy, what string, passes bool) {
		t.Helper()
		r.fill(x)
		found, err := lab.PlayVirtually(r.dir, l)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		missed := 0
		for _, e := range found {
			if !e.OK {
				missed++
			}
		}
		leaf := l.Leaf != "" && found[len(found)-1].OK
		if (missed == 0) != passes || len(found) == 0 || x == nil && leaf {
			t.Errorf("%s: passes %v, expected %v, and the leaf with the fault: %+v", what, !passes, passes, found)
		}
	}
	try(nil, "with the fault", false)
	for i := range l.Wrong {
		if i == 0 || nightly.On() {
			try(&l.Wrong[i], l.Wrong[i].Name, false)
		}
	}
	for i := range l.Remedies {
		if i == 0 || nightly.On() {
			try(&l.Remedies[i], l.Remedies[i].Name, true)
		}
	}
}

// The document's commands work as written in a running lab, and edits by kubectl take effect. A second lab, a wrong
// name and a command without a lab are refused by name.
func TestLabShell(t *testing.T) {
	t.Parallel()
	l, err := lab.Find("ssrf-pool-name")
	if err != nil {
		t.Fatal(err)
	}
	r := startLab(t, l, 250)
	for _, x := range [][2]string{
		{"get pods -o wide", "llm-prefill-worker-1"},
		{"get pods -l llm-d.ai/role=prefill --show-labels", "model=llama-70b"},
		{"get deployment llm-decode-worker -o yaml", "value: \"llama-70b\"\n"},
		{"get inferencepool llama-70b-pool -o yaml", "modelName:"},
		{"get events --sort-by=.lastTimestamp", "found no InferencePool"},
		{"describe pod llm-decode-worker-0", "routing-sidecar"},
		{"top pods", "GPU MEMORY"},
		{"logs llm-decode-worker-0 -c routing-sidecar", "msg=allowlist_updated addresses=0"},
		{"logs llm-prefill-worker-0", "Loading model"},
		{"logs -n llm-d-system -l app=endpoint-picker --tail=100", "scraper"},
		{"exec -it llm-decode-worker-0 -- curl localhost:8001/metrics", "vllm_queue_length"},
		{"exec llm-decode-worker-0 -- nvidia-smi --query-gpu=utilization.gpu --format=csv", "utilization.gpu [%]"},
		{"exec llm-decode-worker-0 -- netstat -tlnp", ":5555"},
		{"exec llm-decode-worker-0 -- printenv", "UCX_TLS="},
		{"exec -n llm-d-system envoy-llm-inference-gateway -- curl localhost:19000/stats", "ext_proc"},
		{"exec llm-decode-worker-0 -- curl localhost:1/metrics", "Failed to connect"},
		{"get nodes", "expected one of: pods"},
		{"get pods nobody", `found no pod "nobody"`},
		{"exec llm-decode-worker-0 -- rm", "expected a program"},
		{"delete pod llm-decode-worker-0", "expected a command"},
		{"port-forward llm-decode-worker-0 0:77", "expected a port"},
		{"logs llm-decode-worker-0 -c none", "expected a container"},
		{"logs llm-decode-worker-0 --tail many", "expected a number"},
	} {
		_, out := r.do(append([]string{"lab", "kubectl"}, strings.Fields(x[0])...)...)
		if !strings.Contains(out, x[1]) {
			t.Errorf("kubectl %s: found no %q in:\n%s", x[0], x[1], out)
		}
	}
	text, err := os.ReadFile(filepath.Join(r.from.Manifests, "workers.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	edited := filepath.Join(t.TempDir(), "edited.yaml")
	first, _, _ := strings.Cut(string(text), "\n---\n")
	repaired := strings.Replace(first, `"llama-70b"`, `"llama-70b-pool"`, 1)
	if err := os.WriteFile(edited, []byte(repaired), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := r.do("lab", "kubectl", "apply", "-f", edited); code != 0 || !strings.Contains(out, "configured") {
		t.Errorf("kubectl apply ends with %d: %s", code, out)
	}
	r.check("kubectl apply", 0)
	if code, out := r.do("lab", "start", l.Name); code != 4 || !strings.Contains(out, "lab ssrf-pool-name is running") {
		t.Errorf("a second lab ends with %d: %s", code, out)
	}
	if code, out := r.do("lab", "start", "ssrf-pool-nam"); code != 2 ||
		!strings.Contains(out, `did you mean "ssrf-pool-name"`) {
		t.Errorf("a wrong name ends with %d: %s", code, out)
	}
	if code, out := r.do("lab", "hint"); code != 0 || !strings.HasPrefix(out, "1. ") || strings.Contains(out, "2. ") {
		t.Errorf("the first hint ends with %d: %s", code, out)
	}
	r.end()
	if code, out := r.do("lab", "check"); code != 4 || !strings.Contains(out, "no lab is running") {
		t.Errorf("a check without a lab ends with %d: %s", code, out)
	}
}
