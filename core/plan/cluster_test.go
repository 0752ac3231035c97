package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/plan"
)

const manifests = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: g}
spec: {gatewayClassName: any, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: g}]
  rules: [{backendRefs: [{group: inference.networking.k8s.io, kind: InferencePool, name: p}]}]
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: p}
spec: {selector: {matchLabels: {pool: p}}, targetPorts: [{number: 8000}], endpointPickerRef: {name: epp, port: {number: 9002}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: m}
spec:
  replicas: 2
  selector: {matchLabels: {pool: p}}
  template:
    metadata: {labels: {pool: p}}
    spec: {containers: [{name: vllm, image: vllm/vllm-openai, args: [--model=m]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: epp}
spec:
  replicas: 1
  selector: {matchLabels: {app: epp}}
  template:
    metadata: {labels: {app: epp}}
    spec: {containers: [{name: epp, image: epp, args: [--pool-name=p, '--config-text=plugins: [{type: random-picker}]']}]}
---
apiVersion: v1
kind: Service
metadata: {name: epp}
spec: {selector: {app: epp}, ports: [{port: 9002}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: bbr}
spec:
  replicas: 1
  selector: {matchLabels: {app: bbr}}
  template:
    metadata: {labels: {app: bbr}}
    spec: {containers: [{name: bbr, image: bbr}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec:
  replicas: 1
  selector: {matchLabels: {app: other}}
  template:
    metadata: {labels: {app: other}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 80}, {containerPort: 81}]}]}
`

func compiled(t *testing.T, text string, o plan.Options) *plan.Cluster {
	t.Helper()
	s := &gateway.Set{}
	if err := s.Add("m.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	o.Supply = true
	c := plan.Compile(s, o)
	if c.Program.Mistakes != nil {
		t.Fatal(c.Program.Mistakes)
	}
	return c
}

// changes returns what becomes of all processes, but for those that are kept.
func changes[P interface {
	Key() string
	Runs(running P) bool
}](running, now []P) (out []string, kept int) {
	d := plan.Diff(running, now)
	for _, p := range d.Start {
		out = append(out, "start "+p.Key())
	}
	for _, p := range d.Stop {
		out = append(out, "stop "+p.Key())
	}
	return out, len(d.Keep)
}

// An edit of manifests starts and stops the processes that it changes, and keeps all others.
func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name    string
		edit    []string // old and new texts
		changes []string
		kept    int
	}{
		{"nothing", nil, nil, 5},
		{"a comment above moves every line", []string{"\napiVersion: g", "\n# comment\napiVersion: g"}, nil, 5},
		{"labels of pods", []string{"labels: {pool: p}", "labels: {pool: p, zone: a}"}, nil, 5},
		{"one more pod", []string{"replicas: 2", "replicas: 3"}, []string{"start Deployment/default/m/2"}, 5},
		{"one pod less", []string{"replicas: 2", "replicas: 1"}, []string{"stop Deployment/default/m/1"}, 4},
		{"another command line", []string{"--model=m", "--model=n"}, []string{"start Deployment/default/m/0",
			"start Deployment/default/m/1", "stop Deployment/default/m/0", "stop Deployment/default/m/1"}, 3},
		{"another name", []string{"{name: m}", "{name: k}"}, []string{"start Deployment/default/k/0",
			"start Deployment/default/k/1", "stop Deployment/default/m/0", "stop Deployment/default/m/1"}, 3},
		{"a stand-in that becomes a model server", []string{"image: web", "image: vllm"},
			[]string{"start Deployment/default/other/0", "stop Deployment/default/other/0"}, 4},
		{"no stand-in", []string{"{name: other}\nspec:\n  replicas: 1", "{name: other}\nspec:\n  replicas: 0"},
			[]string{"stop Deployment/default/other/0"}, 4},
		{"another picker's flags", []string{"[--pool-name=p,", "[--pool-name=p, --hold,"},
			[]string{"start pool/default/p/0", "stop pool/default/p/0"}, 4},
		{"a limit for clients", []string{"rules: [{", "rules: [{timeouts: {request: 10s}, "},
			[]string{"start pool/default/p/0", "stop pool/default/p/0"}, 4},
		{"a second picker", []string{"{name: epp}\nspec:\n  replicas: 1", "{name: epp}\nspec:\n  replicas: 2"},
			[]string{"start pool/default/p/1"}, 5},
		{"a second router", []string{"{name: bbr}\nspec:\n  replicas: 1", "{name: bbr}\nspec:\n  replicas: 2"},
			[]string{"start router/default/bbr/1"}, 5},
		{"no router", []string{"image: bbr", "image: other", "{name: bbr, ", "{name: x, "},
			[]string{"start Deployment/default/bbr/0", "stop router/default/bbr/0"}, 4},
	} {
		was := compiled(t, manifests, plan.Options{})
		now := compiled(t, strings.NewReplacer(c.edit...).Replace(manifests), plan.Options{})
		pods, a := changes(was.Pods, now.Pods)
		pickers, b := changes(was.Pickers, now.Pickers)
		routers, d := changes(was.Routers, now.Routers)
		if got := slices.Concat(pods, pickers, routers); !slices.Equal(got, c.changes) || a+b+d != c.kept {
			t.Errorf("%s: %v, %d kept; expected %v, %d kept", c.name, got, a+b+d, c.changes, c.kept)
		}
	}
}

// A kept picker takes over its new configuration.
func TestDiffOfPickersConfiguration(t *testing.T) {
	was := compiled(t, manifests, plan.Options{})
	now := compiled(t, manifests+`---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {epp.yaml: "kind: EndpointPickerConfig\nplugins: [{type: max-score-picker}]"}
`, plan.Options{})
	if d := plan.Diff(was.Pickers, now.Pickers); len(d.Keep) != 1 || d.Keep[0].PoolPicker != now.Pools[0] {
		t.Errorf("%+v; expected the picker with its new values", d)
	}
}

// A pod that runs is kept where it listens on all ports and sends its events where they are to arrive.
func TestDiffOfRunningPods(t *testing.T) {
	at := func(events string, ports ...int) []plan.Pod {
		p := compiled(t, manifests, plan.Options{}).Pods[0]
		p.Events, p.Ports = events, ports
		return []plan.Pod{p}
	}
	for _, c := range []struct {
		was, now []plan.Pod
		keep     int
	}{
		{at("", 8000), at(""), 1},
		{at("", 8000, 9000), at("", 9000), 1},
		{at("", 8000), at("", 9000), 0},
		{at("tcp://127.0.0.1:1"), at("tcp://127.0.0.1:1"), 1},
		{at("tcp://127.0.0.1:1"), at("tcp://127.0.0.1:2"), 0},
	} {
		if d := plan.Diff(c.was, c.now); len(d.Keep) != c.keep || len(d.Start) != 1-c.keep || len(d.Stop) != 1-c.keep {
			t.Errorf("%v to %v: %+v", c.was[0].Ports, c.now[0].Ports, d)
		}
	}
}

// What the objects run has its roles, ports, numbers and configurations decided.
func TestCompile(t *testing.T) {
	scraping := strings.Replace(manifests, "plugins: [{type: random-picker}]", `{"profiles": [{"name": "default", `+
		`"plugins": {"score": {"enabled": [{"name": "LoadAwareScorer"}]}, `+
		`"scrape": {"enabled": [{"name": "GenericPrometheusScraper"}]}}}], "pluginConfig": [{"name": `+
		`"GenericPrometheusScraper", "args": {"endpoint": "/m", "port": 9400, "metrics": ["x"]}}]}`, 1) + `---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: h}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: m}
  minReplicas: 1
  maxReplicas: 5
  metrics: [{type: External, external: {metric: {name: llm_d_epp_queue_size}, target: {type: AverageValue, averageValue: "1"}}}]
