package autoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Manifest is a ScaledObject or a HorizontalPodAutoscaler.
type Manifest struct {
	// Config lacks a name, a seed, and the intervals of Prometheus and the HPA.
	Config Config
	// Targets: it names its target (scaleTargetRef), which callers have to check.
	Targets bool
	// Notes list fields without an effect, and assumptions.
	Notes []string
}

// maxManifest bounds a manifest, in bytes.
const maxManifest = 1 << 20

// ReadManifest reads a file with one ScaledObject or HorizontalPodAutoscaler, and the PrometheusRules that its queries
// need. Unknown fields are mistakes. Notes list the known fields without an effect. A HorizontalPodAutoscaler whose
// metrics have no effect has no Triggers.
func ReadManifest(file string, text []byte) (*Manifest, error) {
	doc, err := strictyaml.Parse(text,
		strictyaml.Options{File: file, MaxBytes: maxManifest, Kubernetes: true, Many: true})
	if err != nil {
		return nil, err
	}
	m := &manifest{out: &Manifest{}}
	found := 0
	for _, v := range doc.Values {
		switch group, kind := m.head(v); {
		case kind == "ScaledObject" && group == "keda.sh":
			m.scaledObject(v.Get("spec"))
			found++
		case kind == "HorizontalPodAutoscaler" && group == "autoscaling":
			m.hpa(v.Get("spec"))
			found++
		case kind == "PrometheusRule" && group == "monitoring.coreos.com":
			m.rules(v.Get("spec"))
		case slices.Contains([]string{"TriggerAuthentication", "ClusterTriggerAuthentication", "Secret",
			"ServiceAccount", "ConfigMap"}, kind):
			m.note("%s has no effect: the run has no authentication", kind)
		default:
			v.Fail(v.Get("kind").Found(),
				"a ScaledObject (keda.sh/v1alpha1), a HorizontalPodAutoscaler (autoscaling/v2) or a PrometheusRule", "")
		}
	}
	if err := doc.Problems().Err(); err != nil {
		return nil, err
	}
	if found != 1 {
		return nil, fmt.Errorf("%s: found %d ScaledObjects and HorizontalPodAutoscalers; expected one (KEDA makes "+
			"the HorizontalPodAutoscaler of a ScaledObject by itself)", file, found)
	}
	m.out.Notes = append(m.out.Notes, doc.Warnings()...)
	return m.out, nil
}

type manifest struct {
	out   *Manifest
	noted map[string]bool
}

func (m *manifest) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if m.noted == nil {
		m.noted = map[string]bool{}
	}
	if !m.noted[text] {
		m.noted[text] = true
		m.out.Notes = append(m.out.Notes, text)
	}
}

// head returns a document's API group and kind.
func (m *manifest) head(v strictyaml.Value) (group, kind string) {
	version := ""
	v.Fields(map[string]func(strictyaml.Value){
		"apiVersion": func(v strictyaml.Value) { version = v.Text() },
		"kind":       func(v strictyaml.Value) { kind = v.Text() },
		"metadata":   none, "spec": none, "status": none, "data": none, "stringData": none, "type": none,
	})
	group, _, _ = strings.Cut(version, "/")
	if kind == "HorizontalPodAutoscaler" && version != "autoscaling/v1" && version != "autoscaling/v2" {
		v.Get("apiVersion").Fail(fmt.Sprintf("%q", version), "autoscaling/v2",
			"Kubernetes has removed older versions")
	}
	return group, kind
}

func none(strictyaml.Value) {}

// without adds fields that have no effect, with the reason.
func (m *manifest) without(fields map[string]func(strictyaml.Value), why string, names ...string) {
	for _, name := range names {
		fields[name] = func(v strictyaml.Value) {
			if v.Given() {
				m.note("%s has no effect: %s", v.Path(), why)
			}
		}
	}
}

