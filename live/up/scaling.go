package up

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/plan"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/scaling/deployment"
	"github.com/windtunnel/windtunnel/live/replicas"
)

// Scaling sets how fast replicas come and go. Unset fields have the defaults of scenarios.
type Scaling struct {
	// Startup is the time from a pod's creation by an autoscaler until the pod is ready: by default 100 to 240 s.
	Startup *dist.Dist
	// Scrape is Prometheus' scrape interval, Sync the HorizontalPodAutoscaler's: by default 15 s.
	Scrape, Sync machine.Time
}

// scaled is a workload with an autoscaler that runs here. Up.applying guards it.
type scaled struct {
	u     *Up
	rule  *plan.Scaling
	there map[int]bool // its ready pods, by their numbers
	run   *replicas.Driver
	ended bool // later effects are ignored
	last  time.Time
}

// ready returns the numbers of the ready pods of workloads with an autoscaler, by the workloads' keys.
func (u *Up) ready() map[string][]int {
	out := map[string][]int{}
	for key, x := range u.scaled {
		out[key] = slices.Sorted(maps.Keys(x.there))
	}
	return out
}

// scales puts the rules of a change that is in force into effect.
func (u *Up) scales(rules map[string]*plan.Scaling) {
	for key, x := range u.scaled {
		if rules[key] == nil {
			x.ended = true
			delete(u.scaled, key)
			u.unscaled.Go(x.run.Stop) // the driver may be about to call apply
		}
	}
	for key, r := range rules {
		config := r.Config
		config.Every(cmp.Or(u.o.Scaling.Scrape, autoscaler.DefaultScrape),
			cmp.Or(u.o.Scaling.Sync, autoscaler.DefaultSync))
		x := u.scaled[key]
		if x != nil {
			was := x.rule
			x.rule = r
			if was.Rule() != r.Rule() {
				x.run.Scale(&config)
			}
			continue
		}
		x = &scaled{u: u, rule: r, there: map[int]bool{}}
		for i := range r.Workload.Replicas {
			x.there[i] = true
		}
		startup := deployment.DefaultStartup()
		if given := u.o.Scaling.Startup; given != nil {
			startup = *given
		}
		u.scaled[key] = x
		// Apply handles Drained, and makes sure that no client uses a pod when it stops.
		x.run = replicas.Start(replicas.Options{Scaler: &config, Happens: x.happens, Scaled: x.decided,
			Pickers: x.pickers, Servers: x.servers, Log: u.Log,
			Deployment: deployment.New(
				deployment.Config{Name: key, Places: 2 * autoscaler.MaxReplicas, Replicas: r.Workload.Replicas,
					Startup: startup, Grace: 2 * machine.FromDuration(drained)})})
	}
}

// unscale stops all autoscalers.
func (u *Up) unscale() {
	u.applying.Lock()
	list := slices.Collect(maps.Values(u.scaled))
	for _, x := range list {
		x.ended = true
	}
	u.applying.Unlock()
	for _, x := range list {
		x.run.Stop()
	}
	u.unscaled.Wait()
}

func (x *scaled) report(format string, args ...any) {
	w := x.rule.Workload
	x.u.o.Report(fmt.Sprintf("%s %s/%s: ", w.Kind, w.Namespace, w.Name) + fmt.Sprintf(format, args...))
}

// decided records and reports a new number of replicas.
func (x *scaled) decided(e autoscaler.Effect) {
	x.u.applying.Lock()
	defer x.u.applying.Unlock()
	if x.ended {
		return
	}
	x.last = time.Now()
	x.u.Happens(record.Event{Hop: record.Server, Step: record.Scaled, Details: e.Details(x.rule.Workload.Name)})
	x.report("%s %s scales it from %d to %d replicas: %s", x.rule.Kind, x.rule.Name, e.From, e.To, e.Why)
}

// happens adds or removes a pod in the same way as an edit of replicas.
func (x *scaled) happens(e deployment.Effect) {
	u := x.u
	u.applying.Lock()
	defer u.applying.Unlock()
	if x.ended {
		return
	}
	switch e.Kind {
	case deployment.Joined:
		x.there[e.Pod] = true
	case deployment.Left:
		delete(x.there, e.Pod)
	}
	if e.Kind != deployment.Joined && !(e.Kind == deployment.Left && e.Was) {
		return
	}
	if err := u.apply(u.life, u.applied.Objects); err != nil {
		x.report("ready replicas: %d, which are not in force until the next change: %v", len(x.there), err)
		return
	}
	x.report("ready replicas: %d", len(x.there))
}

