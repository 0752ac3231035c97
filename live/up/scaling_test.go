package up

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/internal/eventually"
)

// scaler is a ScaledObject of a Deployment, with short windows.
func scaler(name, least, most string) string {
	return fmt.Sprintf(`
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: %[1]s-scaler}
spec:
  scaleTargetRef: {name: %[1]s}
  minReplicaCount: %[2]s
  maxReplicaCount: %[3]s
  pollingInterval: 1
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 4, periodSeconds: 1}]}
        scaleDown: {stabilizationWindowSeconds: 4, policies: [{type: Pods, value: 4, periodSeconds: 1}]}
  triggers:
  - {type: prometheus, metadata: {serverAddress: http://prometheus, query: "one:asked", threshold: "2"}}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: rules}
spec: {groups: [{name: g, rules: [{record: "one:asked", expr: sum(vllm:num_requests_running) + sum(vllm:num_requests_waiting)}]}]}
`, name, least, most)
}

// quick has an autoscaler look ten times a second.
var quick = Scaling{Startup: new(dist.Fixed(100 * machine.Millisecond)), Scrape: 100 * machine.Millisecond,
	Sync: 100 * machine.Millisecond}

// asks makes clients ask for a model, each one request after another, until calm. No request may fail.
func (r *rig) asks(model string) (load func(clients int), calm func()) {
	at := r.url(80) + "/v1/chat/completions"
	var done atomic.Bool
	var asking sync.WaitGroup
	one := func() {
		client := http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		for !done.Load() {
			resp, err := client.Post(at, "application/json",
				strings.NewReader(fmt.Sprintf(
					`{"model":%q,"max_tokens":20,"messages":[{"role":"user","content":"hi"}]}`, model)))
			if err != nil {
				r.t.Error(err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				r.t.Errorf("status %d: %s (%v)", resp.StatusCode, body, err)
				return
			}
		}
	}
	load = func(clients int) {
		done.Store(false)
		for range clients {
			asking.Go(one)
		}
	}
	calm = func() {
		done.Store(true)
		asking.Wait()
	}
	r.t.Cleanup(calm)
	return load, calm
}

// A ScaledObject has a Deployment's pods become more under load and fewer without, and no request
// fails. An edit of the Deployment's replicas leaves those that the autoscaler wants; another maximum
// counts at once; without the ScaledObject the Deployment's own number counts again. Nothing else
// plays meanwhile: what an autoscaler sees of requests depends on how long they are on their way.
func TestScaledObject(t *testing.T) {
	manifests := func(replicas int, more string) string {
		return oneGateway() + strings.Replace(servers("a", replicas, ""), `"--model", "a"`,
			`"--model", "a", "--inter-token-latency=100"`, 1) + leadTo("/v1", pool("a")) + more
	}
	var mu sync.Mutex
	var said []string
	file := filepath.Join(t.TempDir(), "status.yaml")
	r := bringWith(t, Options{Objects: objectsOf(t, manifests(1, scaler("a", "1", "3"))), Scaling: quick,
		Report: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, text)
		}})
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := r.WriteStatus(t.Context(), file); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(writing.Wait)
	pods := func() int { return len(r.Addresses().Pods) }
	load, calm := r.asks("a")
	load(12)
	eventually.Is(t, "three pods", func() bool { return pods() == 3 })
	if err := r.Apply(t.Context(), objectsOf(t, manifests(2, scaler("a", "1", "3")))); err != nil {
		t.Fatal(err)
	}
	if n := pods(); n != 3 {
		t.Errorf("after an edit of replicas there are %d pods; expected the 3 of the autoscaler", n)
	}
	if err := r.Apply(t.Context(), objectsOf(t, manifests(2, scaler("a", "1", "4")))); err != nil {
		t.Fatal(err)
	}
	eventually.Is(t, "a fourth pod, of another maximum", func() bool { return pods() == 4 })
	eventually.Is(t, "the status file says it", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "readyReplicas: 4") &&
			strings.Contains(string(text), "name: keda-hpa-a-scaler") &&
			strings.Contains(string(text), "desiredReplicas: 4")
	})
	calm()
	load(1) // a client continues to ask while pods leave
	eventually.Is(t, "one pod", func() bool { return pods() == 1 })
	if list := r.Addresses().Scaled; len(list) != 1 || list[0].Min != 1 || list[0].Max != 4 ||
		list[0].By != "ScaledObject a-scaler" || list[0].Ready != 1 {
		t.Errorf("scaled: %+v", list)
	}
	if err := r.Apply(t.Context(), objectsOf(t, manifests(2, ""))); err != nil {
		t.Fatal(err)
	}
	if list := r.Addresses(); len(list.Pods) != 2 || list.Scaled != nil {
		t.Errorf("without the ScaledObject: %+v", list)
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(said, "\n")
	for _, want := range []string{"Deployment default/a: ScaledObject a-scaler scales it from 1 to ",
		"Deployment default/a: ready replicas: 3", "Deployment default/a: ready replicas: 1"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// ofModel is document 003's pool with an autoscaler, and its model.
func ofModel(deployment string) string {
	return oneGateway() + leadTo("/v1", dict{"group": "serving.kserve.io", "kind": "InferencePool", "name": "p"}) + `
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferencePool
metadata: {name: p}
spec:
  modelName: m
  selector: {matchLabels: {model: m}}
  disaggregation: {enabled: true}
  autoscaling: {minReplicas: 1, maxReplicas: 3, targetMetrics: [{type: QueueLength, target: 1}, {type: Happiness, target: 1}]}
---
apiVersion: serving.kserve.io/v1alpha1
kind: InferenceModel
metadata: {name: m}
spec: {modelSource: {huggingFace: {modelId: m}}, runtime: {name: vllm, config: {max_num_seqs: 1}}, deployment: ` + deployment + `}
`
}

// The autoscaling of document 003's InferencePool adds pods to its InferenceModel. The notes name metrics that
// nothing reports.
func TestPoolScalesItsModel(t *testing.T) {
	t.Parallel()
	r := bringWith(t, Options{Scaling: quick, Objects: objectsOf(t, ofModel("{replicas: 1}"))})
	load, _ := r.asks("m")
	load(12)
	eventually.Is(t, "three pods", func() bool { return len(r.Addresses().Pods) == 3 })
	if list := r.Addresses().Scaled; len(list) != 1 || list[0].Kind != "InferenceModel" ||
		list[0].By != "InferencePool p" || list[0].Max != 3 {
		t.Errorf("scaled: %+v", list)
	}
	if notes := strings.Join(r.notes, "\n"); !strings.Contains(notes, "nothing here reports Happiness") ||
		strings.Contains(notes, "autoscaling") && !strings.Contains(notes, "targetMetrics") {
		t.Errorf("notes:\n%s", notes)
	}
}

// A plan says what scales what: where some only prefill, a pool's autoscaling is of the others; one of
// several Deployments it cannot choose, and what has a ScaledObject has no second one.
func TestScalingPlan(t *testing.T) {
	t.Parallel()
	several := ofModel("{replicas: 1}") +
		strings.NewReplacer("{labels: {pool: a}}", "{labels: {pool: a, model: m}}", "{labels: {pool: b}}",
			"{labels: {pool: b, model: m}}").Replace(servers("a", 1, "")+servers("b", 1, ""))
	other, _, _ := strings.Cut(strings.Replace(scaler("a", "1", "3"), "a-scaler", "other", 1),
		"---\napiVersion: monitoring")
	for _, c := range []struct{ name, text, plan, note string }{
		{"prefill apart", ofModel(
			"{type: Disaggregated, prefillWorkers: {replicas: 2, labels: {llm-d.ai/role: prefill}}, decodeWorkers: " +
				"{replicas: 1, labels: {llm-d.ai/role: decode}}}"), "m-decode", "nothing here reports Happiness"},
		{"several", several, "",
			"InferencePool default/p: autoscaling has no effect: the pool's pods are of 2 workloads; expected one"},
		{"a second ScaledObject",
			oneGateway() + leadTo("/v1", pool("a")) + servers("a", 1, "") + scaler("a", "1", "2") + other, "/a:",
			"ScaledObject default/other: no effect: ScaledObject a-scaler scales Deployment a already"},
	} {
		s := objectsOf(t, c.text)
		p, err := Dry(s, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if notes := strings.Join(p.Program.Notes, "\n"); !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes:\n%s\nexpected %s", c.name, notes, c.note)
		}
		var scaled []string
		for _, x := range p.Taken() {
			if strings.Contains(x, ", then ") {
				scaled = append(scaled, x)
			}
		}
		if all := strings.Join(scaled, "\n"); (c.plan == "") != (all == "") || !strings.Contains(all, c.plan) ||
			len(scaled) > 1 {
			t.Errorf("%s: %q is scaled; expected %q", c.name, all, c.plan)
		}
	}
}

// A wrong ScaledObject is reported with its file and line, before anything starts and in an edit.
func TestBadScaledObject(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, oneGateway()+servers("a", 2, "")+leadTo("/v1", pool("a"))+scaler("a", "1", "2")))
	for _, c := range []struct{ name, text, want string }{
		{"a query that is none",
			strings.Replace(scaler("a", "1", "3"), `"one:asked", threshold`, `"sum(", threshold`, 1),
			"given-a.yaml:LINE:"},
		{"a maximum that is too high", scaler("a", "1", "5000"), "maxReplicas 5000; expected up to 2048"},
	} {
		all := oneGateway() + servers("a", 1, "") + leadTo("/v1", pool("a")) + c.text
		want := c.want
		for i, line := range strings.Split(all, "\n") {
			if strings.Contains(line, "sum(\"") {
				want = strings.Replace(want, "LINE", fmt.Sprint(i+1), 1)
			}
		}
		if _, err := Dry(objectsOf(t, all), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; expected %q", c.name, err, want)
		}
		if err := r.Apply(t.Context(), objectsOf(t, all)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, in an edit: %v; expected %q", c.name, err, want)
		}
		if list := r.Addresses(); len(list.Scaled) != 1 || list.Scaled[0].Max != 2 || len(list.Pods) != 2 {
			t.Errorf("%s: what was in force does not stay: %+v", c.name, list)
		}
	}
}
