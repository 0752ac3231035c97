package autoscaler

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler/promql"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Message is an input of a Machine: Scraped or Status.
type Message interface{ message() }

// Scraped is the result of scraping one target, after a Scrape. Failed: there is no page.
type Scraped struct {
	Target  string
	Samples []promql.Sample
	Failed  bool
}

// Status is the status of the Deployment.
type Status deployment.Status

func (Scraped) message() {}
func (Status) message()  {}

// Kind is a kind of Effect.
type Kind uint8

// The kinds of effects.
const (
	// Scrape asks for a Scraped of every target: the endpoint pickers, and the existing model servers.
	Scrape Kind = iota
	// Scale changes the number of replicas of the Deployment.
	Scale
)

// Effect is an action for the driver.
type Effect struct {
	At   machine.Time
	Kind Kind
	// From and To are replicas, Why is the reason in words, By is keda or hpa.
	From, To int
	By, Why  string
}

// Due returns the time of the effect.
func (e Effect) Due() machine.Time { return e.At }

// Machine is a machine.Machine[Message, *machine.Effects[Effect]].
type Machine struct {
	c                  Config
	now                machine.Time
	store              promql.Store
	status             deployment.Status
	memory             memory
	scrape, sync, poll turns
	rules              []turns
	active             machine.Time // the last time with an active trigger
	failures           []int        // consecutive ones, by trigger
	failure            string       // the last one
	wants              map[string]bool
}

// turns are the times of a periodic action.
type turns struct{ next, interval machine.Time }

// New returns the machine of a Deployment with this status.
func New(c Config, status deployment.Status) *Machine {
	m := &Machine{c: c, status: status, failures: make([]int, len(c.Triggers)), wants: map[string]bool{}}
	phase := func(purpose string, number int, interval machine.Time) turns {
		d := machine.NewDraw(c.Seed, c.Name, "phase of "+purpose, uint64(number))
		return turns{d.Between(1, interval), interval}
	}
	m.scrape, m.sync, m.poll = phase("scrape", 0, c.Scrape), phase("sync", 0, c.Sync), turns{machine.Never, 1}
	if c.KEDA {
		m.poll = phase("poll", 0, c.Poll)
	}
	want := func(q *promql.Query) {
		m.store.Range = max(m.store.Range, q.Range())
		for _, name := range q.Names() {
			m.wants[name] = true
		}
	}
	for i := range c.Rules {
		m.rules = append(m.rules, phase("rule", i, c.Rules[i].Interval))
		want(c.Rules[i].Query)
	}
	for i := range c.Triggers {
		want(c.Triggers[i].Query)
	}
	return m
}

// Wants reports whether any query reads a metric of this name.
func (m *Machine) Wants(name string) bool { return m.wants[name] }

// Input advances to now, and takes a message.
func (m *Machine) Input(now machine.Time, msg Message, fx *machine.Effects[Effect]) {
	m.Advance(now, fx)
	switch x := msg.(type) {
	case Scraped:
		m.store.Scraped(m.now, x.Target, x.Samples, !x.Failed)
	case Status:
		m.status = deployment.Status(x)
	}
}

// Next returns the time of the next action.
func (m *Machine) Next() (machine.Time, bool) {
	at := min(m.scrape.next, m.sync.next, m.poll.next)
	for i := range m.rules {
		at = min(at, m.rules[i].next)
	}
	return at, true
}

// Advance plays the actions up to now. At equal times, scrapes come first, then rules, then decisions.
func (m *Machine) Advance(now machine.Time, fx *machine.Effects[Effect]) {
	for {
		at, _ := m.Next()
		if at > now {
			break
		}
		m.now = max(m.now, at)
		if m.scrape.due(at) {
			m.scrapeState()
			fx.Add(Effect{At: m.now, Kind: Scrape})
		}
		for i := range m.rules {
			if m.rules[i].due(at) {
				m.record(&m.c.Rules[i])
			}
		}
		if m.poll.due(at) {
			m.asked(fx)
		}
		if m.sync.due(at) {
			m.synced(fx)
		}
	}
	m.now = max(m.now, now)
}

func (t *turns) due(at machine.Time) bool {
	if t.next > at {
		return false
	}
	t.next = t.next.Add(t.interval)
	return true
}

// scrapeState scrapes kube-state-metrics.
func (m *Machine) scrapeState() {
	var list []promql.Sample
	s := &m.status
	for i, n := range []int{s.Wanted, s.Replicas, s.Ready, s.Ready, max(0, s.Wanted-s.Ready)} {
		if name := StateMetrics[i]; m.wants[name] {
			list = append(list, promql.Sample{Name: name,
				Labels: []metrics.Label{{Name: "deployment", Value: m.c.Name}}, Value: float64(n)})
		}
	}
	if len(list) > 0 {
		m.store.Scraped(m.now, "kube-state-metrics", list, true)
	}
}