`
	c := compiled(t, scraping,
		plan.Options{OwnAddresses: true, Ready: map[string][]int{"Deployment/default/m": {1, 4}}})
	var got []string
	for _, p := range c.Pods {
		got = append(got, fmt.Sprint(p.Name(), " ", p.Role, " ", p.Ports))
	}
	for _, p := range c.Pickers {
		got = append(got, fmt.Sprint(p.Name(), " ", p.Replicas, " ", p.Asked, " ", p.ClientLimits()))
	}
	want := []string{"m-1 model server [9400]", "m-4 model server [9400]", "other-0 other [80 81]",
		`epp-0 1 1 {"maxTimeout": "0s", "maxRetries": 0}`}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if x := c.Scaled["Deployment/default/m"]; x == nil || x.Config.Max != 5 || x.Config.Name != "m" {
		t.Errorf("the Deployment's rule is %+v", x)
	}
}

// A pod runs its main container and its render servers, and all containers of a latency predictor as one program.
func TestPrograms(t *testing.T) {
	c := compiled(t, `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - {name: sidecar, image: llm-d-routing-sidecar}
  - {name: second, image: llm-d-latency-predictor-prediction-server, args: [--port, "8005"]}
  - {name: render, image: vllm/vllm-openai, args: [launch, render, m]}
  - {name: vllm, image: vllm/vllm-openai, args: [--model=m]}
  - {name: another, image: vllm/vllm-openai, args: [--model=m]}
  - {name: train, image: llm-d-latency-predictor-training-server, ports: [{containerPort: 8010}]}
  - {name: third, image: llm-d-latency-predictor-prediction-server}
`, plan.Options{})
	var got []string
	for _, x := range c.Pods[0].Programs {
		got = append(got, fmt.Sprint(x.Container.Name, " ", x.Role, " ", x.Ports))
	}
	want := []string{"render render server []", "vllm model server []",
		"train latency predictor's prediction server [8010 8005 8001]",
		"sidecar routing sidecar []"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
