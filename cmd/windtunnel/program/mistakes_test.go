package program

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/scenario"
)

// mistakes are command lines of newcomers. Each ends with an error that says what was found, what was expected, and
// what to do.
const mistakes = `simulate
sim mine.yml
sim run.ndjson.gz
sim epp.yaml
sim pool.yaml
sim trace.jsonl
sim .
run mine.yaml mine.yaml
sim mine.yaml --rate ten
sim mine.yaml --replica 3
sim mine.yaml --replicas 0
sim mine.yaml --set pools[0].modelServer.maxNumSeq=3
sim mine.yaml --set workload.rate
sim mine.yaml --prefill 30
sim --model llama-3.1-9b
sim --model lama-3.1-8b
sim --model llama-3.1-70b
sim --model llama-3.1-8b --accelerator H10
sim --model llama-3.1-8b --accelerator L4 --set pools[0].modelServer.maxModelLen=131072
sim --epp-config nothere.yaml
sim --epp-config mine.yaml
sim --epp-config run.ndjson.gz
sim --epp-config typo.yaml
sim --epp-config gaie.yaml
sim --trace mine.yaml
sim mine.yaml --record mine.yaml
sim typos.yaml
sim tabs.yaml
sim kvless.yaml
run mine.yaml --epp-config epp.yaml --epp 127.0.0.1:9002
capacity mine.yaml
capacity mine.yaml --objective ttft=1s
capacity mine.yaml --objective ttft.p99=200
sweep mine.yaml --vary replicas=1,2
tune mine.yaml --vary weight
run mine.yaml --port 99999
replay mine.yaml
explain 99 --from run.ndjson.gz
manifests check mine.yaml
scenario new pods
scenario new plain -o mine.yaml
compare mine.yaml
`

// The messages for mistakes of newcomers are those of testdata/mistakes.txt.
func TestMistakes(t *testing.T) {
	golden, err := filepath.Abs("testdata/mistakes.txt")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"mine.yaml": string(scenario.Template("plain")), "epp.yaml": queueOnly,
		"pool.yaml":   "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\n",
		"trace.jsonl": `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,1]}` + "\n",
		"typo.yaml":   strings.ReplaceAll(queueOnly, "queue-scorer", "queue-scorrer"),
		"gaie.yaml":   "kind: EndpointPickerConfig\nplugins:\n- type: kv-cache-scorer\n- type: decision-tree-filter\n",
		"typos.yaml": "apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n- name: a\n  replica: 3\n" +
			"workload:\n  timeout: 30\n  prompt: {token: 5}\n",
		"tabs.yaml": "apiVersion: windtunnel/v1alpha1\nkind: Scenario\npools:\n\t- name: a\n",
		"kvless.yaml": strings.ReplaceAll(string(scenario.Template("kv-aware")), "kvEvents: {format: msgpack}",
			"blockSize: 16"),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	printed(t, "sim", "--record", "run.ndjson.gz")
	var got strings.Builder
	for line := range strings.Lines(mistakes) {
		var out bytes.Buffer
		o := testOutside(&out)
		o.Stdout = &bytes.Buffer{}
		code := run(strings.Fields(line), o)
		if code < 2 || code > 4 {
			t.Errorf("%s: exit code %d; expected one of a mistake:\n%s", line, code, &out)
		}
		fmt.Fprintf(&got, "$ windtunnel %s%sexit code %d\n\n", line, &out, code)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("testdata/mistakes.txt: run go test ./cmd/windtunnel/program -update (-checked in, +now):\n%s", d)
	}
}

// Every scenario of scenario new plays, explains its fields, and is not written over a file.
func TestScenarioNew(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"plain", "pd", "kv-aware", "autoscaling", "held"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "new.yaml")
			if text := printed(t, "scenario", "new", kind, "-o", file); text != "" {
				t.Errorf("found %q on standard output; expected the text in the file alone", text)
			}
			text := printed(t, "scenario", "new", kind)
			if have, err := os.ReadFile(file); err != nil || string(have) != text || strings.Count(text, "#") < 6 {
				t.Errorf("the file has %q, standard output %q, %v", have, text, err)
			}
			if out := printed(t, "sim", file); !strings.Contains(out, "outcomes   completed ") {
				t.Errorf("%s", out)
			}
		})
	}
}

// A first run on a terminal ends with three commands, and each of them is one that the program takes.
func TestNext(t *testing.T) {
	var out bytes.Buffer
	o := testOutside(&out)
	o.Terminal = true
	if code := run([]string{"run", "-n", "1", "--prefill", "10ms"}, o); code != 0 {
		t.Fatalf("exit code %d: %s", code, &out)
	}
	if !strings.HasSuffix(out.String(), next) || strings.Count(next, "windtunnel ") != 3 {
		t.Errorf("the run ends without the next commands:\n%s", &out)
	}
	if text := printed(t, "run", "-n", "1", "--prefill", "10ms"); strings.Contains(text, "next:") {
		t.Errorf("found the next commands without a terminal:\n%s", text)
	}
	parser, err := newParser(&cli{}, o)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.TrimSpace(next)) {
		command, _, _ := strings.Cut(line[strings.Index(line, "windtunnel ")+len("windtunnel "):], "   ")
		if _, err := parser.Parse(strings.Fields(command)); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// The error of a port in use names the flag, and where /proc can be read the program that listens there.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, args := range [][]string{{"run", "-n", "1", "--grpc-port", port}, {"run", "-n", "1", "--port=" + port}} {
		var out bytes.Buffer
		code := run(args, testOutside(&out))
		flag, _, _ := strings.Cut(args[3], "=")
		want := " listens on port " + port + ", which " + flag + " names"
		if runtime.GOOS == "linux" {
			want = fmt.Sprintf(" (process %d)", os.Getpid()) + want
		}
		if exit.Code(code) != exit.Environment || !strings.Contains(out.String(), want) {
			t.Errorf("exit code %d; expected %q in:\n%s", code, want, &out)
		}
	}
}
