package autoscaler

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
)

// Config configures the autoscaling of one Deployment.
type Config struct {
	// Name and Seed determine the phases of all periodic actions.
	Name string
	Seed uint64
	// KEDA: KEDA provides the figures, starts the first replica and ends the last one. Otherwise there is only an HPA,
	// with figures from an adapter.
	KEDA bool
	// Min and Max bound the replicas. Idle, if not nil, is the number of replicas while no trigger is active, in place
	// of Min.
	Min, Max int
	Idle     *int
	Triggers []Trigger
	// Formula, if not nil, combines the figures of all triggers (scalingModifiers).
	Formula *Formula
	// Fallback, if not nil, replaces missing figures.
	Fallback *Fallback
	Behavior Behavior
	// Rules are recording rules.
	Rules []Rule
	// Scrape, Sync and Poll are the intervals of Prometheus' scrapes, of the HPA and of KEDA. Cooldown is the time from
	// the last active trigger until KEDA ends the last replica.
	Scrape, Sync, Poll, Cooldown machine.Time
}

// Trigger is one metric of an HPA.
type Trigger struct {
	Name  string
	Query *promql.Query
	// PerPod: each pod has a figure, with the label pod, as in an HPA's Pods metrics.
	PerPod bool
	Kind   TargetKind
	// Target is in thousandths. A trigger is active while its figure is above Activation.
	Target     int64
	Activation float64
	// IgnoreNull makes a query without series 0 instead of a failure.
	IgnoreNull bool
}

// Formula is an expression over the figures of triggers, by their names.
type Formula struct {
	Text       string
	Kind       TargetKind
	Target     int64 // in thousandths
	Activation float64

	program *vm.Program
}

// Fallback is KEDA's fallback: after more than FailureThreshold consecutive failures, in KEDA's polls or the HPA's
// queries, a trigger's figure becomes the one that asks for Replicas.
type Fallback struct {
	FailureThreshold int
	Replicas         int
	Behavior         FallbackBehavior
}

// FallbackBehavior relates Fallback.Replicas to the current replicas.
type FallbackBehavior string

// The fallbacks.
const (
	Static                  FallbackBehavior = "static"
	CurrentReplicas         FallbackBehavior = "currentReplicas"
	CurrentReplicasIfHigher FallbackBehavior = "currentReplicasIfHigher"
	CurrentReplicasIfLower  FallbackBehavior = "currentReplicasIfLower"
	// ScalingModifiers makes the figure nil in the formula. Replicas count if the formula is nil.
	ScalingModifiers FallbackBehavior = "scalingModifiers"
)

// Rule is one recording rule.
type Rule struct {
	Record   string
	Query    *promql.Query
	Interval machine.Time
}

// Defaults of the parts' own configurations.
const (
	DefaultScrape   = 15 * machine.Second  // kube-prometheus-stack's scrapes, and rules
	DefaultSync     = 15 * machine.Second  // --horizontal-pod-autoscaler-sync-period
	DefaultPoll     = 30 * machine.Second  // KEDA's pollingInterval
	PoolPoll        = 15 * machine.Second  // KEDA's, for the figures of a pool's own autoscaling
	DefaultCooldown = 300 * machine.Second // KEDA's cooldownPeriod
)

// maxFormula bounds the length of a formula, in bytes.
const maxFormula = 16 << 10

// Compile reads the formula. names are the triggers that it may use.
func (f *Formula) Compile(names []string) (err error) {
	if len(f.Text) > maxFormula {
		return fmt.Errorf("the formula has %d bytes; expected up to %d", len(f.Text), maxFormula)
	}
	env := map[string]any{}
	for _, n := range names {
		env[n] = 1.0
	}
	if _, err = expr.Compile(f.Text, expr.Env(env)); err != nil { // checks the names
		return fmt.Errorf("not an expression: %w", err)
	}
	f.program, err = expr.Compile(f.Text) // a figure may also be nil, as in KEDA
	return err
}

// figure evaluates the formula. Missing figures are nil.
func (f *Formula) figure(env map[string]any) (float64, error) {
	out, err := expr.Run(f.program, env)
	if err != nil {
		return 0, fmt.Errorf("formula: %w", err)
	}
	switch v := out.(type) {
	case float64:
		return v, nil
	case int:
		return float64(v), nil
	case nil:
		return 0, errNil
	}
	return 0, fmt.Errorf("formula: found %v; expected a number", out)
}

var errNil = errors.New("formula: found nil; expected a number")

// thousandths returns a figure in thousandths, as in Kubernetes' quantities.
func thousandths(f float64) int64 {
	switch {
	case math.IsNaN(f):
		return 0
	case f >= math.MaxInt64/2000:
		return math.MaxInt64 / 2
	case f <= math.MinInt64/2000:
		return math.MinInt64 / 2
	}
	return int64(f * 1000)
}

// AddTrigger adds a trigger like KEDA's prometheus scaler, with a target for each replica.
func (c *Config) AddTrigger(name, query string, target float64) error {
	q, _, err := promql.Read(query)
	if err != nil {
		return fmt.Errorf("trigger %s: %w", name, err)
	}
	c.Triggers = append(c.Triggers,
		Trigger{Name: name, Query: q, Kind: AverageValue, Target: max(1, thousandths(target)), IgnoreNull: true})
	return nil
}

// AddRule adds a recording rule. Every sets its interval.
func (c *Config) AddRule(record, query string) error {
	q, _, err := promql.Read(query)
	if err != nil {
		return fmt.Errorf("rule %s: %w", record, err)
	}
	c.Rules = append(c.Rules, Rule{Record: record, Query: q})
	return nil
}

// SetFormula combines the figures of the triggers so far.
func (c *Config) SetFormula(text string, target float64) error {
	f := &Formula{Text: text, Kind: AverageValue, Target: max(1, thousandths(target))}
	var names []string
	for i := range c.Triggers {
		names = append(names, c.Triggers[i].Name)
	}
	if err := f.Compile(names); err != nil {
		return err
	}
	c.Formula = f
	return nil
}

// Every sets the intervals of Prometheus' scrapes, of rules without an interval, and of the HPA.
func (c *Config) Every(scrape, sync machine.Time) {
	c.Scrape, c.Sync = scrape, sync
	for i := range c.Rules {
		c.Rules[i].Interval = cmp.Or(c.Rules[i].Interval, scrape)
	}
}

// Hint adds a trigger for a target metric of document 003's InferencePool, and reports whether a part of the run serves
// that metric.
func (c *Config) Hint(kind string, target float64) bool {
	query := OfHint(kind)
	return query != "" && c.AddTrigger(kind, query, target) == nil
}

// Unknown returns a note for each metric in the queries that no part of the run serves.
func (c *Config) Unknown() (out []string) {
	for _, name := range c.Names() {
		if !Known(name) {
			out = append(out, fmt.Sprintf("no part of the run serves the metric %s; it has no value", name))
		}
	}
	return out
}

// MaxReplicas is the largest number of servers of a Deployment.
const MaxReplicas = 2048

// Names returns the metrics that the queries read, without those that rules record.
func (c *Config) Names() []string {
	var out []string
	recorded := map[string]bool{}
	for i := range c.Rules {
		recorded[c.Rules[i].Record] = true
		out = append(out, c.Rules[i].Query.Names()...)
	}
	for i := range c.Triggers {
		out = append(out, c.Triggers[i].Query.Names()...)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return recorded[name] })
}
