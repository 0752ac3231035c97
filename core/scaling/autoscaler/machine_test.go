package autoscaler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
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
	p := &player{t: t, status: deployment.Status{Wanted: replicas, Replicas: replicas, Ready: replicas},
		load: map[string]float64{}, startup: 120 * machine.Second}
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
					name, picker, several := strings.Cut(name, " of ")
					sample := promql.Sample{Name: name, Value: v}
					if several {
						sample.Labels = []metrics.Label{{Name: "picker", Value: picker}}
					}
					s.Samples = append(s.Samples, sample)
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

// KEDA removes the last server after a cooldown without requests, and starts the first one again when a request waits;
// the HPA does not act on zero servers.
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
	strict := strings.ReplaceAll(strings.ReplaceAll(queueObject, "MIN", "1"), `threshold: "16"`,
		`threshold: "16", ignoreNullValues: "false"`)
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
	if got := p.until(100); got != "hpa 1 to 5" {
		t.Errorf("six wait, four start: %s", got)
	}
	if got := p.until(200); got != "hpa 5 to 6" {
		t.Errorf("once they are ready: %s", got)
	}
}

// object returns a ScaledObject with one trigger, which is strict about its query.
func object(spec, query, metadata string) string {
	return `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: x}
spec:
  scaleTargetRef: {name: ms}
  cooldownPeriod: 60
` + spec + `
  triggers:
  - {type: prometheus, name: running, metadata: {query: '` + query + `', threshold: "10"` + metadata + `}}
`
}

const runningQuery = "sum(llm_d_epp_request_running)"

// Where a figure cannot be had more often in a row than the threshold says, the fallback counts, held
// against what there is as its behavior says. KEDA counts failures of its own polls and of the HPA's questions
// together, with a formula and without one.
func TestFallback(t *testing.T) {
	formula := "  advanced: {scalingModifiers: {target: '10', formula: '"
	for _, x := range []struct{ fallback, formula, want string }{
		{"replicas: 6", "", "hpa 4 to 6"}, {"replicas: 6, behavior: static", "", "hpa 4 to 6"},
		{"replicas: 6, behavior: currentReplicas", "", ""},
		{"replicas: 6, behavior: currentReplicasIfHigher", "", "hpa 4 to 6"},
		{"replicas: 2, behavior: currentReplicasIfHigher", "", ""},
		{"replicas: 6, behavior: currentReplicasIfLower", "", ""},
		{"replicas: 2, behavior: currentReplicasIfLower", "", "hpa 4 to 2"},
		{"replicas: 6", formula + "running + 1.0'}}", "hpa 4 to 6"},
		{"replicas: 6, behavior: scalingModifiers", formula + "running ?? 70.0'}}", "hpa 4 to 7"},
		{"replicas: 6, behavior: scalingModifiers", formula + "running'}}", "hpa 4 to 6"}, // the formula comes to nil
	} {
		spec := "  minReplicaCount: 1\n  fallback: {failureThreshold: 3, " + x.fallback + "}\n" + x.formula
		p := play(t, object(spec, runningQuery, `, ignoreNullValues: "false"`), 4)
		p.m.sync.next, p.m.poll.next = 15*machine.Second, 30*machine.Second
		if got := p.until(44); got != "" {
			t.Errorf("%s: %s with two failures of the HPA and one of KEDA", spec, got)
		}
		want := x.want
		if strings.HasPrefix(want, "hpa 4 to ") && want > "hpa 4 to 4" {
			if got := p.until(46); got != want {
				t.Errorf("%s: with four failures %q, expected %q", spec, got, want)
			}
			want = ""
		}
		if got := p.until(500); got != want { // down waits for its window
			t.Errorf("%s: %q, expected %q", spec, got, want)
		}
	}
}

