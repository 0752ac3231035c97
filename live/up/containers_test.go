package up

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	core "github.com/windtunnel/windtunnel/core/epp/predictor"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/sidecar"
)

// A Pod that no workload makes runs: its command line has variables that are not set, its flags and its chat template
// stand in a ConfigMap, with numbers as Helm writes them, and what of them has no effect is reported once.
func TestBarePod(t *testing.T) {
	t.Parallel()
	text := oneGateway() + leadTo("/v1", pool("a")) + strings.Split(servers("a", 1, ""), "---\napiVersion: apps")[0] + `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: sim}
data:
  config.yaml: |
    model: tiny
    port: 8000
    seed: 1.001001e+08
    max-model-len: 1.2288e+04
  chat.jinja: |
    {%- if messages[0].content != 'hi' %}{{ raise_exception('the template takes greetings') }}{% endif %}hi
---
apiVersion: v1
kind: Pod
metadata: {name: alone, labels: {pool: a, llm-d.ai/role: }}
spec:
  volumes: [{name: config, configMap: {name: sim}}]
  containers:
  - name: vllm
    image: ghcr.io/llm-d/llm-d-inference-sim:v0.10.2
    args: [--config=/config/config.yaml, "", --hash-salt=1, --chat-template=/config/chat.jinja]
    volumeMounts: [{name: config, mountPath: /config}]
`
	r := bring(t, objectsOf(t, text))
	a := r.post(r.url(80)+"/v1/chat/completions", fmt.Sprintf(ask, "tiny"), "Content-Type", "application/json")
	if a.status != http.StatusOK || a.head.Get("x-inference-pod") != "alone" {
		t.Errorf("%d from %q: %s", a.status, a.head.Get("x-inference-pod"), a.body)
	}
	a = r.post(r.url(80)+"/v1/chat/completions", `{"model":"tiny","messages":[{"role":"user","content":"bye"}]}`,
		"Content-Type", "application/json")
	if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "the template takes greetings") {
		t.Errorf("%d %s", a.status, a.body)
	}
	models := r.do(http.MethodGet, r.url(80)+"/v1/models", "")
	if !strings.Contains(string(models.body), `"max_model_len":12288`) {
		t.Errorf("%s", models.body)
	}
	const note = "given-a.yaml:36: Pod default/alone: container vllm: flags without effect: --hash-salt"
	if n := len(slices.DeleteFunc(slices.Clone(r.notes), func(s string) bool { return s != note })); n != 1 {
		t.Errorf("%d notes are %q:\n%s", n, note, strings.Join(r.notes, "\n"))
	}
}

// Empty arguments, as Helm's conditions leave them, do not reach the options of sidecars and pickers.
func TestEmptyArguments(t *testing.T) {
	t.Parallel()
	text := oneGateway() + leadTo("/v1", pool("a")) + servers("a", 1, "") + pickerWith("a", rendering, "")
	text = strings.Replace(text, "args: [--pool-name=a,", `args: ["", --pool-name=a, "", --v, "",`, 1)
	text += strings.Replace(decodeWorkers, "args: [-port=8000,", `args: ["", -port=8000, "",`, 1)
	got := map[string][]string{}
	_, err := Dry(objectsOf(t, text), Options{
		Sidecar: func(args []string, env func(string) (string, bool)) (sidecar.Options, error) {
			got["sidecar"] = args[:len(args)-1] // the file of endpoints follows
			return sidecarOf(args, env)
		},
		Picker: func(args []string, _ func(string) (string, bool)) (o epp.StandaloneOptions, err error) {
			got["picker"] = args
			return o, nil
		},
	})
	want := map[string][]string{"sidecar": {"-port=8000", "-vllm-port=8001"}, "picker": {"--pool-name=a", "--v", ""}}
	if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, got %q, expected %q", err, got, want)
	}
}

// Manifests without a Gateway, such as a simulator's alone, come up, and their pods are reached at their addresses.
func TestPodsWithoutGateway(t *testing.T) {
	t.Parallel()
	r := bring(t, objectsOf(t, servers("a", 1, "")))
	at := r.Addresses().Pods[0].Ports["8000"]
	if a := r.do(http.MethodGet, "http://"+at+"/health", ""); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	led := oneGateway() + servers("a", 1, "") + leadTo("/v1", pool("a"))
	if err := r.Apply(t.Context(), objectsOf(t, led)); err != nil {
		t.Fatal(err)
	}
	a := r.post(r.url(80)+"/v1/chat/completions", fmt.Sprintf(ask, "a"), "Content-Type", "application/json")
	if a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The two servers of llm-d's latency predictor beside a picker run in its pod, with the environment of their ConfigMap,
// and the picker trains them at localhost.
func TestLatencyPredictorBesideThePicker(t *testing.T) {
	t.Parallel()
	const containers = `
      - name: training-server
        image: ghcr.io/llm-d/llm-d-latency-predictor-training-server-dev:latest
        ports: [{containerPort: 8000}]
        envFrom: [{configMapRef: {name: training}}]
      - name: prediction-server-1
        image: ghcr.io/llm-d/llm-d-latency-predictor-prediction-server-dev:latest
        command: [uvicorn]
        args: ["llm_d_latency_predictor.prediction_server:app", --host, 0.0.0.0, --port, "8001"]
        env: [{name: OBJECTIVE, valueFrom: {configMapKeyRef: {name: training, key: LATENCY_OBJECTIVE_TYPE}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: training}
data: {LATENCY_OBJECTIVE_TYPE: quantile}
`
	const config = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: predicted-latency-producer, parameters: {streamingMode: true}}
- {type: latency-scorer}
- {type: max-score-picker}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: latency-scorer}, {pluginRef: max-score-picker}]}
`
	objective, closed, events := "", false, &kept{}
	t.Cleanup(func() {
		if !closed {
			t.Error("the library still runs")
		}
	})
	r := bringWith(t, Options{
		Objects: objectsOf(t, oneGateway()+servers("a", 1, "")+leadTo("/v1", pool("a"))+
			pickerWith("a", config, containers)),
		Picker: func([]string, func(string) (string, bool)) (o epp.StandaloneOptions, err error) {
			o.Predictor = &picker.PredictorService{Training: "http://localhost:8000",
				Prediction: []string{"http://localhost:8001"}, Poll: machine.Second}
			return o, nil
		},
		Predictor: func(env func(string) (string, bool)) (core.Options, error) {
			objective, _ = env("LATENCY_OBJECTIVE_TYPE")
			o := core.DefaultOptions()
			o.Interval, o.MinSamples = 10*machine.Millisecond, 1
			return o, nil
		},
		Trainer: func(context.Context) (cluster.Fitter, func()) {
			return func(_ context.Context, f core.Fit) core.Fitted {
				return core.Fitted{Number: f.Number, Err: errors.New("no library")}
			}, func() { closed = true }
		},
		Recorder: events,
	})
	if objective != "quantile" {
		t.Errorf("the training server's objective is %q", objective)
	}
	eventually.Is(t, "the training server gets samples", func() bool {
		a := r.post(r.url(80)+"/v1/chat/completions", `{"model":"a","max_tokens":4,"stream":true,"messages":`+
			`[{"role":"user","content":"hi"}]}`, "Content-Type", "application/json")
		if a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		st := r.pods["Deployment/default/epp-a/0"].Predictor.Status()
		return st.Train[0]+st.Test[0] > 0
	})
	eventually.Is(t, "the record has a training", func() bool {
		events.mu.Lock()
		defer events.mu.Unlock()
		return slices.ContainsFunc(events.events,
			func(e record.Event) bool { return e.Step == record.PredictorTrained })
	})
}