// StateMetrics are the names of kube-state-metrics' metrics of a Deployment, in the order of scrapeState.
var StateMetrics = []string{"kube_deployment_spec_replicas", "kube_deployment_status_replicas",
	"kube_deployment_status_replicas_ready", "kube_deployment_status_replicas_available",
	"kube_deployment_status_replicas_unavailable"}

// record evaluates a recording rule. A failed rule records nothing.
func (m *Machine) record(r *Rule) {
	list, err := m.store.Eval(r.Query, m.now)
	if err != nil {
		m.failure, list = err.Error(), nil
	}
	for i := range list {
		list[i].Name = r.Record
	}
	m.store.Record(m.now, r.Record, list)
}

// figure evaluates a trigger's query, like KEDA's scaler: one series.
func (m *Machine) figure(t *Trigger) (float64, error) {
	list, err := m.store.Eval(t.Query, m.now)
	switch {
	case err != nil:
		return 0, err
	case len(list) > 1:
		return 0, fmt.Errorf("%s: %d series; expected one", t.Query, len(list))
	case len(list) == 0 && t.IgnoreNull:
		return 0, nil
	case len(list) == 0:
		return 0, fmt.Errorf("%s: no series", t.Query)
	}
	if v := list[0].Value; !math.IsInf(v, 0) && !math.IsNaN(v) || !t.IgnoreNull {
		return v, nil
	}
	return 0, nil
}

// counted returns the figure of trigger i for KEDA's poll or the HPA. Both count failures. After more consecutive
// failures than the threshold, the fallback's figure replaces the trigger's, and fallback is true.
func (m *Machine) counted(i int) (figure float64, fallback bool, err error) {
	t, f := &m.c.Triggers[i], m.c.Fallback
	v, err := m.figure(t)
	if err == nil {
		m.failures[i] = 0
		return v, false, nil
	}
	m.failure = err.Error()
	if m.failures[i]++; f == nil || m.failures[i] <= f.FailureThreshold {
		return 0, false, err
	}
	kind, target := t.Kind, t.Target
	if m.c.Formula != nil {
		kind, target = m.c.Formula.Kind, m.c.Formula.Target
	}
	figure = float64(target) / 1000 * float64(f.replicas(m.status.Wanted))
	if kind == Value {
		if figure /= float64(m.status.Ready); m.status.Ready == 0 {
			return 0, false, err
		}
	}
	return figure, true, nil
}

// composed returns the formula's figure, or the first fallback's. Without a fallback the failure of any trigger is an
// error.
func (m *Machine) composed() (figure float64, fallback bool, err error) {
	env := map[string]any{}
	for i := range m.c.Triggers {
		v, replaced, failed := m.counted(i)
		switch name := m.c.Triggers[i].Name; {
		case failed != nil:
			err = failed
		case !replaced:
			env[name] = v
		case m.c.Fallback.Behavior == ScalingModifiers:
			env[name] = nil
		case !fallback:
			figure, fallback = v, true
		}
	}
	switch {
	case fallback:
		return figure, true, nil
	case err != nil:
		return 0, false, err
	}
	figure, err = m.c.Formula.figure(env)
	if errors.Is(err, errNil) && m.c.Fallback != nil {
		return float64(m.c.Formula.Target) / 1000 * float64(m.c.Fallback.Replicas), true, nil
	}
	return figure, false, err
}

// asked is KEDA's poll: it starts the first replica if a trigger is active, and ends the last one if no trigger was
// active during the cooldown.
func (m *Machine) asked(fx *machine.Effects[Effect]) {
	active, failed := false, false
	if f := m.c.Formula; f != nil {
		v, _, err := m.composed()
		active, failed = err == nil && v > f.Activation, err != nil
	} else {
		for i := range m.c.Triggers {
			v, fallback, err := m.counted(i)
			active = active || fallback || err == nil && v > m.c.Triggers[i].Activation
			failed = failed || err != nil
		}
	}
	now, least := m.status.Wanted, m.c.Min
	switch {
	case active:
		m.active = m.now
		if now == 0 || m.c.Idle != nil && now < least {
			m.scale(max(1, least), "keda", "a trigger is active", fx)
		}
	case failed && (m.c.Fallback == nil || m.c.Fallback.Replicas > 0): // KEDA ends no replica while figures are missing
	case m.c.Idle == nil && now < least:
		m.scale(least, "keda", "there are fewer than minReplicaCount", fx)
	case m.now-m.active < m.c.Cooldown:
	case m.c.Idle != nil && now > *m.c.Idle:
		m.scale(*m.c.Idle, "keda", fmt.Sprintf("no trigger was active for %v", m.c.Cooldown), fx)
	case m.c.Idle == nil && least == 0 && now > 0:
		m.scale(0, "keda", fmt.Sprintf("no trigger was active for %v", m.c.Cooldown), fx)
	}
}

