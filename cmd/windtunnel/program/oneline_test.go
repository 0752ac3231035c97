package program

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/internal/nightly"
	"github.com/windtunnel/windtunnel/report"
)

// write writes a file of the test and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const queueOnly = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer}]
`

// With the flags of one llm-d pool, each command plays what scenario show prints for the same flags.
func TestOneLine(t *testing.T) {
	t.Parallel()
	epp := write(t, "epp.yaml", queueOnly)
	mooncake := write(t, "t.jsonl", `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,1]}
{"timestamp":400,"input_length":700,"output_length":6,"hash_ids":[0,2]}
`)
	azure := write(t, "t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"+
		"2023-11-16 18:15:47.70,396,109\n")
	all := []string{"--epp-config", epp, "--model", "meta-llama/Llama-3.1-8B-Instruct", "--accelerator", "H200",
		"--replicas", "8", "--rate", "40"}
	for name, flags := range map[string][]string{
		"all": append(all[:len(all):len(all)], "-n", "40"), "model": {"--model", "qwen3-8b", "-n", "20"},
		"accelerator": {"--accelerator", "L40S", "-n", "50", "--seed", "7"},
		"trace":       append(all[:len(all):len(all)], "--trace", mooncake), "its own times": {"--trace", azure},
		"closed loop": {"--model", "llama-3.1-8b", "-n", "20", "-c", "5", "--prefill", "100ms", "--batching", "static"},
		"fields":      {"--epp-config", epp, "-n", "20", "--set", "pools[0].modelServer.maxNumSeqs=4"},
	} {
		t.Run("sim/"+name, func(t *testing.T) {
			t.Parallel()
			shown := printed(t, append([]string{"scenario", "show"}, flags...)...)
			file := write(t, "shown.yaml", shown)
			want := printed(t, "sim", file, "--output", "json")
			if d := cmp.Diff(want, printed(t, append([]string{"sim", "--output", "json"}, flags...)...)); d != "" {
				t.Errorf("sim of what is shown (-) and of the flags (+) differ:\n%.2000s\n%s", d, shown)
			}
			shown = printed(t, append([]string{"scenario", "show", "--output", "json"}, flags...)...)
			asJSON := write(t, "shown.json", shown)
			if d := cmp.Diff(want, printed(t, "sim", asJSON, "--output", "json")); d != "" {
				t.Errorf("sim of what is shown as YAML (-) and as JSON (+) differ:\n%.2000s", d)
			}
		})
	}
	t.Run("capacity", func(t *testing.T) {
		if !nightly.On() {
			t.Skip("make test-nightly runs it")
		}
		t.Parallel()
		short := []string{"--objective", "ttft.p90=2s", "--find", "replicas", "-r", "4", "--duration", "1s", "-o",
			"json"}
		all := append(all[:len(all):len(all)], "--set", "workload.outputTokens=1") // is played in less time
		file := write(t, "shown.yaml", printed(t, append([]string{"scenario", "show"}, all...)...))
		want := printed(t, append([]string{"capacity", file}, short...)...)
		got := printed(t, append(append([]string{"capacity"}, all...), short...)...)
		key := regexp.MustCompile(`"key": "\w+"`) // it names the file or the flags
		want, got = key.ReplaceAllString(want, ""), key.ReplaceAllString(got, "")
		if d := cmp.Diff(strings.ReplaceAll(want, file, "windtunnel scenario show"), got); d != "" {
			t.Errorf("capacity of what is shown (-) and of the flags (+) differ:\n%s", d)
		}
	})
	t.Run("run", func(t *testing.T) {
		text := printed(t, append([]string{"run", "-n", "4", "--output", "json"}, all...)...)
		lines := strings.Split(strings.TrimSpace(text), "\n")
		var last struct{ Summary report.Summary }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			t.Fatal(err)
		}
		if s := last.Summary; s.Scenario != "llm-d" || s.Outcomes["completed"] != 4 || s.Load[0].Servers != 8 {
			t.Errorf("found %+v; expected 4 completed requests on 8 servers", s)
		}
	})
}

// Where the picker's configuration and the pool's servers do not fit each other for prefill and decode, notes name the
// flags that make them fit. With these flags, prefill happens elsewhere, and the notes are gone.
func TestOneLinePrefill(t *testing.T) {
	epp := write(t, "pd.yaml", printed(t, "config", filepath.Join(repository, "examples", "pd.yaml"), "--picker"))
	sidecar, servers := "pools[0].sidecar=routing", "pools[0].disaggregation.prefillReplicas=2"
	for name, c := range map[string]struct{ flags, added []string }{
		"profile": {[]string{"--epp-config", epp}, []string{sidecar, servers}},
		"sidecar": {[]string{"--epp-config", epp, "--set", sidecar}, []string{servers}},
		"servers": {[]string{"--set", sidecar, "--set", servers}, []string{"pools[0].epp.config=null"}},
	} {
		args := append([]string{"sim", "--model", "llama-3.1-8b", "--accelerator", "H100", "-n", "5"}, c.flags...)
		for _, last := range []bool{false, true} {
			var out, notes bytes.Buffer
			o := testOutside(&out)
			o.Stderr = &notes
			if code := run(args, o); code != 0 {
				t.Fatalf("%s: exit code %d\n%s%s", name, code, out.String(), notes.String())
			}
			var found []string
			for _, m := range regexp.MustCompile(`--set '([^']+)'`).FindAllStringSubmatch(notes.String(), -1) {
				found = append(found, m[1])
				args = append(args, "--set", m[1])
			}
			if !last {
				if d := cmp.Diff(c.added, found); d != "" {
					t.Errorf("%s: expected (-) other flags than the note (+) names:\n%s", name, d)
				}
			} else if !regexp.MustCompile(`\nprefill .*:8000 [1-9]`).MatchString(out.String()) || found != nil {
				t.Errorf("%s: found no prefill on other servers with %v:\n%s%s", name, args, &out, &notes)
			}
		}
	}
}

