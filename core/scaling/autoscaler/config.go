package autoscaler

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
)

// Config is what decides about the replicas of one Deployment.
type Config struct {
	// Name and Seed are what the phases of all that happens by the clock are drawn from.
	Name string
	Seed uint64
	// KEDA says that KEDA asks for the figures, starts the first replica and ends the last
	// one. Without it there is an HPA alone, whose figures come from an adapter.
	KEDA bool
	// Min and Max bound the replicas; Idle, if not nil, is how many stay where no trigger is
	// active, in place of Min.
	Min, Max int
	Idle     *int
	Triggers []Trigger
	// Formula, if not nil, makes one figure of all triggers' (scalingModifiers).
	Formula *Formula
	// Fallback, if not nil, is what counts where figures cannot be had.
	Fallback *Fallback
	Behavior Behavior
	// Rules are recording rules.
	Rules []Rule
	// Scrape is how often Prometheus scrapes, Sync how often the HPA looks, Poll how often
	// KEDA does, and Cooldown how long after the last active trigger KEDA ends the last
	// replica.
	Scrape, Sync, Poll, Cooldown machine.Time
}

// Trigger is one metric of an HPA.
type Trigger struct {
	Name  string
	Query *promql.Query
	// PerPod says that the figure is one of every pod, named by the label pod, as in an HPA's
	// Pods metrics.
	PerPod bool
	Kind   TargetKind
	// Target is in thousandths. A trigger is active where its figure is above Activation.
	Target     int64
	Activation float64
	// IgnoreNull has no series be 0 and not a failure.
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

// Fallback is KEDA's: after more than FailureThreshold failures in a row, which its own polls and the HPA's
// questions both add to, a trigger's figure is the one that asks for so many replicas.
type Fallback struct {
	FailureThreshold int
	Replicas         int
	Behavior         FallbackBehavior
}

// FallbackBehavior is what Fallback.Replicas are held against.
type FallbackBehavior string

// The fallbacks.
const (
	Static                  FallbackBehavior = "static"
	CurrentReplicas         FallbackBehavior = "currentReplicas"
	CurrentReplicasIfHigher FallbackBehavior = "currentReplicasIfHigher"
	CurrentReplicasIfLower  FallbackBehavior = "currentReplicasIfLower"
	// ScalingModifiers makes the figure nil in the formula. Replicas count where the formula comes to nil.
	ScalingModifiers FallbackBehavior = "scalingModifiers"
)

// Rule is one recording rule.
type Rule struct {
	Record   string
	Query    *promql.Query
	Interval machine.Time
}

// Defaults of the parts, where their own configurations say nothing.
const (
	DefaultScrape   = 15 * machine.Second  // kube-prometheus-stack's scrapes, and rules
	DefaultSync     = 15 * machine.Second  // --horizontal-pod-autoscaler-sync-period
	DefaultPoll     = 30 * machine.Second  // KEDA's pollingInterval
	PoolPoll        = 15 * machine.Second  // KEDA's, for the figures of a pool's own autoscaling
	DefaultCooldown = 300 * machine.Second // KEDA's cooldownPeriod
)

// maxFormula bounds how long a formula is, in bytes.
const maxFormula = 16 << 10

// Compile reads the formula, which may name triggers by these names.
func (f *Formula) Compile(names []string) (err error) {
	if len(f.Text) > maxFormula {
		return fmt.Errorf("the formula has %d bytes; expected up to %d", len(f.Text), maxFormula)
	}
	env := map[string]any{}
	for _, n := range names {
		env[n] = 1.0
	}
	if _, err = expr.Compile(f.Text, expr.Env(env)); err != nil { // a name that is no trigger's
		return fmt.Errorf("not an expression: %w", err)
	}
	f.program, err = expr.Compile(f.Text) // as KEDA has it: a figure may also be nil
	return err
}

// figure is what the formula makes of figures; those that cannot be had are nil.
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
	return 0, fmt.Errorf("formula: it comes to %v; expected a number", out)
}

var errNil = errors.New("formula: it comes to nil; expected a number")

// thousandths returns a figure as Kubernetes' quantities have it.
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

// AddTrigger adds a trigger as KEDA's prometheus scaler makes one: with a target for each
// replica.
func (c *Config) AddTrigger(name, query string, target float64) error {
	q, _, err := promql.Read(query)
	if err != nil {
		return fmt.Errorf("trigger %s: %w", name, err)
	}
	c.Triggers = append(c.Triggers,
		Trigger{Name: name, Query: q, Kind: AverageValue, Target: max(1, thousandths(target)), IgnoreNull: true})
	return nil
}

// AddRule adds a recording rule, which is worked out as often as Prometheus scrapes unless its
// Interval says otherwise.
func (c *Config) AddRule(record, query string) error {
	q, _, err := promql.Read(query)
	if err != nil {
		return fmt.Errorf("rule %s: %w", record, err)
	}
	c.Rules = append(c.Rules, Rule{Record: record, Query: q})
	return nil
}

// SetFormula makes one figure of all triggers that there are.
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

// Every has Prometheus scrape, and work out rules that do not say how often, and the HPA look as often
// as that.
func (c *Config) Every(scrape, sync machine.Time) {
	c.Scrape, c.Sync = scrape, sync
	for i := range c.Rules {
		if c.Rules[i].Interval == 0 {
			c.Rules[i].Interval = scrape
		}
	}
}

// Hint adds a trigger for a target metric of document 003's InferencePool, and says whether anybody
// here tells that metric.
func (c *Config) Hint(kind string, target float64) bool {
	query := OfHint(kind)
	return query != "" && c.AddTrigger(kind, query, target) == nil
}

// Unknown returns which metrics of the queries nobody here tells.
func (c *Config) Unknown() (out []string) {
	for _, name := range c.Names() {
		if !Known(name) {
			out = append(out, fmt.Sprintf("nobody here tells the metric %s; it reads as nothing", name))
		}
	}
	return out
}

// MaxReplicas is the most servers that a Deployment may be scaled to.
const MaxReplicas = 2048

// Names returns the metrics that queries read and no rule records.
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