func (m *manifest) scaledObject(v strictyaml.Value) {
	c := &m.out.Config
	*c = Config{KEDA: true, Max: 100, Poll: DefaultPoll, Cooldown: DefaultCooldown, Behavior: DefaultBehavior(),
		Rules: c.Rules}
	fields := map[string]func(strictyaml.Value){
		"pollingInterval":  seconds(&c.Poll, 1, 86400, 30),
		"cooldownPeriod":   seconds(&c.Cooldown, 0, 86400, 300),
		"minReplicaCount":  func(v strictyaml.Value) { c.Min = int(v.Int(0, 100000, 0)) },
		"maxReplicaCount":  func(v strictyaml.Value) { c.Max = int(v.Int(1, 100000, 100)) },
		"idleReplicaCount": func(v strictyaml.Value) { n := int(v.Int(0, 100000, 0)); c.Idle = &n },
		"fallback":         m.fallback,
		"triggers": func(v strictyaml.Value) {
			for _, t := range v.List() {
				m.trigger(t)
			}
		},
	}
	var formula strictyaml.Value
	advanced := map[string]func(strictyaml.Value){
		"horizontalPodAutoscalerConfig": func(v strictyaml.Value) {
			h := map[string]func(strictyaml.Value){"behavior": m.behavior}
			m.without(h, "a run has one HorizontalPodAutoscaler", "name")
			v.Fields(h)
		},
		"scalingModifiers": func(v strictyaml.Value) { formula = v },
	}
	m.without(advanced, "a run does not delete the object", "restoreToOriginalReplicaCount")
	fields["advanced"] = func(v strictyaml.Value) { v.Fields(advanced) }
	fields["scaleTargetRef"] = func(v strictyaml.Value) { m.out.Targets = v.Given() }
	m.without(fields, "the object exists from the beginning", "initialCooldownPeriod")
	v.Fields(fields)
	if len(c.Triggers) == 0 {
		v.Fail("no triggers", "at least one trigger of type prometheus", "")
	}
	if c.Min > c.Max {
		v.Fail(fmt.Sprintf("minReplicaCount %d above maxReplicaCount %d", c.Min, c.Max), "at most maxReplicaCount", "")
	}
	if c.Idle != nil && *c.Idle >= c.Min {
		v.Get("idleReplicaCount").Fail(strconv.Itoa(*c.Idle), "less than minReplicaCount", "")
	}
	if formula.Given() {
		m.formula(formula)
	}
}

func (m *manifest) fallback(v strictyaml.Value) {
	f := &Fallback{Behavior: Static}
	v.Fields(map[string]func(strictyaml.Value){
		"failureThreshold": func(v strictyaml.Value) { f.FailureThreshold = int(v.Int(0, 1000, 0)) },
		"replicas":         func(v strictyaml.Value) { f.Replicas = int(v.Int(0, 100000, 0)) },
		"behavior": oneOf(&f.Behavior, Static, CurrentReplicas, CurrentReplicasIfHigher, CurrentReplicasIfLower,
			ScalingModifiers),
	})
	m.out.Config.Fallback = f
}

