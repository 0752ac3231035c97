package parity

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// clustered is a run in a cluster: a pool of two target ports, a pod with a finalizer and one without.
const clustered = `{"id": "made-up", "topic": "pool", "config": null,
	"endpoints": [{"name": "w1", "address": "127.0.0.1", "port": "8000"}, {"name": "w2", "address": "127.0.0.2", "port": "8000"}],
	"objects": {
		"InferencePool/sim-pool": "{apiVersion: inference.networking.k8s.io/v1, kind: InferencePool, metadata: {name: sim-pool}, spec: {selector: {matchLabels: {app: sim}}, targetPorts: [{number: 8000}, {number: 8001}]}}",
		"Pod/w1": "POD1", "Pod/w2": "POD2"},
	"steps": [STEPS]}`

const (
	probeAll = `{"probes": "p", "runs": [{"answer": "candidates 127.0.0.1:8000 127.0.0.1:8001 127.0.0.2:8000 ` +
		`127.0.0.2:8001"}]}`
	probeW2    = `{"probes": "p", "runs": [{"answer": "candidates 127.0.0.2:8000 127.0.0.2:8001"}]}`
	deleteW1   = `{"kube_delete": {"kind": "Pod", "name": "w1"}, "code": 200}`
	finalizeW1 = `{"kube_patch": {"kind": "Pod", "name": "w1", "merge_patch": {"metadata": {"finalizers": null}}}}`
	weightZero = `"kube_create": "{apiVersion: llm-d.ai/v1alpha2, kind: InferenceModelRewrite, metadata: {name: r}, ` +
		`spec: {poolRef: {name: sim-pool}, rules: [{targets: [{modelRewrite: m, weight: 0}]}]}}"`
	nothing = `{"kube_delete": {"kind": "Pod", "name": "nobody"}, "code": 404}`
)

func podOf(n, meta string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {name: w` + n + `, labels: {app: sim}` + meta +
		`}, status: {podIP: 127.0.0.` + n + `, conditions: [{type: Ready, status: 'True'}]}}`
}

// The player does what a cluster does: a pod with finalizers is terminating until they are gone, a refused change
// changes nothing, a pool may have several ports. A recording that cannot be played is a fault, and so is a different
// answer.
func TestPlayer(t *testing.T) {
	createW1 := `{"kube_create": "` + podOf("1", "") + `"}`
	conflict := `{"kube_create": "` + podOf("1", "") + `", "refused": [409, "AlreadyExists"]}`
	for name, test := range map[string]struct {
		steps, flags, fault string
	}{
		"ports": {steps: probeAll},
		"finalizer": {steps: probeAll + "," + deleteW1 + "," + probeW2 + "," + conflict + "," + finalizeW1 +
			"," + createW1 + "," + probeAll},
		"refused":            {steps: `{` + weightZero + `, "refused": [422, "Invalid"]},` + probeAll + "," + nothing},
		"refused here alone": {steps: `{` + weightZero + `}`, fault: "objects refused"},
		"taken here alone":   {steps: deleteW1 + "," + finalizeW1 + "," + conflict, fault: "objects refused"},
		"other candidates":   {steps: deleteW1 + "," + probeAll, fault: "p probe"},
		"unknown step":       {steps: `{"dance": true}`, fault: "recording unknown,step unknown"},
		"unknown flag":       {steps: probeAll, flags: `"--dance"`, fault: "start flag"},
		"selector": {steps: `{"probes": "p", "runs": [{"answer": "candidates 127.0.0.1:8002 127.0.0.1:8003 ` +
			`127.0.0.2:8002 127.0.0.2:8003"}]}`,
			flags: `"--endpoint-selector", "app=sim", "--endpoint-target-ports=8002,8003"`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.NewReplacer("STEPS", test.steps, "POD1", podOf("1", ", finalizers: [a/b]"), "POD2",
				podOf("2", ""),
				`"config"`, `"flags": [`+test.flags+`], "config"`).Replace(clustered)
			l, err := readLine([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			var faults []string
			for _, f := range Play(l) {
				faults = append(faults, f.Unit+" "+f.Field)
			}
			if got := strings.Join(faults, ","); got != test.fault {
				t.Errorf("faults %q, expected %q: %v", got, test.fault, Play(l))
			}
		})
	}
}

// With the flag that ignores the data plane's subset, all endpoints are candidates.
func TestPlayerWithoutSubsets(t *testing.T) {
	list, err := Load(os.DirFS("testdata"), "subset-hint.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	l := list[0]
	if faults := Play(&l); len(faults) > 0 {
		t.Fatal(faults)
	}
	l.Flags = append(slices.Clone(l.Flags), "--disable-endpoint-subset-filter=true")
	all := 0
	for _, f := range Play(&l) {
		if f.Field == "candidates" {
			all++
		}
	}
	if all == 0 {
		t.Error("a subset counts, in spite of the flag")
	}
}
