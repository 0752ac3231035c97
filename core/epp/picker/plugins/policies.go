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
	r := resolver{p}
	var err error
	if out.DefaultBand, err = r.band(
		&config.Band{FairnessPolicyRef: flowcontrol.GlobalStrict,
			OrderingPolicyRef: string(flowcontrol.FCFS)}); err != nil {
		return out, err
	}
	limit := func(ref string) error {
		pol, err := r.policy(ref, picker.KindUsageLimit)
		if err == nil {
			out.UsageLimit = pol.limit
		}
		return err
	}
	fc := p.Config().FlowControl
	if fc == nil || fc.UsageLimitPolicyPluginRef == "" {
		if err := limit(flowcontrol.StaticUsageLimit); err != nil {
			return out, err
		}
	} else if err := limit(fc.UsageLimitPolicyPluginRef); err != nil {
		return out, fmt.Errorf("flowControl.usageLimitPolicyPluginRef: %w", err)
	}
	if fc == nil {
		return out, nil
	}
	out.MaxBytes, out.MaxRequests = fc.MaxBytes.Value(), fc.MaxRequests.Value()
	if fc.DefaultRequestTTL != nil {
		out.RequestTTL = fc.DefaultRequestTTL.Time()
	}
	if fc.NoEndpointRequestTTL != nil {
		ttl := fc.NoEndpointRequestTTL.Time()
		out.NoEndpointTTL = &ttl
	}
	out.Eviction = fc.EnableEviction
	for i := range fc.PriorityBands {
		b, err := r.band(&fc.PriorityBands[i])
		if err != nil {
			return out, fmt.Errorf("flowControl.priorityBands[%d]: %w", i, err)
		}
		out.Bands = append(out.Bands, b)
	}
	if fc.DefaultPriorityBand != nil {
		if out.DefaultBand, err = r.band(fc.DefaultPriorityBand); err != nil {
			return out, fmt.Errorf("flowControl.defaultPriorityBand: %w", err)
		}
	}
	if fc.DefaultNegativePriorityBand != nil {
		b, err := r.band(fc.DefaultNegativePriorityBand)
		if err != nil {
			return out, fmt.Errorf("flowControl.defaultNegativePriorityBand: %w", err)
		}
		out.DefaultNegativeBand = &b
	}
	return out, out.Validate()
}

type resolver struct{ p *picker.Picker }

// defaultPolicies are the kinds of the policies that need no declaration.
var defaultPolicies = map[string]string{flowcontrol.GlobalStrict: picker.KindFairness,
	string(flowcontrol.FCFS): picker.KindOrdering, flowcontrol.StaticUsageLimit: picker.KindUsageLimit}

// policy finds a policy of a kind, a declared one or a default one.
func (r resolver) policy(ref, kind string) (*policy, error) {
	pl := r.p.Plugin(ref)
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

func (r resolver) band(b *config.Band) (flowcontrol.Band, error) {
	out := flowcontrol.Band{Priority: b.Priority, MaxBytes: b.MaxBytes.Value(), MaxRequests: b.MaxRequests.Value()}
	if b.DefaultRequestTTL != nil {
		ttl := b.DefaultRequestTTL.Time()
		out.RequestTTL = &ttl
	}
	fair, err := r.policy(cmp.Or(b.FairnessPolicyRef, flowcontrol.GlobalStrict),
		picker.KindFairness)
	if err != nil {
		return out, err
	}
	out.Fairness = flowcontrol.Fairness{Kind: fair.Type(), Instance: fair.Name(), Program: fair.program}
	order, err := r.policy(cmp.Or(b.OrderingPolicyRef, string(flowcontrol.FCFS)),
		picker.KindOrdering)
	if err != nil {
		return out, err
	}
	out.Ordering = flowcontrol.Ordering(order.Type())
	return out, nil
}
