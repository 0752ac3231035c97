package plugins

import (
	"cmp"
	"fmt"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// policy is a flow-control policy: fairness, ordering, usage limit or
// eviction. It decides nothing here; FlowControl hands its parameters to the
// flow-control machine.
type policy struct {
	named
	kind    string // picker.KindFairness and the like
	program flowcontrol.Program
	limit   flowcontrol.UsageLimit
}

func (pol *policy) itself() *policy { return pol }

// programPolicy is program-aware-fairness. Flow control does the work of its
// hooks, which are there to be counted as the real one's.
type programPolicy struct{ policy }

// PreRequest and ResponseBody do nothing.
func (*programPolicy) PreRequest(*picker.Cycle) {}

func (*programPolicy) ResponseBody(machine.Time, *picker.Response) {}

// newPolicy makes the factory of a policy type of a kind. Types without parameters ignore them, as the real EPP does.
func newPolicy(kind, typ string) picker.Factory {
	return func(_ *picker.Builder, _ string, p picker.Params) (picker.Plugin, error) {
		pol := &policy{kind: kind, limit: flowcontrol.UsageLimit{Kind: typ}}
		var err error
		switch typ {
		case flowcontrol.ProgramAware:
			x := &programPolicy{*pol}
			x.program = flowcontrol.DefaultProgram()
			if err = p.Decode(&x.program); err == nil {
				err = p.Locate(x.program.Validate())
			}
			return x, err
		case flowcontrol.StaticUsageLimit:
			pol.CallType(typ + "-type") // like the real policy
			pol.limit.Threshold = 1
			err = p.Decode(&pol.limit)
		case flowcontrol.SoftReflectiveCeiling:
			err = p.Decode(&struct{}{})
		case flowcontrol.PriorityHoldback:
			err = p.Decode(&pol.limit.Holdback)
		}
		if err == nil && kind == picker.KindUsageLimit {
			err = p.Locate(pol.limit.Validate())
		}
		return pol, err
	}
}

// FlowControl returns the configuration of the flow-control machine for a picker,
// with its policies and its detector resolved. Errors name what is missing.
func FlowControl(p *picker.Picker) (flowcontrol.Config, error) {
	out := flowcontrol.DefaultConfig()
	switch d := p.Detector().(type) {
	case *utilizationDetector:
		out.Detector = flowcontrol.Detector{Kind: flowcontrol.UtilizationDetectorType, Utilization: d.Utilization}
	case *concurrencyDetector:
		out.Detector = flowcontrol.Detector{Kind: flowcontrol.ConcurrencyDetectorType, Concurrency: d.Concurrency}
	default:
		return out, fmt.Errorf("flowControl.saturationDetector: type %s cannot pace the queue; use %s or %s",
			d.Type(), flowcontrol.UtilizationDetectorType, flowcontrol.ConcurrencyDetectorType)
	}
	// The defaults are plug-ins, too, and a declared one of that name counts.
	fc := cmp.Or(p.Config().FlowControl, &config.FlowControl{})
	var err error
	band := func(where string, b *config.Band) (out flowcontrol.Band) {
		if err == nil {
			if out, err = bandOf(p, b); err != nil {
				err = fmt.Errorf("flowControl.%s: %w", where, err)
			}
		}
		return out
	}
	out.DefaultBand = band("defaultPriorityBand", cmp.Or(fc.DefaultPriorityBand, &config.Band{}))
	if b := fc.DefaultNegativePriorityBand; b != nil {
		out.DefaultNegativeBand = new(band("defaultNegativePriorityBand", b))
	}
	for i := range fc.PriorityBands {
		out.Bands = append(out.Bands, band(fmt.Sprintf("priorityBands[%d]", i), &fc.PriorityBands[i]))
	}
	if err != nil {
		return out, err
	}
	limit, err := policyOf(p, cmp.Or(fc.UsageLimitPolicyPluginRef, flowcontrol.StaticUsageLimit), picker.KindUsageLimit)
	if err != nil {
		return out, fmt.Errorf("flowControl.usageLimitPolicyPluginRef: %w", err)
	}
	out.UsageLimit, out.Eviction = limit.limit, fc.EnableEviction
	out.MaxBytes, out.MaxRequests = fc.MaxBytes.Value(), fc.MaxRequests.Value()
	if fc.DefaultRequestTTL != nil {
		out.RequestTTL = fc.DefaultRequestTTL.Time()
	}
	if fc.NoEndpointRequestTTL != nil {
		out.NoEndpointTTL = new(fc.NoEndpointRequestTTL.Time())
	}
	return out, out.Validate()
}

// defaultPolicies are the kinds of the policies that need no declaration.
var defaultPolicies = map[string]string{flowcontrol.GlobalStrict: picker.KindFairness,
	string(flowcontrol.FCFS): picker.KindOrdering, flowcontrol.StaticUsageLimit: picker.KindUsageLimit}

// policyOf finds a policy of a kind, a declared one or a default one.
func policyOf(p *picker.Picker, ref, kind string) (*policy, error) {
	pl := p.Plugin(ref)
	if pl == nil {
		if kind, ok := defaultPolicies[ref]; ok {
			return &policy{named: picker.NewBase(ref, ref), kind: kind,
				limit: flowcontrol.DefaultConfig().UsageLimit}, nil
		}
		return nil, fmt.Errorf("plugin %q not found; declare it under plugins", ref)
	}
	if x, ok := pl.(interface{ itself() *policy }); ok && x.itself().kind == kind {
		return x.itself(), nil
	}
	return nil, picker.TypeError(pl, kind)
}

func bandOf(p *picker.Picker, b *config.Band) (flowcontrol.Band, error) {
	out := flowcontrol.Band{Priority: b.Priority, MaxBytes: b.MaxBytes.Value(), MaxRequests: b.MaxRequests.Value()}
	if b.DefaultRequestTTL != nil {
		out.RequestTTL = new(b.DefaultRequestTTL.Time())
	}
	fair, err := policyOf(p, cmp.Or(b.FairnessPolicyRef, flowcontrol.GlobalStrict), picker.KindFairness)
	if err != nil {
		return out, err
	}
	out.Fairness = flowcontrol.Fairness{Kind: fair.Type(), Instance: fair.Name(), Program: fair.program}
	order, err := policyOf(p, cmp.Or(b.OrderingPolicyRef, string(flowcontrol.FCFS)), picker.KindOrdering)
	if err != nil {
		return out, err
	}
	out.Ordering = flowcontrol.Ordering(order.Type())
	return out, nil
}
