package scenario

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Lifecycle is how the pool's model servers come and go.
type Lifecycle struct {
	// How long a server that joins takes until it serves: scheduling, image, weights. Those that are there when the run
	// begins serve at once.
	Startup dist.Dist `json:"startup" above:"0s" max:"24h"`
	// How long a server that leaves goes on taking requests of those who do not know yet (a preStop hook that sleeps).
	PreStop time.Duration `json:"preStop" min:"0s" max:"24h"`
	// How long a server that leaves has to finish what it has, preStop included (terminationGracePeriodSeconds). What
	// it has not finished by then breaks off.
	GracePeriod time.Duration `json:"gracePeriod" min:"1ms" max:"24h"`
}

func (l *Lifecycle) defaults() {
	l.Startup = deployment.DefaultStartup()
	l.PreStop, l.GracePeriod = 5*time.Second, 30*time.Second
}

// Price is what a pool's accelerators cost.
type Price struct {
	// What one accelerator costs in an hour, in USD.
	PerGPUHour float64 `json:"perGPUHour" min:"0.0001" max:"10000"`
	// Who says so, and when, such as "list price of a cloud, 2026-05-20".
	Source string `json:"source"`
}

// Autoscaling is what changes the number of a pool's, or a group's, model servers while
// requests are under way: KEDA and a HorizontalPodAutoscaler over the endpoint picker's
// metrics, as llm-d has it.
type Autoscaling struct {
	// A ScaledObject or a HorizontalPodAutoscaler, with PrometheusRules that it needs, in place of all else here but
	// the intervals: the path of its file, or written here in place.
	Manifest Manifest `json:"manifest"`
	// What decides: queue (waiting and running requests at the picker; llm-d's recommendation), queue-guard (the same,
	// less the servers that are still starting), saturation (the pool's, and running requests), tokens (seconds of
	// prefill in flight), kv-cache (the model servers' use of it), latency (p90 of TTFT and TPOT, as a part of their
	// objectives).
	Signal Signal `json:"signal"`
	// The fewest servers; 0 lets the last one end where nothing was asked for cooldownPeriod.
	MinReplicas int `json:"minReplicas" min:"0" max:"2048"`
	// The most servers.
	MaxReplicas int `json:"maxReplicas" min:"1" max:"2048"`
	// What signal aims at.
	Targets Targets `json:"targets"`
	// Queries in place of signal's: the largest number of servers that one asks for counts.
	Triggers []ScalingTrigger `json:"triggers" max:"32"`
	// How fast the number may rise. Left out, what llm-d's guide for the signal says.
	ScaleUp ScalingRules `json:"scaleUp"`
	// How fast it may fall. Left out, what llm-d's guide for the signal says.
	ScaleDown ScalingRules `json:"scaleDown"`
	// How often Prometheus scrapes.
	ScrapeInterval time.Duration `json:"scrapeInterval" min:"1ms" max:"1h"`
	// How often the HorizontalPodAutoscaler looks.
	SyncPeriod time.Duration `json:"syncPeriod" min:"1ms" max:"1h"`
	// How often KEDA looks whether a trigger is active. Left out: 15s, or what the manifest says.
	PollingInterval time.Duration `json:"pollingInterval" min:"1ms" max:"1h"`
	// How long after the last active trigger the last server ends, with minReplicas 0. Left out: 300s, or what the
	// manifest says.
	CooldownPeriod time.Duration `json:"cooldownPeriod" min:"0s" max:"24h"`

	read *autoscaler.Manifest // what the manifest says
}

// Targets are what each signal aims at.
type Targets struct {
	// Requests that wait at the picker, for each server.
	Queue float64 `json:"queue" min:"0.001" max:"1000000"`
	// Requests under way, for each server.
	Running float64 `json:"running" min:"0.001" max:"1000000"`
	// The pool's saturation.
	Saturation float64 `json:"saturation" min:"0.001" max:"1000"`
	// Prefill in flight for each server, as the time that it takes at prefillThroughput.
	Backlog time.Duration `json:"backlog" min:"1ms" max:"1h"`
	// How many prompt tokens a server computes in a second; signal tokens needs it.
	PrefillThroughput float64 `json:"prefillThroughput" min:"0.001" max:"1000000000"`
	// The part of a server's KV cache that is in use.
	KVCache float64 `json:"kvCache" min:"0.001" max:"1"`
	// The objective for the time to the first token; left out, workload.slo's.
	TTFT time.Duration `json:"ttft" min:"1us" max:"24h"`
	// The objective for the time per output token; left out, workload.slo's.
	TPOT time.Duration `json:"tpot" min:"1us" max:"24h"`
}

