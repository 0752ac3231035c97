package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Lifecycle is how the pool's model servers start and end.
type Lifecycle struct {
	// How long a server that joins takes until it serves: scheduling, image, weights. The servers at the beginning of
	// the run serve at once.
	Startup dist.Dist `json:"startup" above:"0s" max:"24h"`
	// How long a server that leaves still takes requests from proxies that do not know yet (a preStop hook that
	// sleeps).
	PreStop time.Duration `json:"preStop" min:"0s" max:"24h" default:"5s"`
	// How long a server that leaves has to finish its requests, preStop included (terminationGracePeriodSeconds). The
	// requests that it has not finished by then break off.
	GracePeriod time.Duration `json:"gracePeriod" min:"1ms" max:"24h" default:"30s"`
}

func (l *Lifecycle) defaults() { l.Startup = deployment.DefaultStartup() }

// Price is the cost of a pool's accelerators.
type Price struct {
	// The cost of one accelerator for an hour, in USD.
	PerGPUHour float64 `json:"perGPUHour" min:"0.0001" max:"10000"`
	// The source of the price and its date, such as "list price of a cloud, 2026-05-20".
	Source string `json:"source"`
}

// Autoscaling changes the number of a pool's, or a group's, model servers while requests are under way: KEDA and a
// HorizontalPodAutoscaler over the endpoint picker's metrics, as in llm-d.
type Autoscaling struct {
	// A ScaledObject or a HorizontalPodAutoscaler, with the PrometheusRules that it needs: the path of its file, or the
	// object itself. It replaces all other fields here except the intervals.
	Manifest Manifest `json:"manifest"`
	// The signal that decides: queue (waiting and running requests at the picker; llm-d's recommendation), queue-guard
	// (the same, less the servers that are still starting), saturation (the pool's, and running requests), tokens
	// (seconds of prefill in flight), kv-cache (the model servers' use of it), latency (p90 of TTFT and TPOT, as a part
	// of their objectives).
	Signal Signal `json:"signal" oneof:"queue,queue-guard,saturation,tokens,kv-cache,latency" default:"queue"`
	// The fewest servers; 0 lets the last one end after a cooldownPeriod without requests.
	MinReplicas int `json:"minReplicas" min:"0" max:"2048" default:"1"`
	// The most servers.
	MaxReplicas int `json:"maxReplicas" min:"1" max:"2048"`
	// The targets of the signal.
	Targets Targets `json:"targets"`
	// Queries in place of the signal's. The one that asks for the most servers counts.
	Triggers []ScalingTrigger `json:"triggers" max:"32"`
	// How fast the number may rise. Left out: as in llm-d's guide for the signal.
	ScaleUp ScalingRules `json:"scaleUp"`
	// How fast it may fall. Left out: as in llm-d's guide for the signal.
	ScaleDown ScalingRules `json:"scaleDown"`
	// How often Prometheus scrapes.
	ScrapeInterval time.Duration `json:"scrapeInterval" min:"1ms" max:"1h"`
	// How often the HorizontalPodAutoscaler evaluates its metrics.
	SyncPeriod time.Duration `json:"syncPeriod" min:"1ms" max:"1h"`
	// How often KEDA evaluates its triggers. Left out: 15s, or the manifest's.
	PollingInterval time.Duration `json:"pollingInterval" min:"1ms" max:"1h"`
	// How long after the last active trigger the last server ends, with minReplicas 0. Left out: 300s, or the
	// manifest's.
	CooldownPeriod time.Duration `json:"cooldownPeriod" min:"0s" max:"24h"`

	read *autoscaler.Manifest // set by prepare
}

// Targets are the targets of each signal.
type Targets struct {
	// Requests that wait at the picker, for each server.
	Queue float64 `json:"queue" min:"0.001" max:"1000000"`
	// Requests under way, for each server.
	Running float64 `json:"running" min:"0.001" max:"1000000"`
	// The pool's saturation.
	Saturation float64 `json:"saturation" min:"0.001" max:"1000"`
	// Prefill in flight for each server, as a time at prefillThroughput.
	Backlog time.Duration `json:"backlog" min:"1ms" max:"1h"`
	// How many prompt tokens a server computes in a second; signal tokens needs it.
	PrefillThroughput float64 `json:"prefillThroughput" min:"0.001" max:"1000000000"`
	// The used part of a server's KV cache.
	KVCache float64 `json:"kvCache" min:"0.001" max:"1"`
	// The objective for the time to the first token. Left out: workload.slo's.
	TTFT time.Duration `json:"ttft" min:"1us" max:"24h"`
	// The objective for the time per output token. Left out: workload.slo's.
	TPOT time.Duration `json:"tpot" min:"1us" max:"24h"`
}