func (m *manifest) trigger(v strictyaml.Value) {
	t := Trigger{Kind: AverageValue, IgnoreNull: true}
	var query, threshold strictyaml.Value
	metadata := map[string]func(strictyaml.Value){
		"query": func(v strictyaml.Value) { query = v }, "threshold": func(v strictyaml.Value) { threshold = v },
		"activationThreshold": func(v strictyaml.Value) { t.Activation = figure(v) },
		"ignoreNullValues":    func(v strictyaml.Value) { t.IgnoreNull = v.Scalar() != "false" },
	}
	m.without(metadata, "the metrics are those of the run", "serverAddress", "namespace", "customHeaders", "unsafeSsl",
		"authModes", "queryParameters", "timeout", "metricName")
	fields := map[string]func(strictyaml.Value){
		"type":       func(v strictyaml.Value) { v.OneOf("prometheus") },
		"name":       func(v strictyaml.Value) { t.Name = v.Text() },
		"metricType": oneOf(&t.Kind, AverageValue, Value),
		"metadata":   func(v strictyaml.Value) { v.Fields(metadata) },
	}
	m.without(fields, "the metrics are those of the run", "authenticationRef", "useCachedMetrics")
	v.Fields(fields)
	number := len(m.out.Config.Triggers)
	t.Name = cmp.Or(t.Name, fmt.Sprintf("s%d-prometheus", number))
	if t.Query = m.query(query); !query.Given() {
		v.Fail("no metadata.query", "a query in PromQL", "")
	}
	if !threshold.Given() {
		v.Fail("no metadata.threshold", "the figure for each replica", "")
	}
	t.Target = thousandths(figure(threshold))
	if threshold.Given() && t.Target <= 0 {
		threshold.Fail(threshold.Found(), "a number of at least 0.001", "")
	}
	m.out.Config.Triggers = append(m.out.Config.Triggers, t)
}

// seconds reads a whole number of seconds.
func seconds(to *machine.Time, low, high, otherwise int64) func(strictyaml.Value) {
	return func(v strictyaml.Value) { *to = machine.Time(v.Int(low, high, otherwise)) * machine.Second }
}

// oneOf reads one of several values.
func oneOf[T ~string](to *T, of ...T) func(strictyaml.Value) {
	var names []string
	for _, x := range of {
		names = append(names, string(x))
	}
	return func(v strictyaml.Value) { *to = T(v.OneOf(names...)) }
}

// figure returns a number, which may be quoted.
func figure(v strictyaml.Value) float64 {
	f, err := strconv.ParseFloat(v.Scalar(), 64)
	if err != nil && v.Given() {
		v.Fail(v.Found(), "a number such as 1 or \"0.7\"", "")
	}
	return f
}

func (m *manifest) query(v strictyaml.Value) *promql.Query {
	if !v.Given() {
		return nil
	}
	q, dropped, err := promql.Read(v.Text())
	if err != nil {
		v.Fail(err.Error(), "PromQL over the run's own metrics", "")
		return nil
	}
	m.dropped(q, dropped)
	return q
}

func (m *manifest) dropped(q *promql.Query, list []string) {
	if len(list) > 0 {
		m.note("%s: %s select by labels that only a cluster has; in a run they select everything", q,
			strings.Join(list, ", "))
	}
}

func (m *manifest) formula(v strictyaml.Value) {
	f := &Formula{Kind: AverageValue}
	var text, target strictyaml.Value
	v.Fields(map[string]func(strictyaml.Value){
		"formula": func(v strictyaml.Value) { text = v }, "target": func(v strictyaml.Value) { target = v },
		"activationTarget": func(v strictyaml.Value) { f.Activation = figure(v) },
		"metricType":       oneOf(&f.Kind, AverageValue, Value),
	})
	if !text.Given() || !target.Given() {
		v.Fail("formula or target missing", "both of them", "")
		return
	}
	f.Text, f.Target = text.Text(), thousandths(figure(target))
	if f.Target <= 0 {
		target.Fail(target.Found(), "a number of at least 0.001", "")
	}
	var names []string
	for _, t := range m.out.Config.Triggers {
		names = append(names, t.Name)
	}
	if err := f.Compile(names); err != nil {
		text.Fail(err.Error(), "an expression (expr-lang) over the triggers' names: "+strings.Join(names, ", "), "")
	}
	m.out.Config.Formula = f
	m.note("the triggers' thresholds have no effect: scalingModifiers has a formula for their figures")
}

func (m *manifest) behavior(v strictyaml.Value) {
	b := &m.out.Config.Behavior
	v.Fields(map[string]func(strictyaml.Value){
		"scaleUp":   func(v strictyaml.Value) { direction(v, &b.Up) },
		"scaleDown": func(v strictyaml.Value) { direction(v, &b.Down) },
	})
}

