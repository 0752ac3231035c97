package autoscaler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/deployment"
	"github.com/windtunnel/windtunnel/core/machine"
)

// player plays a Machine whose decisions are carried out at once, but for pods that take their
// time to be ready.
type player struct {
	t       *testing.T
	m       *Machine
	fx      machine.Effects[Effect]
	status  deployment.Status
	startup machine.Time
	due     []machine.Time // of pods that start
	load    map[string]float64
	failed  bool
	said    []string
}

func play(t *testing.T, manifest string, replicas int) *player {
	t.Helper()
	x, err := ReadManifest("so.yaml", []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	c := x.Config
	c.Name, c.Scrape, c.Sync = "x", DefaultScrape, DefaultSync
	p := &player{t: t, status: deployment.Status{Wanted: replicas, Replicas: replicas, Ready: replicas}, load: map[string]float64{}, startup: 120 * machine.Second}
	p.m = New(c, p.status)
	return p
}

// until plays up to a time in seconds, and returns what was decided since.
func (p *player) until(seconds int) string {
	p.said = nil
	for {
		at, _ := p.m.Next()
		for len(p.due) > 0 && p.due[0] <= at {
			p.due = p.due[1:]
			if p.status.Ready < p.status.Replicas {
				p.status.Ready++
			}
			p.m.Input(at-1, Status(p.status), &p.fx)
		}
		if at > machine.Time(seconds)*machine.Second {
			return strings.Join(p.said, ", ")
		}
		p.m.Advance(at, &p.fx)
		for i := 0; i < len(p.fx.List); i++ {
			e := p.fx.List[i]
			if e.Kind == Scrape {
				s := Scraped{Target: "epp", Failed: p.failed}
				for name, v := range p.load {
					s.Samples = append(s.Samples, promql.Sample{Name: name, Value: v})
				}
				p.m.Input(at, s, &p.fx)
				continue
			}
			p.said = append(p.said, fmt.Sprintf("%s %d to %d", e.By, e.From, e.To))
			p.status.Wanted, p.status.Replicas = e.To, e.To
			p.status.Ready = min(p.status.Ready, e.To)
			for range e.To - e.From {
				p.due = append(p.due, at+p.startup)
			}
			p.m.Input(at, Status(p.status), &p.fx)
		}
		p.fx.Reset()
	}
}

const queueObject = `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: x, namespace: ns}
spec:
  scaleTargetRef: {kind: Deployment, name: ms}
  pollingInterval: 15
  cooldownPeriod: 300
  minReplicaCount: MIN
  maxReplicaCount: 8
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Percent, value: 100, periodSeconds: 15}]}
        scaleDown: {stabilizationWindowSeconds: 300, policies: [{type: Percent, value: 100, periodSeconds: 15}]}
  triggers:
  - type: prometheus
    name: queue
    metricType: AverageValue
    metadata: {serverAddress: "http://prometheus:9090", query: 'sum(llm_d_epp_flow_control_queue_size{namespace="${NAMESPACE}"})', threshold: "1"}
  - type: prometheus
    name: running
    metadata: {serverAddress: "http://prometheus:9090", query: sum(llm_d_epp_request_running), threshold: "16"}
`

const (
	queueMetric   = "llm_d_epp_flow_control_queue_size"
	runningMetric = "llm_d_epp_request_running"
)

// The larger of what both triggers ask for counts; down waits for its window, and each sync
// at most doubles.
func TestQueueAndRunning(t *testing.T) {
	p := play(t, strings.ReplaceAll(queueObject, "MIN", "1"), 1)
	p.load[runningMetric] = 10
	if got := p.until(100); got != "" {
		t.Errorf("10 requests at one server: %s", got)
	}
	p.load[runningMetric] = 100
	if got := p.until(200); got != "hpa 1 to 2, hpa 2 to 4, hpa 4 to 7" {
		t.Errorf("100 requests: %s", got)
	}
	p.load[queueMetric] = 20
	if got := p.until(300); got != "hpa 7 to 8" {
		t.Errorf("20 wait: %s", got)
	}
	p.load[queueMetric], p.load[runningMetric] = 0, 20
	if got := p.until(550); got != "" {
		t.Errorf("within the window: %s", got)
	}
	if got := p.until(700); got != "hpa 8 to 2" && got != "hpa 8 to 7, hpa 7 to 2" {
		t.Errorf("after it: %s", got)
	}
}

// KEDA ends the last server when nothing was asked for the cooldown, and starts the first one
// again when somebody waits; the HPA leaves none alone.
func TestScaleToZero(t *testing.T) {
	p := play(t, strings.ReplaceAll(queueObject, "MIN", "0"), 1)
	p.load[runningMetric] = 1
	if got := p.until(1000); got != "" {
		t.Errorf("while something runs: %s", got)
	}
	p.load[runningMetric] = 0
	if got := p.until(1250); got != "" {
		t.Errorf("within the cooldown: %s", got)
	}
	if got := p.until(1400); got != "keda 1 to 0" {
		t.Errorf("after it: %s", got)
	}
	if got := p.until(3000); got != "" {
		t.Errorf("while nobody asks: %s", got)
	}
	p.load[queueMetric] = 3
	if got := p.until(3060); got != "keda 0 to 1, hpa 1 to 2, hpa 2 to 3" {
		t.Errorf("as three wait: %s", got)
	}
}

// Where figures cannot be had nothing goes down; a metric that is not there is 0.
func TestMissingFigures(t *testing.T) {
	p := play(t, strings.ReplaceAll(queueObject, "MIN", "1"), 4)
	p.failed = true
	if got := p.until(290); got != "" {
		t.Errorf("within the window: %s", got)
	}
	if got := p.until(400); got != "hpa 4 to 1" {
		t.Errorf("ignoreNullValues has nothing be 0: %s", got)
	}
	strict := strings.ReplaceAll(strings.ReplaceAll(queueObject, "MIN", "1"), `threshold: "16"`, `threshold: "16", ignoreNullValues: "false"`)
	p = play(t, strict, 4)
	p.load[queueMetric] = 1
	if got := p.until(1000); got != "" {
		t.Errorf("one that cannot be had keeps the others from fewer: %s", got)
	}
	p.load[queueMetric] = 8
	if got := p.until(1100); got != "hpa 4 to 8" {
		t.Errorf("and not from more: %s", got)
	}
	if !strings.Contains(p.m.Failure(), "no series") {
		t.Errorf("it failed for %q", p.m.Failure())
	}
}

// llm-d's guard against too many: what is still starting is taken off the demand.
func TestGuardFormula(t *testing.T) {
	p := play(t, `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: x}
spec:
  scaleTargetRef: {name: ms}
  minReplicaCount: 1
  maxReplicaCount: 20
  advanced:
    horizontalPodAutoscalerConfig: {behavior: {scaleUp: {stabilizationWindowSeconds: 0}}}
    scalingModifiers:
      formula: "let demand = max(queue / 1, running / 16); demand <= replicas ? demand : max(demand - (pending ?? 0), replicas)"
      target: "1"
  fallback: {failureThreshold: 3, replicas: 1, behavior: static}
  triggers:
  - {type: prometheus, name: queue, metadata: {query: sum(llm_d_epp_flow_control_queue_size), threshold: "1"}}
  - {type: prometheus, name: running, metadata: {query: sum(llm_d_epp_request_running), threshold: "16"}}
  - {type: prometheus, name: pending, metadata: {query: 'max(kube_deployment_status_replicas_unavailable{namespace="x"})', threshold: "1"}}
  - {type: prometheus, name: replicas, metadata: {query: max(kube_deployment_status_replicas), threshold: "1"}}
`, 1)
	p.load[queueMetric] = 6
	if got := p.until(100); got != "hpa 1 to 5" && got != "hpa 1 to 5, hpa 5 to 6" {
		t.Errorf("six wait, four start: %s", got)
	}
}

// An HPA's own manifest, with a metric of every pod.
func TestPodsMetric(t *testing.T) {
	x, err := ReadManifest("hpa.yaml", []byte(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: x}
spec:
  scaleTargetRef: {kind: Deployment, name: ms}
  maxReplicas: 6
  metrics:
  - {type: Pods, pods: {metric: {name: "vllm:num_requests_running"}, target: {type: AverageValue, averageValue: 500m}}}
  - {type: External, external: {metric: {name: llm_d_epp_request_running, selector: {matchLabels: {namespace: x}}}, target: {type: Value, value: "1k"}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	c := x.Config
	if c.KEDA || c.Min != 1 || c.Max != 6 || !c.Triggers[0].PerPod || c.Triggers[0].Target != 500 || c.Triggers[1].Target != 1_000_000 || c.Behavior.Down.Window != 300*machine.Second {
		t.Errorf("%+v", c)
	}
	if got := strings.Join(x.Notes, "\n"); !x.Targets || !strings.Contains(got, `namespace="x"`) {
		t.Errorf("notes:\n%s", got)
	}
}

// What has no effect is told by name; what is wrong is told with its line.
func TestManifests(t *testing.T) {
	x, err := ReadManifest("so.yaml", []byte(strings.ReplaceAll(queueObject, "MIN", "1")+`---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: r}
spec: {groups: [{name: g, interval: 15s, rules: [{record: "a:b", expr: sum(llm_d_epp_request_running)}, {alert: Down, expr: up == 0, for: 5m}]}]}
---
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata: {name: a}
spec: {secretTargetRef: []}
`))
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(x.Notes, "\n")
	for _, want := range []string{"serverAddress has no effect", `namespace="${NAMESPACE}"`, "TriggerAuthentication", "alert has no effect"} {
		if !strings.Contains(notes, want) {
			t.Errorf("nothing says %q:\n%s", want, notes)
		}
	}
	if len(x.Config.Rules) != 1 || x.Config.Rules[0].Record != "a:b" || x.Config.Poll != 15*machine.Second || x.Config.Max != 8 {
		t.Errorf("%+v", x.Config)
	}
	for _, bad := range []struct{ text, says string }{
		{strings.Replace(queueObject, "cooldownPeriod: 300", "coolDownPeriod: 300", 1), "coolDownPeriod"},
		{strings.Replace(queueObject, `threshold: "1"`, `threshold: "many"`, 1), "many"},
		{strings.Replace(queueObject, "sum(llm_d_epp_request_running)", "'topk(1, llm_d_epp_request_running)'", 1), "topk"},
		{strings.Replace(queueObject, "type: prometheus", "type: kafka", 1), "prometheus"},
		{strings.Replace(queueObject, "maxReplicaCount: 8", "maxReplicaCount: 0", 1), "maxReplicaCount"},
		{"apiVersion: v1\nkind: Pod\n", "a ScaledObject"},
		{"", "found 0"},
		{strings.Replace(queueObject, "MIN", "9", 1), "above maxReplicaCount"},
		{"apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 2}\n", "autoscaling/v2"},
		{"apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 2, metrics: [{type: Resource, resource: {name: cpu}}]}\n", "External"},
	} {
		if _, err := ReadManifest("bad.yaml", []byte(strings.ReplaceAll(bad.text, "MIN", "1"))); err == nil || !strings.Contains(err.Error(), bad.says) {
			t.Errorf("%.80q: %v, expected something with %q", bad.text, err, bad.says)
		}
	}
}

func FuzzReadManifest(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(queueObject, "MIN", "1")))
	f.Fuzz(func(t *testing.T, text []byte) {
		x, err := ReadManifest("x.yaml", text)
		if err != nil {
			return
		}
		c := x.Config
		c.Scrape, c.Sync = DefaultScrape, DefaultSync
		for i := range c.Rules {
			c.Rules[i].Interval = max(c.Rules[i].Interval, machine.Second)
		}
		m, fx := New(c, deployment.Status{Wanted: 1, Replicas: 1, Ready: 1}), new(machine.Effects[Effect])
		m.Advance(60*machine.Second, fx)
	})
}