// ScalingTrigger is one query.
type ScalingTrigger struct {
	// What it is called.
	Name string `json:"name"`
	// PromQL over the metrics of the endpoint picker (llm_d_epp_...) and of the model servers (vllm:..., with the label
	// pod).
	Query string `json:"query"`
	// What the figure is held against.
	Target float64 `json:"target" min:"0.001" max:"1000000000000"`
	// AverageValue divides the figure by the servers; Value does not.
	MetricType MetricType `json:"metricType"`
	// Above which figure the first server is started, with minReplicas 0.
	Activation float64 `json:"activation" min:"0" max:"1000000000000"`
}

func (t *ScalingTrigger) defaults() { t.MetricType = MetricType(autoscaler.AverageValue) }

// ScalingRules are those of one direction.
type ScalingRules struct {
	// For how long recommendations are looked back at: up goes to the lowest of them, down to the highest.
	StabilizationWindow time.Duration `json:"stabilizationWindow" min:"0s" max:"1h"`
	// How much may change within a period.
	Policies []ScalingPolicy `json:"policies" max:"32"`
	// Which of several policies counts: Max, Min, or Disabled for no change at all.
	SelectPolicy SelectPolicy `json:"selectPolicy"`
	// How far figure and target may be apart without any change.
	Tolerance float64 `json:"tolerance" min:"0" max:"10"`

	given bool // the window is
}

func (r *ScalingRules) defaults() {
	r.SelectPolicy, r.Tolerance = SelectPolicy(autoscaler.MaxChange), autoscaler.DefaultTolerance
}

// ScalingPolicy allows a change within a period.
type ScalingPolicy struct {
	// Pods counts servers, Percent the part of those that there are.
	Type PolicyType `json:"type"`
	// How many.
	Value int `json:"value" min:"1" max:"1000000"`
	// In which time.
	Period time.Duration `json:"period" min:"1ms" max:"30m"`
}

// Signal is what decides about the number of servers.
type Signal string

// The signals.
const (
	QueueSignal      Signal = "queue"
	GuardSignal      Signal = "queue-guard"
	SaturationSignal Signal = "saturation"
	TokensSignal     Signal = "tokens"
	KVCacheSignal    Signal = "kv-cache"
	LatencySignal    Signal = "latency"
)

func (Signal) Values() []string {
	return []string{"queue", "queue-guard", "saturation", "tokens", "kv-cache", "latency"}
}

// MetricType, SelectPolicy and PolicyType are autoscaling/v2's words.
type (
	MetricType   autoscaler.TargetKind
	SelectPolicy autoscaler.SelectPolicy
	PolicyType   autoscaler.PolicyType
)

func (MetricType) Values() []string   { return []string{"AverageValue", "Value"} }
func (SelectPolicy) Values() []string { return []string{"Max", "Min", "Disabled"} }
func (PolicyType) Values() []string   { return []string{"Pods", "Percent"} }

func (a *Autoscaling) defaults() {
	a.Signal, a.MinReplicas = QueueSignal, 1
	a.Targets = Targets{Queue: 1, Running: 16, Saturation: 0.7, Backlog: 1500 * time.Millisecond, KVCache: 0.8}
	a.ScrapeInterval, a.SyncPeriod = autoscaler.DefaultScrape.Duration(), autoscaler.DefaultSync.Duration()
}

// Manifest is Kubernetes objects: where they stand, and their text.
type Manifest struct {
	File string
	Text []byte
	// targets says that its scaleTargetRef counts.
	targets bool
}

// Given says whether there is one.
func (m *Manifest) Given() bool { return m.File != "" }

// ReadYAML takes a mapping as the object itself and text as the path of its file.
func (m *Manifest) ReadYAML(v strictyaml.Value) strictyaml.Problems {
	switch text := v.Scalar(); {
	case v.IsMapping():
		m.File, m.Text = v.File(), v.Excerpt()
	case text != "":
		m.File = text
	default:
		return strictyaml.Problems{
			v.Problem(v.Found(), "a ScaledObject or HorizontalPodAutoscaler, or the path of its file", "")}
	}
	return nil
}

