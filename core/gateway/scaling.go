package gateway

import (
	"bytes"

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

// ScalerOf is the object that scales a workload, nil where none does, and its text with the rules
// of its namespace.
func (s *Set) ScalerOf(w *Workload) (*Scaler, []byte) {
	var found *Scaler
	var text [][]byte
	for i := range s.Scalers {
		switch x := &s.Scalers[i]; {
		case x.Namespace != w.Namespace:
		case x.TargetName == "":
			text = append(text, x.Text)
		case x.TargetKind == w.Kind && x.TargetName == w.Name:
			found, text = x, append(text, x.Text)
		}
	}
	if found == nil {
		return nil, nil
	}
	return found, bytes.Join(text, []byte("\n---\n"))
}
