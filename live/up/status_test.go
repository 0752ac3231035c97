package up

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// written is an object of a status file.
type written struct {
	APIVersion, Kind string
	Status           struct {
		Conditions []struct{ Type, Status, Reason, LastTransitionTime string }
		Listeners  []struct{ AttachedRoutes int }
		Parents    []struct {
			ParentRef  struct{ Name, Namespace string }
			Conditions []struct{ Type, Status string }
		}
		AvailablePods, TotalPods, UnhealthyPods int
		Metrics                                 map[string]float64
	}
}

// The status of objects reports their real state: conditions and parents and, for document 003's pool, the state of its
// pods.
func TestStatus(t *testing.T) {
	t.Parallel()
	state := func(more string) *gateway.Set {
		return objectsOf(t, oneGateway()+
			strings.Replace(servers("one", 2, ""), `"--model"`, `"--time-to-first-token=50", "--model"`, 1)+
			leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "mine"})+`
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: mine}
spec: {modelName: one, selector: {matchLabels: {pool: one}}, targetPorts: [{number: 8000}]}
`+more)
	}
	r := bring(t, state(""))
	path := filepath.Join(t.TempDir(), "status.yaml")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.WriteStatus(ctx, path) }()
	read := func() map[string]written {
		out := map[string]written{}
		text, err := os.ReadFile(path)
		if err != nil {
			return out
		}
		for _, one := range strings.Split(string(text), "---\n") {
			var x struct {
				written
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(one), &x); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			out[x.Kind+" "+x.Metadata.Name] = x.written
		}
		return out
	}
	eventually.Is(t, "the pool to be ready", func() bool {
		x := read()["InferencePool mine"]
		return x.Status.TotalPods == 2 && x.Status.AvailablePods == 2 && len(x.Status.Conditions) == 1 &&
			x.Status.Conditions[0].Reason == "PodsReady"
	})
	all := read()
	if g := all["Gateway g"].Status; len(g.Listeners) != 1 || g.Listeners[0].AttachedRoutes != 1 ||
		len(g.Conditions) == 0 || g.Conditions[0].LastTransitionTime == "" {
		t.Errorf("Gateway: %+v", g)
	}
	for name, version := range map[string]string{"InferencePool mine": "serving.kserve.io/v1alpha1",
		"HTTPRoute r-v1": "gateway.networking.k8s.io/v1"} {
		x := all[name]
		if x.APIVersion != version || len(x.Status.Parents) != 1 || x.Status.Parents[0].ParentRef.Name != "g" ||
			len(x.Status.Parents[0].Conditions) != 2 {
			t.Errorf("%s: %+v", name, x)
		}
	}
	body := `{"model":"one","max_tokens":2,"messages":[{"role":"user","content":"` +
		strings.Repeat("the same question ", 40) + `"}]}`
	eventually.Is(t, "the pool's metrics to say what was asked", func() bool {
		if a := r.post(r.url(80)+"/v1/chat/completions", body); a.status != http.StatusOK {
			t.Fatalf("%d: %s", a.status, a.body)
		}
		m := read()["InferencePool mine"].Status.Metrics
		return m["averageCacheHitRate"] > 0 && m["requestsPerSecond"] > 0 && m["averageGPUUtilization"] > 0
	})
	// A pod that is nowhere is not well.
	if err := r.Apply(t.Context(),
		state(fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: gone, labels: {pool: one}}\nstatus: "+
			"{podIP: %s, conditions: [{type: Ready, status: \"True\"}]}\n", "127.99.99.99"))); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "a pod that does not answer to be counted", func() bool {
		x := read()["InferencePool mine"].Status
		return x.TotalPods == 3 && x.AvailablePods == 2 && x.UnhealthyPods == 1 && x.Conditions[0].Status == "False"
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := r.WriteStatus(t.Context(), filepath.Join(path, "below a file")); err == nil {
		t.Error("a file that cannot be written is no mistake")
	}
}

// Document 003's InferenceModel reports whether its workers have loaded it, its properties, and the number of workers.
func TestModelStatus(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t,
		strings.NewReplacer("modelName: m\n", "modelName: meta-llama/Llama-2-70b-hf\n", "modelId: m}",
			"modelId: meta-llama/Llama-2-70b-hf}", "disaggregation: {enabled: true}",
			"disaggregation: {enabled: false}", "max_num_seqs: 1", "tensor_parallel_size: 4").Replace(
			ofModel("{type: Disaggregated, prefillWorkers: {replicas: 2, labels: {llm-d.ai/role: prefill}}, "+
				"decodeWorkers: {replicas: 1, labels: {llm-d.ai/role: decode}}}"))))
	path := filepath.Join(t.TempDir(), "status.yaml")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.WriteStatus(ctx, path) }()
	want := []string{"loadingState: Loaded", "lastLoadTime: ", "architecture: LlamaForCausalLM",
		"numParameters: 69B", "numLayers: 80",
		"hiddenSize: 8192", "vocabSize: 32000", "prefillWorkersReady: 2", "decodeWorkersReady: 1", "totalPods: 3"}
	eventually.Is(t, "the model's status", func() bool {
		text, _ := os.ReadFile(path)
		for _, one := range strings.Split(string(text), "---\n") {
			if strings.Contains(one, "kind: InferenceModel\n") {
				return !slices.ContainsFunc(want, func(line string) bool { return !strings.Contains(one, line) })
			}
		}
		return false
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
