package up

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// decodeWorkers are document 003's decode workers behind their sidecars, in a pool that probes them.
const decodeWorkers = `
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: one}
spec:
  modelName: m
  selector: {matchLabels: {app: one}}
  healthCheck: {enabled: true, endpoint: /health, interval: 100ms, timeout: 5s, unhealthyThreshold: 1, healthyThreshold: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec:
  replicas: 2
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec:
      containers:
      - {name: vllm, image: ghcr.io/llm-d/llm-d:0.0.8, args: [--model=m, --port=8001], ports: [{containerPort: 8001}]}
      - {name: routing-sidecar, image: quay.io/llm-d/llm-d-routing-sidecar:0.3, args: [-port=8000, -vllm-port=8001], ports: [{containerPort: 8000}]}
`

func sidecarOf([]string, func(string) (string, bool)) (sidecar.Options, error) {
	return sidecar.Options{Listen: "0.0.0.0:8000", Decoder: "127.0.0.1:8001"}, nil
}

// candidates are the endpoints that a pool's picker may choose.
func (r *rig) candidates(pool string) (out []string) {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.pickers["pool/"+pool+"/0"].server.Picking().With(func(m *core.Machine, _ machine.Time) {
		view := m.Picker().Pool().View()
		for i := range view.States {
			out = append(out, view.States[i].HostPort())
		}
	})
	return out
}

// A worker whose engine has died is no candidate of the picker, though its sidecar lives, until the
// engine is back.
func TestCrashedWorkerIsNoCandidate(t *testing.T) {
	t.Parallel()
	r := bringWith(t, Options{
		Objects: objectsOf(t, oneGateway()+decodeWorkers+
			leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "one"})),
		Sidecar: sidecarOf})
	pod := r.Addresses().Pods[0]
	engine := func(op string) {
		t.Helper()
		if a := r.do(http.MethodPost, "http://"+pod.Ports["8001"]+"/admin/"+op, ""); a.status != http.StatusOK {
			t.Fatalf("%s: %d %s", op, a.status, a.body)
		}
	}
	is := func(n int) func() bool {
		return func() bool { return len(r.candidates("default/one")) == n }
	}
	eventually.Is(t, "both workers to be candidates", is(2))
	engine("crash")
	eventually.Is(t, "the crashed worker to leave", is(1))
	if left := r.candidates("default/one"); left[0] == pod.Sidecar {
		t.Errorf("candidates %v, and %s has crashed", left, pod.Sidecar)
	}
	for n := range 5 {
		if a := r.post(r.url(80)+"/v1/completions", fmt.Sprintf(`{"model":"m","prompt":"%d","max_tokens":1}`, n),
			"Content-Type", "application/json"); a.status != http.StatusOK {
			t.Errorf("%d: %s", a.status, a.body)
		}
	}
	engine("restart")
	eventually.Is(t, "the worker to be back", is(2))
}

// kept keeps the events of a run.
type kept struct {
	mu     sync.Mutex
	events []record.Event
}

func (k *kept) Record(e record.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, e)
}

// Sidecars time their events from the beginning of the run, as all parts do, and not from their own start.
func TestSidecarsShareTheClock(t *testing.T) {
	t.Parallel()
	events := &kept{}
	r := bringWith(t, Options{
		Objects: objectsOf(t, oneGateway()+decodeWorkers+
			leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "one"})),
		Sidecar: sidecarOf, Recorder: events, Origin: time.Now().Add(-time.Hour)})
	if a := r.post(r.url(80)+"/v1/completions", `{"model":"m","prompt":"hi","max_tokens":1}`, "Content-Type",
		"application/json"); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	events.mu.Lock()
	defer events.mu.Unlock()
	sidecars := 0
	for _, e := range events.events {
		if e.Time < machine.FromDuration(time.Hour) {
			t.Errorf("%s %s at %v, expected an hour or more after the run's beginning", e.Hop, e.Step,
				e.Time.Duration())
		}
		if e.Hop == record.Sidecar {
			sidecars++
		}
	}
	if sidecars == 0 {
		t.Errorf("no sidecar recorded anything among %d events", len(events.events))
	}
}

// An edit lists the mistakes of every container that it starts, and reads no container of a pod that stays.
func TestEditReadsWhatItStarts(t *testing.T) {
	t.Parallel()
	pods, reads := oneGateway()+decodeWorkers+
		leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "one"}), 0
	r := bringWith(t, Options{Objects: objectsOf(t, pods),
		Sidecar: func(args []string, env func(string) (string, bool)) (sidecar.Options, error) {
			reads++
			return sidecarOf(args, env)
		}})
	if reads != 2 {
		t.Errorf("the start of 2 pods read %d sidecars", reads)
	}
	before := r.Addresses().Pods
	if err := r.Apply(t.Context(), objectsOf(t, pods+servers("a", 1, ""))); err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(decodeWorkers, "--port=8001]", "--port=none]", 1)
	bad = strings.ReplaceAll(strings.ReplaceAll(bad, "name: one", "name: two"), "app: one", "app: two")
	wrong := strings.Replace(servers("b", 1, ""), "args: [", "args: [--max-num-seqs=many, ", 1)
	err := r.Apply(t.Context(), objectsOf(t, pods+bad+wrong))
	for _, want := range []string{"container vllm: --port", "--max-num-seqs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; expected %q in it", err, want)
		}
	}
	if after := r.Addresses().Pods; reads != 2 || len(after) != 3 ||
		!slices.ContainsFunc(after, func(p PodAddress) bool { return p.Sidecar == before[0].Sidecar }) {
		t.Errorf("edits read %d sidecars of pods that stay: %v, then %v", reads-2, before, after)
	}
}