// gone reports that a pod has finished its requests.
func (x *scaled) gone(p *pod) { x.run.Input(deployment.Idle{Pod: p.Replica}) }

// pools returns the backends that have the workload's pods as endpoints.
func (x *scaled) pools() (out []*gateway.Backend) {
	w := x.rule.Workload
	for _, b := range x.u.applied.Program.Backends {
		if b.Pool != nil && b.Namespace == w.Namespace && b.Pool.Selector.Matches(w.Pods) {
			out = append(out, b)
		}
	}
	return out
}

// pickers returns the metrics pages of the pools' pickers.
func (x *scaled) pickers() (out []replicas.Target) {
	x.u.applying.Lock()
	defer x.u.applying.Unlock()
	pools := x.pools()
	for _, p := range x.u.applied.Pickers {
		if slices.Contains(pools, p.Backend) {
			out = append(out, replicas.Target{Name: p.Name(), Address: x.u.pickers[p.Key()].server.MetricsAddr()})
		}
	}
	return out
}

// servers returns the metrics pages of the pools' model servers.
func (x *scaled) servers() (out []replicas.Target) {
	x.u.applying.Lock()
	defer x.u.applying.Unlock()
	pools := x.pools()
	for _, p := range sorted(x.u.pods) {
		ours := p.Workload.Key() == x.rule.Workload.Key() ||
			slices.ContainsFunc(pools, func(b *gateway.Backend) bool {
				return b.Namespace == p.Workload.Namespace && b.Pool.Selector.Matches(p.Workload.Pods)
			})
		if p.model == "" || !ours {
			continue
		}
		var at []string
		for _, port := range slices.Sorted(maps.Keys(p.At)) {
			if p.Sidecar == nil || p.At[port] != p.Sidecar.Addr() {
				at = append(at, p.At[port])
			}
		}
		for i, address := range at { // each data-parallel rank has its own page
			t := replicas.Target{Name: p.PodName, Address: address}
			if len(at) > 1 {
				t.Name = fmt.Sprintf("%s-rank-%d", p.PodName, i)
			}
			out = append(out, t)
		}
	}
	return out
}

// ScaledWorkload is a workload whose number of replicas an autoscaler decides.
type ScaledWorkload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	By        string `json:"by"` // the kind and name of the autoscaler
	Min       int    `json:"minReplicas"`
	Max       int    `json:"maxReplicas"`
	Wanted    int    `json:"replicas"`
	Ready     int    `json:"readyReplicas"`
	last      time.Time
	rule      *plan.Scaling
}

// scaledWorkloads returns all of them. The caller has locked Up.applying.
func (u *Up) scaledWorkloads() (out []ScaledWorkload) {
	for _, key := range slices.Sorted(maps.Keys(u.scaled)) {
		x := u.scaled[key]
		w, c := x.rule.Workload, &x.rule.Config
		out = append(out, ScaledWorkload{w.Kind, w.Namespace, w.Name, x.rule.Kind + " " + x.rule.Name, c.Min, c.Max,
			x.run.Status().Wanted, len(x.there), x.last, x.rule})
	}
	return out
}

// status returns the status that controllers write into the workload and into the HorizontalPodAutoscaler.
func (x *ScaledWorkload) status() (out []map[string]any) {
	add := func(version, kind, name string, status map[string]any) {
		out = append(out, map[string]any{"apiVersion": version, "kind": kind,
			"metadata": map[string]any{"name": name, "namespace": x.Namespace}, "status": status})
	}
	if x.Kind == "Deployment" {
		add("apps/v1", x.Kind, x.Name,
			map[string]any{"replicas": x.Wanted, "readyReplicas": x.Ready, "availableReplicas": x.Ready})
	}
	name := "keda-hpa-" + x.rule.Name // KEDA's name for it
	if x.rule.Kind == "HorizontalPodAutoscaler" {
		name = x.rule.Name
	}
	status := map[string]any{"currentReplicas": x.Ready, "desiredReplicas": x.Wanted}
	if !x.last.IsZero() {
		status["lastScaleTime"] = x.last.UTC().Format(time.RFC3339)
	}
	add("autoscaling/v2", "HorizontalPodAutoscaler", name, status)
	return out
}
