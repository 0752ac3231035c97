package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/scaling/autoscaler"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// Scaler is an object that sets the number of replicas: a ScaledObject or a HorizontalPodAutoscaler. It may also be a
// PrometheusRule, for its queries, without a workload.
type Scaler struct {
	objects.Meta
	Kind string
	// TargetKind and TargetName name the workload. KEDA's default kind is Deployment.
	TargetKind, TargetName string
	// Text is the object itself, for core/scaling/autoscaler.
	Text []byte
	At   strictyaml.Value
}

func readScaler(v strictyaml.Value, m objects.Meta) Scaler {
	x := Scaler{Meta: m, Kind: v.Get("kind").Text(), Text: v.Excerpt(), At: v}
	if to := v.Get("spec").Get("scaleTargetRef"); to.Given() {
		x.TargetKind, x.TargetName = to.Get("kind").Text(), to.Get("name").Text()
		x.TargetKind = cmp.Or(x.TargetKind, "Deployment")
	}
	return x
}

// Scaling decides the number of a workload's replicas: an autoscaler among the objects, or `autoscaling` of document
// 003's InferencePool.
type Scaling struct {
	objects.Meta // the object that decides
	Kind         string
	At           strictyaml.Value // of an autoscaler; zero for an InferencePool
	Workload     *Workload
	// Text is the autoscaler, with the rules of its namespace. It is nil for an InferencePool.
	Text []byte
	// Pool is the InferencePool. It is nil for an autoscaler.
	Pool *objects.Pool
}

// Scalings returns the Scalings of all workloads, at most one for each, and notes about objects without effect.
func (s *Set) Scalings() (out []Scaling, notes []string) {
	for i := range s.Workloads {
		w := &s.Workloads[i]
		x, text := s.scalerOf(w)
		if x == nil {
			continue
		}
		if c, role := w.Serves(); c == nil || role != RoleServer && role != RoleOther {
			notes = append(notes, fmt.Sprintf("%s:%d: %s %s: it has no effect: %s %s runs no model server", x.File,
				x.Line, x.Kind, x.Name, w.Kind, w.Name))
			continue
		}
		scaling := Scaling{Meta: x.Meta, Kind: x.Kind, At: x.At, Workload: w, Text: text}
		if read, err := scaling.Read(); err == nil && len(read.Config.Triggers) == 0 {
			notes = append(notes, read.Notes...)
			continue
		}
		out = append(out, scaling)
	}
	for i := range s.Pools {
		p := &s.Pools[i]
		w, why := s.ScaledBy(p)
		if why != "" {
			notes = append(notes,
				fmt.Sprintf("%s:%d: InferencePool %s/%s: %s", p.File, p.Line, p.Namespace, p.Name, why))
		}
		if w != nil {
			out = append(out, Scaling{Meta: p.Meta, Kind: "InferencePool", Workload: w, Pool: p})
		}
	}
	return out, notes
}

// ScalingOf returns a workload's Scaling, or nil.
func (s *Set) ScalingOf(w *Workload) *Scaling {
	all, _ := s.Scalings()
	for i := range all {
		if all[i].Workload == w {
			return &all[i]
		}
	}
	return nil
}

// Read parses the object. The notes of the result name the object.
func (x *Scaling) Read() (*autoscaler.Manifest, error) {
	at := fmt.Sprintf("%s:%d: %s %s: ", x.File, x.Line, x.Kind, x.Name)
	read := &autoscaler.Manifest{}
	if x.Pool == nil {
		var err error
		if read, err = autoscaler.ReadManifest(x.File, x.Text); err != nil {
			return nil, err
		}
	} else {
		k := x.Pool.KServe
		read.Config = autoscaler.Config{KEDA: true, Min: int(k.MinReplicas), Max: int(k.MaxReplicas),
			Behavior: autoscaler.DefaultBehavior(), Poll: autoscaler.PoolPoll, Cooldown: autoscaler.DefaultCooldown}
		if k.MinReplicas > k.MaxReplicas {
			return nil, fmt.Errorf("%sautoscaling: minReplicas %d; expected up to maxReplicas, %d", at,
				k.MinReplicas, k.MaxReplicas)
		}
		for _, kind := range slices.Sorted(maps.Keys(k.ScaleTargets)) {
			if !read.Config.Hint(kind, k.ScaleTargets[kind]) {
				read.Notes = append(read.Notes, "autoscaling.targetMetrics: nothing here reports "+kind)
			}
		}
	}
	if n := read.Config.Max; n > autoscaler.MaxReplicas {
		return nil, fmt.Errorf("%smaxReplicas %d; expected up to %d", at, n, autoscaler.MaxReplicas)
	}
	read.Notes = append(read.Notes, read.Config.Unknown()...)
	for i := range read.Notes {
		read.Notes[i] = at + read.Notes[i]
	}
	return read, nil
}

// Rule returns the object's rule as one text. Equal texts decide equally.
func (x *Scaling) Rule() string {
	if x.Pool == nil {
		return strings.Join(strings.Fields(string(x.Text)), " ")
	}
	k := x.Pool.KServe
	return fmt.Sprint(k.MinReplicas, k.MaxReplicas, k.ScaleTargets)
}

// ScaledBy returns the workload that `autoscaling` of document 003's InferencePool scales. It is the only workload of
// the pool's pods, apart from prefill workers, whose number does not change. Where there is no such workload, why gives
// the reason. Both are empty where the pool has no `autoscaling`.
func (s *Set) ScaledBy(p *objects.Pool) (w *Workload, why string) {
	if p.KServe == nil || p.KServe.MaxReplicas == 0 {
		return nil, ""
	}
	all := s.Selected(p.Namespace, p.Selector)
	decodes := slices.ContainsFunc(all, func(w *Workload) bool { return w.With(RoleSidecar) != nil })
	all = slices.DeleteFunc(all, func(w *Workload) bool {
		c, role := w.Serves()
		return c == nil || role != RoleServer && role != RoleOther || decodes && w.With(RoleSidecar) == nil
	})
	if len(all) != 1 {
		return nil, fmt.Sprintf("autoscaling has no effect: the pool's pods are of %d workloads; expected one",
			len(all))
	}
	if x, _ := s.scalerOf(all[0]); x != nil {
		return nil, fmt.Sprintf("autoscaling has no effect: %s %s is scaled by %s %s", all[0].Kind, all[0].Name, x.Kind,
			x.Name)
	}
	return all[0], ""
}

// scalerOf returns the object that scales a workload, or nil, and its text with the rules of its namespace.
func (s *Set) scalerOf(w *Workload) (*Scaler, []byte) {
	var found *Scaler
	var rules []*Scaler
	for i := range s.Scalers {
		switch x := &s.Scalers[i]; {
		case x.Namespace != w.Namespace:
		case x.TargetName == "":
			rules = append(rules, x)
		case x.TargetKind == w.Kind && x.TargetName == w.Name && found == nil:
			found = x
		}
	}
	if found == nil {
		return nil, nil
	}
	// The scaler's file comes first, so that each line keeps its number.
	all := append(rules, found)
	slices.SortStableFunc(all, func(a, b *Scaler) int {
		if x, y := a.File == found.File, b.File == found.File; x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.At.Line(), b.At.Line())
	})
	var text []byte
	for i, x := range all {
		if i > 0 {
			text = append(bytes.TrimRight(text, "\n"), "\n---\n"...)
		}
		body := bytes.TrimLeft(x.Text, "\n")
		above := len(x.Text) - len(body) - bytes.Count(text, []byte("\n"))
		text = append(append(text, bytes.Repeat([]byte("\n"), max(0, above))...), body...)
	}
	return found, text
}