// In a scenario, the flags replace what it has: the picker, the model wherever it is named, the accelerator of each
// group, the requests.
func TestOneLineReplaces(t *testing.T) {
	file := write(t, "s.yaml", `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
- name: a
  model: llama-3.1-8b
  epp: {config: {plugins: [{type: random-picker}]}}
  modelServer: {batching: continuous, accelerator: A10}
  groups:
  - {name: x, replicas: 2, modelServer: {accelerator: L4}}
  - {name: y, replicas: 1, modelServer: {model: llama-3.1-8b}}
workload: {requests: 3, rate: 5, model: llama-3.1-8b, prompt: {tokens: 10}}
`)
	trace := write(t, "t.csv", "Timestamp,Model,Request tokens,Response tokens\n5,x,10,20\n")
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "epp.yaml"), []byte(queueOnly), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(filepath.Dir(file)))
	beside := filepath.Join(filepath.Base(filepath.Dir(file)), "epp.yaml") // from here, and not from the scenario
	shown := printed(t, "scenario", "show", file, "--epp-config", beside, "--model", "qwen3-8b", "--accelerator",
		"H100", "--trace", trace)
	for _, gone := range []string{"random-picker", "llama", "L4", "A10", "tokens: 10", "rate"} {
		if strings.Contains(shown, gone) {
			t.Errorf("%s is still there:\n%s", gone, shown)
		}
	}
	for _, set := range []string{`config: "epp.yaml"`, "model: qwen3-8b", "accelerator: H100", trace} {
		if strings.Count(shown, set) != 1 {
			t.Errorf("expected %q once:\n%s", set, shown)
		}
	}
	plan := printed(t, "scenario", "show", write(t, "shown.yaml", strings.ReplaceAll(shown, "epp.yaml",
		filepath.Join(filepath.Dir(file), "epp.yaml"))), "--resolved")
	if !strings.Contains(plan, "queue-scorer") || strings.Contains(plan, "random-picker") {
		t.Errorf("the picker has another configuration than --epp-config:\n%s", plan)
	}
}