// KEDA ends no last server while a trigger fails and a fallback is to come, which starts one from none.
func TestFallbackFromNone(t *testing.T) {
	const strict = `, ignoreNullValues: "false"`
	p := play(t, object("  minReplicaCount: 0\n  fallback: {failureThreshold: 3, replicas: 2}", runningQuery, strict),
		0)
	p.m.sync.next, p.m.poll.next = 15*machine.Second, 30*machine.Second
	if got := p.until(119); got != "" {
		t.Errorf("with three failures: %s", got)
	}
	if got := p.until(121); got != "keda 0 to 1, hpa 1 to 2" {
		t.Errorf("with four: %s", got)
	}
	p = play(t, object("  minReplicaCount: 0", runningQuery, strict), 1)
	if got := p.until(1000); got != "" {
		t.Errorf("without figures and without a fallback: %s", got)
	}
}

// idleReplicaCount stays where nothing is active, and minReplicaCount is there once something is.
func TestIdleReplicas(t *testing.T) {
	p := play(t, object("  minReplicaCount: 3\n  idleReplicaCount: 1", runningQuery, ""), 3)
	if got := p.until(200); got != "keda 3 to 1" {
		t.Errorf("nothing runs: %s", got)
	}
	p.load[runningMetric] = 2
	if got := p.until(240); got != "keda 1 to 3" {
		t.Errorf("two run: %s", got)
	}
}

// A trigger is active above its activationThreshold.
func TestActivation(t *testing.T) {
	p := play(t, object("  minReplicaCount: 0", runningQuery, `, activationThreshold: "5"`), 0)
	p.load[runningMetric] = 5
	if got := p.until(200); got != "" {
		t.Errorf("at the threshold: %s", got)
	}
	p.load[runningMetric] = 6
	if got := p.until(240); got != "keda 0 to 1" {
		t.Errorf("above it: %s", got)
	}
}

// The number stays within the bounds whatever the figures; a number beyond them that was set by other means is
// corrected.
func TestBounds(t *testing.T) {
	for _, x := range []struct {
		spec     string
		replicas int
		running  float64
		want     string
	}{
		{"  minReplicaCount: 1\n  maxReplicaCount: 3", 7, 65, "hpa 7 to 3"},
		{"  minReplicaCount: 2\n  maxReplicaCount: 3", 2, 65, "hpa 2 to 3"},
		{"  minReplicaCount: 4", 1, 0, "keda 1 to 4"},
		{"  minReplicaCount: 4", 1, 30, "hpa 1 to 4"},
	} {
		p := play(t, object(x.spec, runningQuery, ""), x.replicas)
		if strings.HasPrefix(x.want, "hpa 1") {
			p.m.poll.next = machine.Never
		} else if strings.HasPrefix(x.want, "keda") {
			p.m.sync.next = machine.Never
		}
		p.load[runningMetric] = x.running
		if got := p.until(200); got != x.want {
			t.Errorf("%s: %q, expected %q", x.spec, got, x.want)
		}
	}
}

// A trigger takes one series: several are a failure, and so is a figure that is no number, unless ignoreNullValues
// replaces it by 0.
func TestFigures(t *testing.T) {
	p := play(t, object("  minReplicaCount: 1", runningMetric, ""), 2)
	p.load[runningMetric+" of a"], p.load[runningMetric+" of b"] = 90, 90
	if got := p.until(100); got != "" || !strings.Contains(p.m.Failure(), "2 series; expected one") {
		t.Errorf("of two series: %q, it failed for %q", got, p.m.Failure())
	}
	for ignore, want := range map[string]string{"true": "hpa 2 to 1", "false": "hpa 2 to 6, hpa 6 to 8"} {
		p := play(t, object("  minReplicaCount: 1\n  maxReplicaCount: 8", runningQuery+" / 0",
			`, ignoreNullValues: "`+ignore+`"`), 2)
		p.load[runningMetric] = 5
		if got := p.until(400); got != want {
			t.Errorf("infinitely many, ignored %s: %q, expected %q", ignore, got, want)
		}
	}
}