// Deployment is servers of a pool that are alike and whose number may change.
type Deployment struct {
	// Name is the pool's, with the group or the role.
	Name string
	// Group is the group's name, "" where there are none.
	Group string
	// Prefills says that its servers only prefill.
	Prefills bool
	// First is the index of its first server, and Places how many indexes it has: those that
	// leave keep theirs for a while.
	First, Places int
	// Replicas are there from the beginning.
	Replicas int
	// Autoscaling is what changes their number; nil where only incidents do.
	Autoscaling *Autoscaling
	lifecycle   *Lifecycle
	group       *ServerGroup // nil where the pool has none
	server      *ModelServer // how each behaves
	apart       bool         // the pool has servers that only prefill
}

// Deployments are the pool's, by the indexes of their servers.
func (p *Pool) Deployments() (out []Deployment) {
	at := 0
	add := func(d Deployment) {
		d.Name, d.lifecycle, d.server, d.apart = p.Name, &p.Lifecycle, &p.ModelServer,
			p.Disaggregation.PrefillReplicas > 0
		switch {
		case d.group != nil:
			d.Group, d.server = d.group.Name, &d.group.ModelServer
			d.Name += "-" + d.Group
		case d.Prefills:
			d.Name += "-prefill"
		}
		d.Places = d.Replicas
		if d.group != nil || !d.Prefills {
			d.Places += p.joins(d.Group)
		}
		if a := d.Autoscaling; a != nil {
			d.Places = max(d.Replicas, 2*a.most())
		}
		d.First = at
		at += d.Places
		out = append(out, d)
	}
	scaled := func(a *Autoscaling) *Autoscaling {
		if a.Given() {
			return a
		}
		return nil
	}
	if len(p.Groups) == 0 {
		if p.Replicas > 0 {
			add(Deployment{Replicas: p.Replicas, Autoscaling: scaled(&p.Autoscaling)})
		}
		if n := p.Disaggregation.PrefillReplicas; n > 0 {
			add(Deployment{Prefills: true, Replicas: n})
		}
		return out
	}
	for _, role := range []ServerRole{DecodeRole, PrefillRole} {
		for i := range p.Groups {
			if g := &p.Groups[i]; g.Role == role {
				add(Deployment{group: g, Prefills: role == PrefillRole, Replicas: g.Replicas,
					Autoscaling: scaled(&g.Autoscaling)})
			}
		}
	}
	return out
}

// Spare gives every pool of simulated servers places for as many more as it has, 2 to 16, that
// somebody may have join while it is played.
func (s *Scenario) Spare() {
	for i := range s.Pools {
		if p := &s.Pools[i]; len(p.Endpoints) == 0 && s.Ports.Servers == 0 {
			p.spare = max(2, min(16, p.Replicas))
		}
	}
}

// joins is how many servers may join a group in the run, by incidents.
func (p *Pool) joins(group string) (n int) {
	n = p.spare
	for i := range p.Incidents {
		if x := &p.Incidents[i]; x.What == AddServer && x.Group == group {
			n += max(1, x.Count)
		}
	}
	return n
}

// Lives says whether servers come or go in the run.
func (p *Pool) Lives() bool {
	if p.spare > 0 {
		return true
	}
	for i := range p.Incidents {
		if k := p.Incidents[i].What; k == AddServer || k == DrainServer {
			return true
		}
	}
	return p.Scales()
}

// Scales says whether the number of servers depends on the run.
func (p *Pool) Scales() bool {
	if p.Autoscaling.Given() {
		return true
	}
	for i := range p.Groups {
		if p.Groups[i].Autoscaling.Given() {
			return true
		}
	}
	return false
}

// scales says whether the number of a group's servers, or of the pool's where it has no groups,
// depends on the run.
func (p *Pool) scales(group string) bool {
	for _, d := range p.Deployments() {
		if d.Group == group && !d.Prefills && d.Autoscaling != nil {
			return true
		}
	}
	return false
}

// Given says whether the number of servers changes by itself.
func (a *Autoscaling) Given() bool { return a.MaxReplicas > 0 || a.Manifest.Given() }

// most is how many servers there may be.
func (a *Autoscaling) most() int {
	if a.read != nil {
		return a.read.Config.Max
	}
	return a.MaxReplicas
}

