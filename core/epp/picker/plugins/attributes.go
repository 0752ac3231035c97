package plugins

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/plugins/dataproducer"
)

// utilizationFilter keeps endpoints for which all conditions hold.
type utilizationFilter struct {
	named
	Conditions []struct {
		Metric   string   `json:"metric" oneof:"active-requests,running-requests,waiting-queue,kv-cache-utilization"`
		MaxValue *float64 `json:"maxValue"`
	} `json:"conditions"`
	Fallback bool   `json:"fallbackOnEmpty"`
	Inflight string `json:"inFlightLoadProducerName"`

	load *dataproducer.Inflight
}

// Configure implements picker.Configurer.
func (f *utilizationFilter) Configure(b *picker.Builder, name string, p picker.Params) error {
	if len(f.Conditions) == 0 {
		return p.At("conditions").Expected("at least one condition")
	}
	for i, c := range f.Conditions {
		at := p.At(fmt.Sprintf("conditions[%d]", i))
		switch {
		case c.Metric == "":
			return at.At("metric").Expected("the figure that is compared, such as waiting-queue")
		case c.MaxValue == nil:
			return at.At("maxValue").Expected("the highest value of " + c.Metric)
		case *c.MaxValue < 0:
			return at.At("maxValue").Expected("zero or more")
		case c.Metric == "kv-cache-utilization" && *c.MaxValue > 1:
			return at.At("maxValue").Expected("at most 1: it is a fraction")
		case c.Metric == "active-requests":
			dataproducer.FindInflight(b, f.Inflight, name, &f.load)
		}
	}
	return nil
}

// Filter keeps endpoints below all limits.
func (f *utilizationFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	ok := func(i int32) bool {
		s := c.State(i)
		for _, cond := range f.Conditions {
			v := s.KVUsage
			switch cond.Metric {
			case "active-requests":
				v = float64(f.load.RequestsAt(s.Slot()))
			case "running-requests":
				v = float64(s.Running)
			case "waiting-queue":
				v = float64(s.Waiting)
			}
			if v > *cond.MaxValue {
				return false
			}
		}
		return true
	}
	return keepOr(in, ok, f.Fallback)
}

// attributeFilter compares one custom metric with a threshold.
type attributeFilter struct {
	named
	Attribute string  `json:"attribute"`
	Producer  *string `json:"producer"`
	OnMissing string  `json:"onMissing" oneof:"Pass,Fail"`
	Fallback  bool    `json:"fallbackOnEmpty"`
	Algorithm struct {
		Type      string `json:"type" oneof:"threshold"`
		Threshold *struct {
			Operator string  `json:"operator" oneof:"LessThan,LessThanOrEqual,GreaterThan,GreaterThanOrEqual,Equal,NotEqual"`
			Value    float64 `json:"value"`
		} `json:"threshold"`
	} `json:"algorithm"`
}

var newAttributeFilter = picker.Of(attributeFilter{OnMissing: "Pass"})

// Configure implements picker.Configurer.
func (f *attributeFilter) Configure(_ *picker.Builder, name string, p picker.Params) error {
	a := &f.Algorithm
	switch {
	case f.Attribute == "":
		return p.At("attribute").Expected("the attribute's name")
	case a.Type == "":
		return p.At("algorithm.type").Expected("threshold")
	case a.Threshold == nil:
		return p.At("algorithm.threshold").Expected("an operator and a value")
	case a.Threshold.Operator == "":
		return p.At("algorithm.threshold.operator").Expected("a comparison such as LessThan")
	}
	return nil
}

var compare = map[string]func(a, b float64) bool{
	"LessThan":           func(a, b float64) bool { return a < b },
	"LessThanOrEqual":    func(a, b float64) bool { return a <= b },
	"GreaterThan":        func(a, b float64) bool { return a > b },
	"GreaterThanOrEqual": func(a, b float64) bool { return a >= b },
	"Equal":              func(a, b float64) bool { return a == b },
	"NotEqual":           func(a, b float64) bool { return a != b },
}

// Filter keeps endpoints whose attribute passes.
func (f *attributeFilter) Filter(c *picker.Cycle, in []int32) []int32 {
	op := compare[f.Algorithm.Threshold.Operator]
	return keepOr(in, func(i int32) bool {
		v, ok := c.State(i).Custom[f.Attribute]
		if !ok {
			return f.OnMissing == "Pass"
		}
		return op(v, f.Algorithm.Threshold.Value)
	}, f.Fallback)
}

// attributeScorer scores one custom metric linearly.
type attributeScorer struct {
	named
	Key       string  `json:"attributeKey"`
	Producer  *string `json:"producer"`
	Algorithm struct {
		Type          string `json:"type" oneof:"linear_lower_is_better,linear_higher_is_better"`
		Normalization struct {
			Fixed *struct {
				Min float64 `json:"min"`
				Max float64 `json:"max"`
			} `json:"fixedRange"`
			Adaptive *struct{} `json:"adaptiveRange"`
		} `json:"normalization"`
	} `json:"algorithm"`
}

// Configure implements picker.Configurer.
func (s *attributeScorer) Configure(_ *picker.Builder, name string, p picker.Params) error {
	n := &s.Algorithm.Normalization
	switch {
	case s.Key == "":
		return p.At("attributeKey").Expected("the attribute's name")
	case s.Algorithm.Type == "":
		return p.At("algorithm.type").Expected("linear_lower_is_better or linear_higher_is_better")
	case n.Fixed != nil && n.Adaptive != nil:
		return p.At("algorithm.normalization.adaptiveRange").Errorf(
			"given beside fixedRange; expected one of them")
	case n.Fixed != nil && n.Fixed.Min >= n.Fixed.Max:
		return p.At("algorithm.normalization.fixedRange").Errorf("min %v and max %v; expected min < max",
			n.Fixed.Min, n.Fixed.Max)
	}
	return nil
}

// Score is linear in the attribute; endpoints without it score 0.
func (s *attributeScorer) Score(c *picker.Cycle, in []int32, scores []float64) {
	low, high, any := 0.0, 0.0, false
	for _, i := range in {
		v, ok := c.State(i).Custom[s.Key]
		if !ok {
			continue
		}
		if !any {
			low, high, any = v, v, true
		}
		low, high = min(low, v), max(high, v)
	}
	if f := s.Algorithm.Normalization.Fixed; f != nil {
		low, high = f.Min, f.Max
	}
	for j, i := range in {
		v, ok := c.State(i).Custom[s.Key]
		switch {
		case !ok:
		case low == high:
			scores[j] = 1
		default:
			n := max(0, min(1, (v-low)/(high-low)))
			if s.Algorithm.Type == "linear_lower_is_better" {
				n = 1 - n
			}
			scores[j] = n
		}
	}
}