func direction(v strictyaml.Value, r *Rules) {
	v.Fields(map[string]func(strictyaml.Value){
		"stabilizationWindowSeconds": seconds(&r.Window, 0, 3600, 0),
		"selectPolicy":               oneOf(&r.SelectPolicy, MaxChange, MinChange, Disabled),
		"tolerance": func(v strictyaml.Value) {
			if q, ok := quantityOf(v.Scalar()); ok {
				r.Tolerance = float64(q) / 1000
			} else {
				v.Fail(v.Found(), "a quantity such as 0.05 or 50m", "")
			}
		},
		"policies": func(v strictyaml.Value) {
			r.Policies = nil
			for _, x := range v.List() {
				var p Policy
				x.Fields(map[string]func(strictyaml.Value){
					"type":          oneOf(&p.Type, Pods, Percent),
					"value":         func(v strictyaml.Value) { p.Value = int(v.Int(1, 1_000_000, 1)) },
					"periodSeconds": seconds(&p.Period, 1, 1800, 1),
				})
				if p.Type == "" || p.Value == 0 || p.Period == 0 {
					x.Fail("type, value or periodSeconds missing", "all three", "")
				}
				r.Policies = append(r.Policies, p)
			}
		},
	})
}

// quantityOf reads a quantity of Kubernetes, in thousandths.
func quantityOf(text string) (int64, bool) {
	unit := 1000.0
	if rest, ok := strings.CutSuffix(text, "m"); ok {
		text, unit = rest, 1
	} else if rest, ok := strings.CutSuffix(text, "k"); ok {
		text, unit = rest, 1e6
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || f*unit > 1e15 {
		return 0, false
	}
	return int64(f * unit), true
}

func (m *manifest) hpa(v strictyaml.Value) {
	c := &m.out.Config
	*c = Config{Min: 1, Behavior: DefaultBehavior(), Poll: DefaultPoll, Rules: c.Rules}
	fields := map[string]func(strictyaml.Value){
		"minReplicas": func(v strictyaml.Value) { c.Min = int(v.Int(0, 100000, 1)) },
		"maxReplicas": func(v strictyaml.Value) { c.Max = int(v.Int(1, 100000, 1)) },
		"behavior":    m.behavior,
		"metrics": func(v strictyaml.Value) {
			for _, x := range v.List() {
				m.metric(x)
			}
		},
	}
	fields["scaleTargetRef"] = func(v strictyaml.Value) { m.out.Targets = v.Given() }
	m.without(fields, ofMachines, "targetCPUUtilizationPercentage") // of autoscaling/v1
	v.Fields(fields)
	if !v.Get("metrics").Given() && !v.Get("targetCPUUtilizationPercentage").Given() {
		m.note("without metrics Kubernetes uses CPU, which has no effect: %s", ofMachines)
	}
	switch {
	case c.Max == 0:
		v.Fail("no maxReplicas", "the most replicas", "")
	case c.Min > c.Max:
		v.Fail(fmt.Sprintf("minReplicas %d above maxReplicas %d", c.Min, c.Max), "at most maxReplicas", "")
	case c.Min == 0:
		v.Get("minReplicas").Fail("0", "1 or more, or a ScaledObject: nothing but KEDA starts the first replica", "")
	}
}

// ofMachines explains why metrics of CPU, memory and objects have no effect.
const ofMachines = "nothing here uses CPU or memory as a real container does; metrics of type External and Pods act"

func (m *manifest) metric(v strictyaml.Value) {
	var name string
	t := Trigger{}
	labels := map[string]string{}
	var target strictyaml.Value
	source := func(v strictyaml.Value) {
		v.Fields(map[string]func(strictyaml.Value){
			"metric": func(v strictyaml.Value) {
				v.Fields(map[string]func(strictyaml.Value){
					"name": func(v strictyaml.Value) { name = v.Text() },
					"selector": func(v strictyaml.Value) {
						v.Fields(map[string]func(strictyaml.Value){
							"matchLabels": func(v strictyaml.Value) { labels = v.Texts() }})
					},
				})
			},
			"target": func(v strictyaml.Value) { target = v },
		})
	}
	kind := ""
	v.Fields(map[string]func(strictyaml.Value){
		"type": func(v strictyaml.Value) {
			kind = v.OneOf("External", "Pods", "Resource", "ContainerResource", "Object")
		},
		"external": source, "pods": source, "resource": none, "object": none, "containerResource": none,
	})
	if kind != "" && kind != "External" && kind != "Pods" {
		m.note("%s of type %s has no effect: %s", v.Path(), kind, ofMachines)
		return
	}
	if kind == "" || name == "" || !target.Given() {
		v.Fail("type, metric.name or target missing", "a metric of type External or Pods, with a name and a target", "")
		return
	}
	of := ""
	target.Fields(map[string]func(strictyaml.Value){
		"type":         func(v strictyaml.Value) { of = v.OneOf(string(AverageValue), string(Value)) },
		"averageValue": func(v strictyaml.Value) { t.Target = amount(v) },
		"value":        func(v strictyaml.Value) { t.Target = amount(v) },
	})
	t.Name, t.Kind, t.PerPod = name, TargetKind(of), kind == "Pods"
	if t.PerPod && t.Kind != AverageValue {
		target.Fail("type "+of, "AverageValue with Pods metrics", "")
	}
	if t.Target <= 0 {
		target.Fail("no target above 0", "averageValue or value, as type says", "")
		return
	}
	var err error
	var dropped []string
	if t.PerPod {
		t.Query, dropped, err = promql.Each(name, labels)
	} else {
		t.Query, dropped, err = promql.Sum(name, labels)
	}
	if err != nil {
		v.Fail(err.Error(), "a metric's name", "")
		return
	}
	m.dropped(t.Query, dropped)
	m.out.Config.Triggers = append(m.out.Config.Triggers, t)
}

func amount(v strictyaml.Value) int64 {
	q, ok := quantityOf(v.Scalar())
	if !ok {
		v.Fail(v.Found(), "a quantity such as 16, \"0.7\" or 700m", "")
	}
	return q
}

// rules reads the recording rules of a PrometheusRule.
func (m *manifest) rules(v strictyaml.Value) {
	v.Fields(map[string]func(strictyaml.Value){"groups": func(v strictyaml.Value) {
		for _, g := range v.List() {
			interval := machine.Time(0)
			var rules strictyaml.Value
			fields := map[string]func(strictyaml.Value){
				"interval": func(v strictyaml.Value) {
					d, err := time.ParseDuration(v.Text())
					if err != nil || d <= 0 {
						v.Fail(v.Found(), "a duration such as 15s", "")
					}
					interval = machine.FromDuration(d)
				},
				"rules": func(v strictyaml.Value) { rules = v },
			}
			m.without(fields, "rules are evaluated in order", "limit", "partial_response_strategy",
				"query_offset")
			fields["name"] = none
			g.Fields(fields)
			for _, r := range rules.List() {
				m.rule(r, interval)
			}
		}
	}})
}

func (m *manifest) rule(v strictyaml.Value, interval machine.Time) {
	x := Rule{Interval: interval}
	fields := map[string]func(strictyaml.Value){
		"record": func(v strictyaml.Value) { x.Record = v.Text() },
		"expr":   func(v strictyaml.Value) { x.Query = m.query(v) },
	}
	m.without(fields, "queries select by the figures' own labels", "labels")
	m.without(fields, "a run has no alerts", "alert", "for", "annotations", "keep_firing_for")
	v.Fields(fields)
	if x.Record != "" && x.Query != nil {
		m.out.Config.Rules = append(m.out.Config.Rules, x)
	}
}