// ScalingTrigger is one query.
type ScalingTrigger struct {
	// The trigger's name, unique among the triggers.
	Name string `json:"name"`
	// PromQL over the metrics of the endpoint picker (llm_d_epp_...) and of the model servers (vllm:..., with the label
	// pod).
	Query string `json:"query"`
	// The target for the figure.
	Target float64 `json:"target" min:"0.001" max:"1000000000000"`
	// AverageValue divides the figure by the servers; Value does not.
	MetricType autoscaler.TargetKind `json:"metricType" oneof:"AverageValue,Value" default:"AverageValue"`
	// The figure above which KEDA starts the first server, with minReplicas 0.
	Activation float64 `json:"activation" min:"0" max:"1000000000000"`
}

// ScalingRules are those of one direction.
type ScalingRules struct {
	// The time over which recommendations count: the number rises to the lowest of them, and falls to the highest.
	StabilizationWindow time.Duration `json:"stabilizationWindow" min:"0s" max:"1h"`
	// The largest change within a period.
	Policies []ScalingPolicy `json:"policies" max:"32"`
	// Which of several policies counts: Max, Min, or Disabled for no change at all.
	SelectPolicy autoscaler.SelectPolicy `json:"selectPolicy" oneof:"Max,Min,Disabled" default:"Max"`
	// How far the figure may be from the target without any change, as a part of it.
	Tolerance float64 `json:"tolerance" min:"0" max:"10"`

	given bool // the file has a window
}

func (r *ScalingRules) defaults() { r.Tolerance = autoscaler.DefaultTolerance }

// ScalingPolicy allows a change within a period.
type ScalingPolicy struct {
	// Pods counts servers, Percent a part of the current servers.
	Type autoscaler.PolicyType `json:"type" oneof:"Pods,Percent"`
	// The number of servers, or the percentage.
	Value int `json:"value" min:"1" max:"1000000"`
	// The period of the change.
	Period time.Duration `json:"period" min:"1ms" max:"30m"`
}

// Signal is the metric that decides the number of servers.
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

func (a *Autoscaling) defaults() {
	a.Targets = Targets{Queue: 1, Running: 16, Saturation: 0.7, Backlog: 1500 * time.Millisecond, KVCache: 0.8}
	a.ScrapeInterval, a.SyncPeriod = autoscaler.DefaultScrape.Duration(), autoscaler.DefaultSync.Duration()
}

// Manifest is the text of Kubernetes objects, and the file that holds it.
type Manifest struct {
	File    string
	Text    []byte
	targets bool // its scaleTargetRef counts
}

// Given reports whether the scenario has one.
func (m *Manifest) Given() bool { return m.File != "" }

// ReadYAML reads a mapping as the object itself, and a text as the path of its file.
func (m *Manifest) ReadYAML(v strictyaml.Value) (out strictyaml.Problems) {
	m.File, m.Text, out = objectOrPath(v, "a ScaledObject or HorizontalPodAutoscaler")
	return out
}

// Deployment is a group of equal servers of a pool, whose number may change.
type Deployment struct {
	// Name is the pool's, with the group or the role.
	Name string
	// Group is the group's name, "" where there are none.
	Group string
	// Prefills reports whether its servers only prefill.
	Prefills bool
	// First is the index of its first server. Places is how many indexes it has, since a server that leaves keeps its
	// index for a while.
	First, Places int
	// Replicas is the number of servers at the beginning.
	Replicas int
	// Autoscaling changes their number; nil where only incidents do.
	Autoscaling *Autoscaling
	lifecycle   *Lifecycle
	group       *ServerGroup // nil where the pool has none
	server      *ModelServer
	apart       bool // the pool has servers that only prefill
}