// checkAutoscaling tells what is wrong with one, where the file has it.
func (s *Scenario) checkAutoscaling(p *Pool, a *Autoscaling, path string) Problems {
	var out Problems
	add := func(field, found, expected string) { out = append(out, s.problem(path+field, found, expected)) }
	if !s.written(path) {
		return nil
	}
	if a.Manifest.Given() {
		for _, field := range []string{"signal", "minReplicas", "maxReplicas", "targets", "triggers", "scaleUp",
			"scaleDown"} {
			if s.written(path + "." + field) {
				add("."+field, "given beside manifest", "one of them: the manifest says it")
			}
		}
	} else if a.MaxReplicas == 0 {
		add(".maxReplicas", "missing", "the most servers that there may be, or a manifest")
	} else if a.MinReplicas > a.MaxReplicas {
		add(".minReplicas", fmt.Sprintf("%d, with maxReplicas %d", a.MinReplicas, a.MaxReplicas),
			"no more than maxReplicas")
	}
	switch {
	case len(p.Endpoints) > 0:
		add("", "given beside endpoints", "simulated model servers (replicas): nobody starts someone else's")
	case a.Signal == TokensSignal && a.Targets.PrefillThroughput == 0 && !a.Manifest.Given() && len(a.Triggers) == 0:
		add(".targets.prefillThroughput", "missing with signal tokens",
			"how many prompt tokens a server computes in a second")
	case a.Signal == LatencySignal && !a.Manifest.Given() && len(a.Triggers) == 0 &&
		cmp.Or(a.Targets.TTFT, s.Workload.SLO.TTFT, a.Targets.TPOT, s.Workload.SLO.TPOT) == 0:
		add(".targets", "no objective with signal latency", "targets.ttft or targets.tpot, or workload.slo")
	}
	if len(a.Triggers) > 0 && (s.written(path+".signal") || s.written(path+".targets")) {
		add(".triggers", "given beside signal or targets", "one of them: triggers say it all")
	}
	a.ScaleUp.given, a.ScaleDown.given = s.written(path+".scaleUp.stabilizationWindow"),
		s.written(path+".scaleDown.stabilizationWindow")
	names := map[string]bool{}
	for i, t := range a.Triggers {
		at := fmt.Sprintf(".triggers[%d]", i)
		if t.Name == "" || names[t.Name] {
			add(at+".name", found(t.Name), "a name of its own for the trigger")
		}
		if names[t.Name] = true; t.Target == 0 {
			add(at+".target", "missing", "what the figure is held against")
		}
		if t.Query == "" {
			add(at+".query", "missing", "PromQL such as sum(llm_d_epp_request_running)")
		}
	}
	for _, r := range []struct {
		field string
		rules *ScalingRules
	}{{".scaleUp", &a.ScaleUp}, {".scaleDown", &a.ScaleDown}} {
		for i, x := range r.rules.Policies {
			at := fmt.Sprintf("%s.policies[%d]", r.field, i)
			if x.Type == "" {
				add(at+".type", "missing", "Pods or Percent")
			}
			if x.Value == 0 {
				add(at+".value", "missing", "how many")
			}
			if x.Period == 0 {
				add(at+".period", "missing", "the time in which they may change, such as 15s")
			}
		}
	}
	return out
}

// checkLifecycles tells what is wrong with how a pool's servers come and go.
func (s *Scenario) checkLifecycles(p *Pool, path string) Problems {
	out := s.checkAutoscaling(p, &p.Autoscaling, path+".autoscaling")
	if len(p.Groups) > 0 && s.written(path+".autoscaling") {
		out = append(out, s.problem(path+".autoscaling", "given beside groups",
			"autoscaling of a group: each has a number of its own"))
	}
	for i := range p.Groups {
		out = append(out, s.checkAutoscaling(p, &p.Groups[i].Autoscaling,
			fmt.Sprintf("%s.groups[%d].autoscaling", path, i))...)
	}
	if l := &p.Lifecycle; l.PreStop >= l.GracePeriod && s.written(path+".lifecycle") {
		out = append(out, s.problem(path+".lifecycle.preStop",
			fmt.Sprintf("%v, with gracePeriod %v", l.PreStop, l.GracePeriod),
			"less than gracePeriod, which it is part of"))
	}
	if n := p.Servers(); n > mostServers && p.Lives() {
		out = append(out, s.problem(path, fmt.Sprintf("there may be %d servers at once, those that leave included", n),
			fmt.Sprintf("up to %d", mostServers)))
	}
	if p.Price.Source == "" && s.written(path+".price") {
		out = append(out, s.problem(path+".price.source", "missing",
			"who says so, and when: a price without a source is nobody's"))
	}
	if p.Price.PerGPUHour == 0 && s.written(path+".price") {
		out = append(out, s.problem(path+".price.perGPUHour", "missing",
			"what one accelerator costs in an hour, in USD"))
	}
	return out
}

// mostServers is how many a pool may have.
const mostServers = 16384

