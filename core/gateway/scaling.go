package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/picker/objects"
	"github.com/windtunnel/windtunnel/core/strictyaml"
)

// Scaler is an object that says how many replicas there are: a ScaledObject or a
// HorizontalPodAutoscaler, or a PrometheusRule for its queries, which is about no workload.
type Scaler struct {
	objects.Meta
	Kind string
	// TargetKind and TargetName are the workload's; KEDA takes a Deployment where no kind is given.
	TargetKind, TargetName string
	// Text is the object itself, which core/autoscaler reads.
	Text []byte
	At   strictyaml.Value
}

func readScaler(v strictyaml.Value, m objects.Meta) Scaler {
	x := Scaler{Meta: m, Kind: v.Get("kind").Text(), Text: v.Excerpt(), At: v}
	if to := v.Get("spec").Get("scaleTargetRef"); to.Given() {
		x.TargetKind, x.TargetName = to.Get("kind").Text(), to.Get("name").Text()
		if x.TargetKind == "" {
			x.TargetKind = "Deployment"
		}
	}
	return x
}

// ScaledBy is the workload that `autoscaling` of document 003's InferencePool scales: the only one of its
// pods, but for those that only prefill, which stay as many as they are. Where it scales none why says so;
// both are nothing where the pool says nothing of it.
func (s *Set) ScaledBy(p *objects.Pool) (w *Workload, why string) {
	if p.KServe == nil || p.KServe.MaxReplicas == 0 {
		return nil, ""
	}
	all := s.Selected(p.Namespace, p.Selector)
	decodes := slices.ContainsFunc(all, func(w *Workload) bool { return w.With(RoleSidecar) != nil })
	all = slices.DeleteFunc(all, func(w *Workload) bool {
		c, role := w.Serves()
		return c == nil || role == RoleKVManager || decodes && w.With(RoleSidecar) == nil
	})
	if len(all) != 1 {
		return nil, fmt.Sprintf("autoscaling has no effect: the pool's pods are of %d workloads; expected one",
			len(all))
	}
	if x, _ := s.ScalerOf(all[0]); x != nil {
		return nil, fmt.Sprintf("autoscaling has no effect: %s %s is scaled by %s %s", all[0].Kind, all[0].Name, x.Kind,
			x.Name)
	}
	return all[0], ""
}

// ScalerOf is the object that scales a workload, nil where none does, and its text with the rules
// of its namespace.
func (s *Set) ScalerOf(w *Workload) (*Scaler, []byte) {
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
	// What is in the scaler's file comes first, each line where it stands there.
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