// Deployments returns the pool's Deployments in the order of their servers' indexes.
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
		d.Replicas *= d.server.ranks()
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

// ReservePlaces prepares every pool of simulated servers for a user who stops servers during the run, and adds as many
// again, 2 to 16.
func (s *Scenario) ReservePlaces() {
	for i := range s.Pools {
		p := &s.Pools[i]
		if p.byHand = len(p.Endpoints) == 0; p.byHand && s.Ports.Servers == 0 {
			p.reserved = max(2, min(16, p.Replicas))
		}
	}
}

// joins returns how many servers incidents may add to a group.
func (p *Pool) joins(group string) (n int) {
	n = p.reserved
	for i := range p.Incidents {
		if x := &p.Incidents[i]; x.What == AddServer && x.Group == group {
			n += max(1, x.Count)
		}
	}
	return n
}

// Lives reports whether servers join or leave in the run.
func (p *Pool) Lives() bool {
	return p.reserved > 0 || p.Scales() || slices.ContainsFunc(p.Incidents,
		func(x Incident) bool { return x.What == AddServer || x.What == DrainServer })
}

// Scales reports whether an autoscaler changes the number of servers.
func (p *Pool) Scales() bool {
	return p.Autoscaling.Given() ||
		slices.ContainsFunc(p.Groups, func(g ServerGroup) bool { return g.Autoscaling.Given() })
}

// scales reports whether an autoscaler changes the number of servers of a group, or of a pool without groups.
func (p *Pool) scales(group string) bool {
	return slices.ContainsFunc(p.Deployments(),
		func(d Deployment) bool { return d.Group == group && !d.Prefills && d.Autoscaling != nil })
}

// Given reports whether the number of servers changes by itself.
func (a *Autoscaling) Given() bool { return a.MaxReplicas > 0 || a.Manifest.Given() }

// most returns the largest number of servers.
func (a *Autoscaling) most() int {
	if a.read != nil {
		return a.read.Config.Max
	}
	return a.MaxReplicas
}

// checkAutoscaling checks the autoscaling at a path that the file has.
func (s *checker) checkAutoscaling(p *Pool, a *Autoscaling, path string) {
	add := func(field, found, expected string) { s.bad(path+field, found, expected) }
	if !s.written(path) {
		return
	}
	if a.Manifest.Given() {
		s.refuse(path, []string{"signal", "minReplicas", "maxReplicas", "targets", "triggers", "scaleUp", "scaleDown"},
			"given beside manifest", "one of them: the manifest says it")
	} else if a.MaxReplicas == 0 {
		add(".maxReplicas", "missing", "the most servers that there may be, or a manifest")
	} else if a.MinReplicas > a.MaxReplicas {
		add(".minReplicas", fmt.Sprintf("%d, with maxReplicas %d", a.MinReplicas, a.MaxReplicas),
			"at most maxReplicas")
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
		names[t.Name] = true
		s.need(path+at+".target", t.Target > 0, "the target for the figure")
		s.need(path+at+".query", t.Query != "", "PromQL such as sum(llm_d_epp_request_running)")
	}
	for _, r := range []struct {
		field string
		rules *ScalingRules
	}{{".scaleUp", &a.ScaleUp}, {".scaleDown", &a.ScaleDown}} {
		for i, x := range r.rules.Policies {
			at := fmt.Sprintf("%s%s.policies[%d]", path, r.field, i)
			s.need(at+".type", x.Type != "", "Pods or Percent")
			s.need(at+".value", x.Value > 0, "how many")
			s.need(at+".period", x.Period > 0, "the time in which they may change, such as 15s")
		}
	}
}

