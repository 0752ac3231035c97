package picker

import (
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// Rewrite is one InferenceModelRewrite.
type Rewrite struct {
	Name  string
	Rules []RewriteRule
}

// RewriteRule redirects requests for some models to other models. Without Models it is generic and matches every
// request.
type RewriteRule struct {
	Models  []string
	Targets []RewriteTarget
}

// RewriteTarget is one model and its share of the requests. A nil Weight was not given.
type RewriteTarget struct {
	Model  string
	Weight *int32
}

// rule finds the rule for a model. An exact rule beats a generic one, even of another object; then the older object
// wins, then the earlier rule.
func (o *Objects) rule(model string) (*RewriteRule, string) {
	var generic *RewriteRule
	var genericName string
	for i := range o.Rewrites {
		rw := &o.Rewrites[i]
		for j := range rw.Rules {
			r := &rw.Rules[j]
			if slices.Contains(r.Models, model) {
				return r, rw.Name
			}
			if len(r.Models) == 0 && generic == nil {
				generic, genericName = r, rw.Name
			}
		}
	}
	return generic, genericName
}

// target draws one of a rule's models. If any target has a weight, those without get nothing; otherwise all are equal.
func (r *RewriteRule) target(d machine.Draw) string {
	var sum int64
	for _, t := range r.Targets {
		if t.Weight != nil && *t.Weight > 0 {
			sum += int64(*t.Weight)
		}
	}
	if len(r.Targets) == 0 {
		return ""
	}
	if sum == 0 {
		return r.Targets[d.Intn(len(r.Targets))].Model
	}
	n := int64(d.Uint64() % uint64(sum))
	for _, t := range r.Targets {
		if t.Weight == nil || *t.Weight <= 0 {
			continue
		}
		if n -= int64(*t.Weight); n < 0 {
			return t.Model
		}
	}
	return r.Targets[len(r.Targets)-1].Model
}

// resolveModel sets the target model. An object's rule for the body's model beats the rewrite header.
func (p *Picker) resolveModel(r *Request) *apierror.Error {
	if r.Body == nil || !r.Body.JSON() {
		if r.Body != nil {
			r.Model, r.TargetModel = r.Body.Model, r.Body.Model
		} else if r.TargetModel == "" {
			r.TargetModel = r.Model
		}
		return nil
	}
	r.Model, r.TargetModel = r.Body.Model, r.AskedModel()
	if rule, name := p.objects.rule(r.Model); rule != nil {
		r.TargetModel = rule.target(machine.DrawFor(p.opt.Seed^(p.seq+1)*0x9e3779b97f4a7c15, "picker", "rewrite", r.ID))
		r.Rewrite = name
	}
	if r.TargetModel == "" {
		return &apierror.Error{Status: 400, Message: "model not found in request body"}
	}
	return nil
}

// AskedModel returns the model that a client asks for: in its rewrite header, else in the body. Only an
// InferenceModelRewrite changes it.
func (r *Request) AskedModel() string {
	if r.Body.JSON() {
		if model := newer(r.Headers, HeadersModelRewrite); model != "" {
			return model
		}
	}
	return r.Body.Model
}

// ForwardDescribed returns the described body for the endpoint, nil if the body must be written.
func (r *Request) ForwardDescribed() *described.Body {
	if r.Body == nil || r.Body.Of() == nil {
		return nil
	}
	d := r.Body.Of()
	if len(r.Members) > 0 && r.Body.JSON() {
		return nil
	}
	if !r.Body.JSON() || r.TargetModel == r.Body.Model {
		return d
	}
	sample, err := parse.RewriteModel(d.Sample(), r.TargetModel)
	if err != nil {
		return nil
	}
	if f := d.Fields.With(sample); f != nil {
		return d.With(f)
	}
	return nil
}

// ForwardBody returns the body for the endpoint: the client's bytes, with the target model and the plug-ins' members.
func (r *Request) ForwardBody() ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	raw := r.Body.Raw()
	if !r.Body.JSON() {
		return raw, nil
	}
	for _, m := range r.Members {
		value, err := m.Value()
		if err != nil {
			return nil, err
		}
		if raw, err = parse.SetMember(raw, value, m.Path...); err != nil {
			return nil, err
		}
	}
	if r.TargetModel == r.Body.Model {
		return raw, nil
	}
	return parse.RewriteModel(raw, r.TargetModel)
}