// readManifests reads the manifests of a pool's autoscalers.
func (s *Scenario) readManifests(p *Pool, path, dir string) (out Problems) {
	read := func(a *Autoscaling, at string) {
		if !a.Given() {
			return
		}
		if m := &a.Manifest; m.Given() {
			at += ".manifest"
			if m.Text == nil {
				var wrong Problems
				m.File, m.Text, wrong = s.readFile(at, dir, m.File, "the path of a file with a ScaledObject or "+
					"HorizontalPodAutoscaler, from the scenario's own directory", MaxFileBytes)
				if out = append(out, wrong...); len(wrong) > 0 {
					return
				}
			}
		}
		if err := a.prepare(s, p); err != nil {
			out = append(out, s.root.At(at).Told(err)...)
		}
	}
	read(&p.Autoscaling, path+".autoscaling")
	for i := range p.Groups {
		read(&p.Groups[i].Autoscaling, fmt.Sprintf("%s.groups[%d].autoscaling", path, i))
	}
	return out
}

// prepare works out what decides, once.
func (a *Autoscaling) prepare(s *Scenario, p *Pool) error {
	var err error
	if a.Manifest.Given() {
		if a.read, err = autoscaler.ReadManifest(a.Manifest.File, a.Manifest.Text); err != nil {
			return err
		}
		if len(a.read.Config.Triggers) == 0 {
			return fmt.Errorf("%s: the HorizontalPodAutoscaler has no metric that acts here; expected one of type "+
				"External or Pods", a.Manifest.File)
		}
		if a.read.Targets && !a.Manifest.targets {
			a.read.Notes = append(a.read.Notes,
				"scaleTargetRef has no effect: it says the servers where it stands in the scenario")
		}
	} else {
		a.read = &autoscaler.Manifest{
			Config: autoscaler.Config{KEDA: true, Min: a.MinReplicas, Max: a.MaxReplicas, Poll: autoscaler.PoolPoll,
				Cooldown: autoscaler.DefaultCooldown}}
		if err = a.ofSignal(s); err != nil {
			return err
		}
	}
	if a.read.Config.Max > autoscaler.MaxReplicas {
		return fmt.Errorf("%s: maxReplicas %d; expected up to %d", a.Manifest.File, a.read.Config.Max,
			autoscaler.MaxReplicas)
	}
	for _, note := range append(a.read.Notes, a.unknown(p)...) {
		s.assumed = append(s.assumed, fmt.Sprintf("pool %s: autoscaling: %s", p.Name, note))
	}
	return nil
}

// unknown says which metrics of the queries nobody here tells.
func (a *Autoscaling) unknown(p *Pool) (out []string) {
	c := &a.read.Config
	out = c.Unknown()
	for _, name := range c.Names() {
		by := ""
		switch {
		case strings.HasPrefix(name, "llm_d_epp_flow_control_") && !p.EPP.Config.flowControl:
			by = "with flow control alone (featureGates: [flowControl] in epp.config)"
		case strings.HasPrefix(name, "llm_d_epp_inflight_") && !p.EPP.Config.inflight:
			by = "by the plug-in inflight-load-producer alone (plugins in epp.config)"
		default:
			continue
		}
		out = append(out, fmt.Sprintf("%s is told %s; without it, it reads as nothing", name, by))
	}
	return out
}

// scaler is what decides about a Deployment's servers.
func (s *Scenario) scaler(d *Deployment) autoscaler.Config {
	a := d.Autoscaling
	c := a.read.Config
	c.Name, c.Seed = d.Name, s.Seed
	c.Every(machine.FromDuration(a.ScrapeInterval), machine.FromDuration(a.SyncPeriod))
	if a.PollingInterval > 0 {
		c.Poll = machine.FromDuration(a.PollingInterval)
	}
	if a.CooldownPeriod > 0 {
		c.Cooldown = machine.FromDuration(a.CooldownPeriod)
	}
	return c
}

// takes says whether servers that join by an incident join this Deployment.
func (d *Deployment) takes(x *Incident) bool {
	return d.Group == x.Group && (d.group != nil || !d.Prefills)
}

// DeploymentOf is that of the server with this index; nil where somebody else runs it.
func (p *Pool) DeploymentOf(index int) *Deployment {
	for _, d := range p.Deployments() {
		if index < d.First+d.Places {
			return &d
		}
	}
	return nil
}

// Cost is the price of a Deployment's accelerators, how many each server has, and what they are.
func (p *Pool) Cost(d *Deployment) (price Price, gpus int, accelerator string) {
	price = p.Price
	if d.group != nil && d.group.Price.PerGPUHour > 0 {
		price = d.group.Price
	}
	return price, max(1, d.server.TensorParallelSize), d.server.acceleratorName()
}