// checkLifecycles checks how a pool's servers start and end, and the price.
func (s *checker) checkLifecycles(p *Pool, path string) {
	s.checkAutoscaling(p, &p.Autoscaling, path+".autoscaling")
	if len(p.Groups) > 0 && s.written(path+".autoscaling") {
		s.bad(path+".autoscaling", "given beside groups", "autoscaling of a group: each has a number of its own")
	}
	for i := range p.Groups {
		s.checkAutoscaling(p, &p.Groups[i].Autoscaling, fmt.Sprintf("%s.groups[%d].autoscaling", path, i))
	}
	for _, d := range p.Deployments() {
		if d.Autoscaling != nil && d.server.ranks() > 1 {
			s.bad(path, fmt.Sprintf("autoscaling of replicas with %d data-parallel ranks", d.server.ranks()),
				"modelServer.dataParallelSize: 1, or a fixed number of replicas: servers start and end one by one")
		}
	}
	if l := &p.Lifecycle; l.PreStop >= l.GracePeriod && s.written(path+".lifecycle") {
		s.bad(path+".lifecycle.preStop", fmt.Sprintf("%v, with gracePeriod %v", l.PreStop, l.GracePeriod),
			"less than gracePeriod, which includes it")
	}
	if n := p.Servers(); n > mostServers {
		s.bad(path, fmt.Sprintf("there may be %d servers at once, those that leave included", n),
			fmt.Sprintf("up to %d", mostServers))
	}
	if s.written(path + ".price") {
		s.need(path+".price.source", p.Price.Source != "", "the source of the price and its date")
		s.need(path+".price.perGPUHour", p.Price.PerGPUHour > 0, "the cost of one accelerator for an hour, in USD")
	}
}

// mostServers is the largest number of servers of a pool.
const mostServers = 16384

// readManifests reads the manifests of a pool's autoscalers.
func (s *checker) readManifests(p *Pool, path, dir string) {
	read := func(a *Autoscaling, at string) {
		if !a.Given() {
			return
		}
		if m := &a.Manifest; m.Given() {
			at += ".manifest"
			if m.Text == nil {
				s.readFile(at, dir, m.File, "the path of a file with a ScaledObject or HorizontalPodAutoscaler, from "+
					"the scenario's own directory", MaxFileBytes, func(file string, text []byte) error {
					m.File, m.Text = file, text
					return nil
				})
				if m.Text == nil {
					return
				}
			}
		}
		if err := a.prepare(s.Scenario, p); err != nil {
			s.add(s.root.At(at).ProblemsOf(err)...)
		}
	}
	read(&p.Autoscaling, path+".autoscaling")
	for i := range p.Groups {
		read(&p.Groups[i].Autoscaling, fmt.Sprintf("%s.groups[%d].autoscaling", path, i))
	}
}

// prepare sets the autoscaler's configuration: the manifest's, or the signal's.
func (a *Autoscaling) prepare(s *Scenario, p *Pool) (err error) {
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
				"scaleTargetRef has no effect: the manifest's place in the scenario names the servers")
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
		s.assume(fmt.Sprintf("pool %s: autoscaling: %s", p.Name, note))
	}
	return nil
}

// unknown returns a note for each metric of the queries that no part of the run serves.
func (a *Autoscaling) unknown(p *Pool) (out []string) {
	c := &a.read.Config
	out = c.Unknown()
	for _, name := range c.Names() {
		by := ""
		switch {
		case strings.HasPrefix(name, "llm_d_epp_flow_control_") && !p.EPP.Config.flowControl:
			by = "only with flow control (featureGates: [flowControl] in epp.config)"
		case strings.HasPrefix(name, "llm_d_epp_inflight_") && !p.EPP.Config.inflight:
			by = "only by the plug-in inflight-load-producer (plugins in epp.config)"
		default:
			continue
		}
		out = append(out, fmt.Sprintf("%s is served %s; without it, the metric has no value", name, by))
	}
	return out
}

// scaler returns the configuration of a Deployment's autoscaler.
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

// takes reports whether the servers that an incident adds join this Deployment.
func (d *Deployment) takes(x *Incident) bool {
	return d.Group == x.Group && (d.group != nil || !d.Prefills)
}

// DeploymentOf returns the Deployment of the server with this index, or nil for an external server.
func (p *Pool) DeploymentOf(index int) *Deployment {
	for _, d := range p.Deployments() {
		if index < d.First+d.Places {
			return &d
		}
	}
	return nil
}

// Cost returns the price of a Deployment's accelerators, their number per server, and their name.
func (p *Pool) Cost(d *Deployment) (price Price, gpus int, accelerator string) {
	price = p.Price
	if d.group != nil && d.group.Price.PerGPUHour > 0 {
		price = d.group.Price
	}
	return price, max(1, d.server.TensorParallelSize), d.server.acceleratorName()
}