// A model server without a sidecar answers where the pool's scraper asks it, as in live and virtual runs
// of scenarios.
func TestScraperFindsEveryWorker(t *testing.T) {
	t.Parallel()
	const config = `{"profiles":[{"name":"default","plugins":{"score":{"enabled":[{"name":"LoadAwareScorer",` +
		`"weight":30}]},"scrape":{"enabled":[{"name":"VLLMMetricScraper","interval":"50ms"}]}}}],` +
		`"pluginConfig":[{"name":"VLLMMetricScraper","args":{"endpoint":"/metrics","port":8001}}]}`
	text := strings.Replace(pickerOf("one", 1, ""), "--pool-name=one",
		fmt.Sprintf("--pool-name=one, --config-text, '%s'", config), 1)
	r := bring(t, objectsOf(t, oneGateway()+servers("one", 2, "")+text+leadTo("/v1", pool("one"))))
	if !r.addresses.Own() {
		t.Skip("this machine has one loopback address: pods share it")
	}
	eventually.Is(t, "the metrics of both workers", func() bool {
		known := 0
		r.applying.Lock()
		defer r.applying.Unlock()
		r.pickers["pool/default/one/0"].server.Picking().With(func(m *core.Machine, _ machine.Time) {
			view := m.Picker().Pool().View()
			for i := range view.States {
				if view.States[i].UpdatedAt > 0 {
					known++
				}
			}
		})
		return known == 2
	})
	for _, p := range r.Addresses().Pods {
		if host, port, err := net.SplitHostPort(p.Ports["8000"]); err != nil || port != "8000" {
			t.Errorf("pod %s: its own port is %s:%s", p.Name, host, port)
		}
	}
	if err := r.Apply(t.Context(), r.applied.Objects); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Addresses().Pods); n != 2 {
		t.Errorf("%d pods", n)
	}
}

// Workers that do not fit into their memory are restarted again and again and are no endpoints, while
// the others serve.
func TestKilledWorkersWhileOthersServe(t *testing.T) {
	t.Parallel()
	killed := strings.NewReplacer("name: one", "name: big", `args: ["--model", "one"]`,
		`args: ["--model", "meta-llama/Llama-2-70b-hf", "--served-model-name", "one"]`,
		"llm-d-inference-sim", "llm-d").Replace(strings.SplitN(servers("one", 2, ""), "---\n", 3)[2])
	r := bring(t, objectsOf(t, oneGateway()+servers("one", 1, "")+"---\n"+killed+leadTo("/v1", pool("one"))))
	if n := len(r.Addresses().Pods); n != 3 {
		t.Fatalf("%d pods, expected 3", n)
	}
	if all := r.candidates("default/one"); len(all) != 1 {
		t.Errorf("candidates %v, expected the one that fits", all)
	}
	for range 5 {
		if a := r.post(r.url(80)+"/v1/chat/completions", fmt.Sprintf(ask, "one"), "Content-Type",
			"application/json"); a.status != http.StatusOK {
			t.Errorf("%d: %s", a.status, a.body)
		}
	}
	if text := strings.Join(r.notes, "\n"); !strings.Contains(text, "OOMKilled, again and again") ||
		!strings.Contains(text, "use --tensor-parallel-size 2") {
		t.Errorf("notes: %s", text)
	}
	for _, p := range r.Addresses().Pods {
		a := r.do(http.MethodGet, "http://"+p.Ports["8000"]+"/health", "")
		if big := strings.HasPrefix(p.Name, "big"); (a.status == http.StatusServiceUnavailable) != big {
			t.Errorf("pod %s: %d %s", p.Name, a.status, a.body)
		}
	}
}

// A picker has its endpoints from the moment at which it takes another configuration over.
func TestNewConfigurationHasTheEndpoints(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+servers("one", 2, "")+leadTo("/v1", pool("one"))))
	before := r.candidates("default/one")
	r.applying.Lock()
	other := *r.applied.Pools[0]
	other.Config = []byte("plugins: [{type: round-robin-picker}]")
	err := r.pickers["pool/default/one/0"].configure(&other)
	r.applying.Unlock()
	if after := r.candidates("default/one"); err != nil || len(before) != 2 || !slices.Equal(after, before) {
		t.Errorf("%v: candidates %v after %v", err, after, before)
	}
}