// synced is the HPA's action.
func (m *Machine) synced(fx *machine.Effects[Effect]) {
	spec, least, b := m.status.Wanted, max(1, m.c.Min), &m.c.Behavior
	switch {
	case spec == 0: // an HPA does nothing then
		return
	case spec > m.c.Max:
		m.scale(m.c.Max, "hpa", "there are more than the most", fx)
		return
	case spec < least:
		if m.c.Idle == nil || spec > *m.c.Idle {
			m.scale(least, "hpa", "there are fewer than the least", fx)
		}
		return
	}
	asked, why, ok := m.metrics()
	if !ok {
		return
	}
	to := m.memory.stabilized(m.now, b, spec, asked)
	to = m.memory.limited(m.now, b, spec, to, least, m.c.Max)
	m.scale(min(max(to, least), m.c.Max), "hpa", why, fx)
}

// metrics returns the largest number of replicas that a metric asks for, and the reason. It is not ok if all metrics
// fail, or if some fail and the number would fall.
func (m *Machine) metrics() (replicas int, why string, ok bool) {
	n := len(m.c.Triggers)
	if m.c.Formula != nil {
		n = 1
	}
	failed := 0
	replicas = -1
	for i := range n {
		r, text, err := m.metric(i)
		if err != nil {
			failed++
			m.failure = err.Error()
			continue
		}
		if r > replicas {
			replicas, why = r, text
		}
	}
	if failed == n || failed > 0 && replicas < m.status.Wanted {
		return 0, "", false
	}
	return replicas, why, true
}

// metric returns the replicas that metric i asks for, and the reason.
func (m *Machine) metric(i int) (int, string, error) {
	b, s := &m.c.Behavior, &m.status
	if f := m.c.Formula; f != nil {
		v, fallback, err := m.composed()
		return m.asks("formula", v, fallback, err, f.Kind, f.Target)
	}
	t := &m.c.Triggers[i]
	if !t.PerPod {
		v, fallback, err := m.counted(i)
		return m.asks(t.Name, v, fallback, err, t.Kind, t.Target)
	}
	list, err := m.store.Eval(t.Query, m.now)
	if err != nil {
		return 0, "", err
	}
	figures := make([]int64, len(list))
	for k := range list {
		figures[k] = thousandths(list[k].Value)
	}
	n, ok := b.perPod(figures, t.Target, s.Wanted, max(0, s.Replicas-len(figures)), 0)
	if !ok {
		return 0, "", fmt.Errorf("%s: no pod serves it", t.Name)
	}
	return n, fmt.Sprintf("%s of %d pods, target %s each", t.Name, len(figures), quantity(t.Target)), nil
}

// asks returns the replicas that a figure asks for, and the reason.
func (m *Machine) asks(
	name string, v float64, fallback bool, err error, kind TargetKind, target int64,
) (int, string, error) {
	if err != nil {
		return 0, "", err
	}
	figure, s, why := thousandths(v), &m.status, "%s is %s, target %s"
	if fallback {
		why = "%s failed too often: the fallback is %s, target %s"
	}
	n := m.c.Behavior.replicas(kind, figure, target, s.Wanted, s.Replicas, s.Ready)
	return n, fmt.Sprintf(why, name, quantity(figure), quantity(target)), nil
}

// replicas returns the replicas of a fallback.
func (f *Fallback) replicas(now int) int {
	switch f.Behavior {
	case CurrentReplicas:
		return now
	case CurrentReplicasIfHigher:
		return max(now, f.Replicas)
	case CurrentReplicasIfLower:
		return min(now, f.Replicas)
	}
	return f.Replicas
}

// quantity formats a figure in thousandths.
func quantity(v int64) string { return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64) }

// scale changes the number of replicas, if it differs.
func (m *Machine) scale(to int, by, why string, fx *machine.Effects[Effect]) {
	from := m.status.Wanted
	if to == from {
		return
	}
	if by == "hpa" {
		m.memory.changed(m.now, &m.c.Behavior, from, to)
	}
	m.status.Wanted = to
	fx.Add(Effect{At: m.now, Kind: Scale, From: from, To: to, By: by, Why: why})
}

// Failure returns the last failure of a query, "" without one.
func (m *Machine) Failure() string { return m.failure }

// Recommended returns the HPA's recent recommendations, oldest first.
func (m *Machine) Recommended() (out []int) {
	for _, r := range m.memory.recommended {
		out = append(out, r.to)
	}
	return out
}