// Scrapes, rules, KEDA and the HPA each have a phase of their own, from the Deployment's name and the seed.
func TestPhasesDiffer(t *testing.T) {
	x, err := ReadManifest("so.yaml", []byte(strings.ReplaceAll(queueObject, "MIN", "1")))
	if err != nil {
		t.Fatal(err)
	}
	c := x.Config
	if err := c.AddRule("a:b", runningQuery); err != nil {
		t.Fatal(err)
	}
	c.Every(DefaultScrape, DefaultSync)
	for part, of := range map[string]func(*Machine) machine.Time{
		"scrape": func(m *Machine) machine.Time { return m.scrape.next },
		"sync":   func(m *Machine) machine.Time { return m.sync.next },
		"poll":   func(m *Machine) machine.Time { return m.poll.next },
		"rule":   func(m *Machine) machine.Time { return m.rules[0].next },
		"from scrape to sync": func(m *Machine) machine.Time {
			return (m.sync.next - m.scrape.next + DefaultSync) % DefaultSync
		},
		"from rule to scrape": func(m *Machine) machine.Time {
			return (m.scrape.next - m.rules[0].next + DefaultSync) % DefaultSync
		},
	} {
		early, late := 0, 0
		for i := range 100 {
			c.Name = fmt.Sprint("d", i)
			switch at := of(New(c, deployment.Status{})); {
			case at < 0 || at > DefaultSync:
				t.Fatalf("%s: first after %v", part, at)
			case at < DefaultSync/3:
				early++
			case at > 2*DefaultSync/3:
				late++
			}
		}
		if early < 15 || late < 15 {
			t.Errorf("%s: of 100 Deployments %d have it in the first third of the interval and %d in the last", part,
				early, late)
		}
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
	if c.KEDA || c.Min != 1 || c.Max != 6 || !c.Triggers[0].PerPod || c.Triggers[0].Target != 500 ||
		c.Triggers[1].Target != 1_000_000 || c.Behavior.Down.Window != 300*machine.Second {
		t.Errorf("%+v", c)
	}
	if got := strings.Join(x.Notes, "\n"); !x.Targets || !strings.Contains(got, `namespace="x"`) {
		t.Errorf("notes:\n%s", got)
	}
}

// Notes name fields without an effect; errors name their line.
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
	for _, want := range []string{"serverAddress has no effect", `namespace="${NAMESPACE}"`, "TriggerAuthentication",
		"alert has no effect"} {
		if !strings.Contains(notes, want) {
			t.Errorf("nothing says %q:\n%s", want, notes)
		}
	}
	if len(x.Config.Rules) != 1 || x.Config.Rules[0].Record != "a:b" || x.Config.Poll != 15*machine.Second ||
		x.Config.Max != 8 {
		t.Errorf("%+v", x.Config)
	}
	for _, bad := range []struct{ text, says string }{
		{strings.Replace(queueObject, "cooldownPeriod: 300", "coolDownPeriod: 300", 1), "coolDownPeriod"},
		{strings.Replace(queueObject, `threshold: "1"`, `threshold: "many"`, 1), "many"},
		{strings.Replace(queueObject, "sum(llm_d_epp_request_running)", "'topk(1, llm_d_epp_request_running)'", 1),
			"topk"},
		{strings.Replace(queueObject, "type: prometheus", "type: kafka", 1), "prometheus"},
		{strings.Replace(queueObject, "maxReplicaCount: 8", "maxReplicaCount: 0", 1), "maxReplicaCount"},
		{"apiVersion: v1\nkind: Pod\n", "a ScaledObject"},
		{"", "found 0"},
		{strings.Replace(queueObject, "MIN", "9", 1), "above maxReplicaCount"},
		{"apiVersion: autoscaling/v2beta2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 2}\n", "autoscaling/v2"},
	} {
		if _, err := ReadManifest("bad.yaml", []byte(strings.ReplaceAll(bad.text, "MIN", "1"))); err == nil ||
			!strings.Contains(err.Error(), bad.says) {
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
