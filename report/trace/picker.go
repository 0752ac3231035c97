package trace

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/wire/tracing"
)

// Scopes of the real picker's spans.
const (
	scopeHandlers = "llm-d-router/pkg/epp/handlers"
	scopeControl  = "llm-d-router/pkg/epp/requestcontrol"
	scopeSchedule = "llm-d-router/pkg/epp/scheduling"
	scopePlugins  = "llm-d-router/pkg/epp/framework/plugins/scheduling"
)

// eventSteps are the picker's steps that are events of its gateway.request span, which lasts from a request's headers
// to its end.
var eventSteps = []record.Step{record.Part1Sent, record.RequestPassed, record.FirstTokenSeen, record.MetadataGenerated,
	record.Part2Sent,
	record.CallFailed}

// picker adds the endpoint picker's spans of a try. It returns false without events of the picker.
func (b *builder) picker(n int, parent SpanID) (SpanID, bool) {
	events := b.of(record.EPP, n)
	if len(events) == 0 {
		return SpanID{}, false
	}
	part := Part{Service: "llm-d-epp", Instance: text(detail(events, "picker"))}
	prefix := fmt.Sprintf("%d/epp/", n)
	parent = b.below(events, parent)
	root := b.add(tracing.Gateway(n),
		Span{Name: "gateway.request", Kind: ServerOf, Part: part, Scope: scopeHandlers, Parent: parent,
			Start: events[0].Time, End: events[len(events)-1].Time})
	for _, e := range events {
		if slices.Contains(eventSteps, e.Step) {
			root.Marks = append(root.Marks, Mark{e.Time, string(e.Step), simple(e.Details)})
		}
	}
	if e, ok := first(events, record.Answered, record.StreamFailed); ok {
		root.Error = strings.TrimSpace(
			fmt.Sprint(cmp.Or(e.Details.Get("reason"), any("")), " ", cmp.Or(whole(e.Details.Get("status")), any(""))))
	}
	id := root.ID
	picked, ok := first(events, record.EndpointPicked)
	if !ok {
		return id, true
	}
	end := picked
	if sent, ok := first(events, record.Part1Sent, record.RequestPassed); ok {
		end = sent
	}
	var x picker.Explanation
	err := decision(picked, &x)
	s := b.add(prefix+"orchestration",
		Span{Name: "gateway.request_orchestration", Kind: ServerOf, Part: part, Scope: scopeControl, Parent: id,
			Start: events[0].Time, End: end.Time})
	s.set("target_model", cmp.Or(x.TargetModel, text(picked.Details.Get("model"))))
	s.set("request_prio", x.Priority)
	if err != nil {
		s.Marks = append(s.Marks, Mark{picked.Time, "explanation", []Attribute{record.D("error", err.Error())}})
		return id, true
	}
	b.schedule(s.ID, prefix, part, &x, max(events[0].Time, picked.Time-seconds(x.TookSeconds)), picked.Time)
	return id, true
}

// simple returns the details that can be attributes.
func simple(d record.Details) (out []Attribute) {
	for _, x := range d {
		switch x.Value.(type) {
		case string, bool, int, float64:
			out = append(out, record.D(x.Key, whole(x.Value)))
		}
	}
	return out
}

func seconds(s float64) machine.Time { return machine.Time(s * 1e9) }

// scheduling places the spans of one decision one after the other, each with its plug-in's recorded time, within the
// decision's time.
type scheduling struct {
	b      *builder
	x      *picker.Explanation
	part   Part
	now    machine.Time
	end    machine.Time
	prefix string
}

func (c *scheduling) add(key, name, scope string, parent SpanID, took float64) *Span {
	start := c.now
	c.now = min(c.end, c.now+seconds(took))
	return c.b.add(c.prefix+key,
		Span{Name: name, Kind: Internal, Part: c.part, Scope: scope, Parent: parent, Start: start, End: c.now})
}

// took returns a plug-in's time in one of the profiles.
func (c *scheduling) took(plugin string) float64 {
	return c.x.Took[plugin] / float64(max(len(c.x.Profiles), 1))
}

func (b *builder) schedule(parent SpanID, prefix string, part Part, x *picker.Explanation, start, end machine.Time) {
	c := &scheduling{b: b, x: x, part: part, now: start, end: end, prefix: prefix}
	for i := range x.Profiles {
		p := &x.Profiles[i]
		if x.Disagg != "" {
			c.handler(fmt.Sprintf("handler/%d", i), parent, i, "run_"+p.Name)
		}
		c.profile(parent, p)
	}
	if x.Disagg == "" {
		return
	}
	c.handler("handler/end", parent, len(x.Profiles), "complete")
	s := c.add("prepare", "prepare_disaggregation", scopePlugins, parent, 0)
	s.set("llm_d.epp.pd.disaggregation_used", x.Prefill != "")
	s.set("llm_d.epp.disagg.reason", x.Disagg)
	for _, p := range x.Profiles {
		for _, e := range p.Endpoints {
			if e.Picked && e.Name == x.Prefill {
				if host, port, err := net.SplitHostPort(e.HostPort); err == nil {
					s.set("llm_d.epp.pd.prefill_pod_address", host)
					s.set("llm_d.epp.pd.prefill_pod_port", port)
				}
			}
		}
	}
}

// handler adds a span of the profile handler, one for each call.
func (c *scheduling) handler(key string, parent SpanID, executed int, decision string) {
	s := c.add(key, "pick_disagg_profile", scopePlugins, parent, 0)
	s.set("llm_d.epp.profile_handler.decision", decision)
	s.set("llm_d.epp.profile_handler.executed_profiles", executed)
	s.set("llm_d.epp.profile_handler.total_profiles", len(c.x.Profiles))
	if executed < len(c.x.Profiles) {
		s.set("llm_d.epp.profile_handler.selected_profile", c.x.Profiles[executed].Name)
	}
}

func (c *scheduling) profile(parent SpanID, p *picker.ExplainedProfile) {
	key := "profile/" + p.Name
	s := c.add(key, "run_scheduler_profile", scopeSchedule, parent, 0)
	s.set("llm_d.epp.scheduling.profile.name", p.Name)
	at, id := len(c.b.spans)-1, s.ID
	model := func(s *Span) {
		s.set("gen_ai.request.model", c.x.TargetModel)
		s.set("gen_ai.request.id", c.x.Request)
	}
	removed, filtering := 0, 0.0
	for _, r := range p.Removed {
		removed += len(r.Endpoints) + r.More
		filtering += c.took(r.By)
	}
	left := len(p.Endpoints) + p.More
	filters := c.add(key+"/filter", "filter_endpoints", scopeSchedule, id, filtering)
	filters.set("llm_d.epp.filter.candidate_endpoints", left+removed)
	filters.set("llm_d.epp.filter.filtered_endpoints", left)
	model(filters)
	if len(p.Scorers) > 0 {
		c.score(key, id, p, left, model)
	}
	pick := c.add(key+"/pick", "pick_endpoints", scopeSchedule, id, c.took(p.Picker))
	pick.set("llm_d.epp.picker.candidate_endpoints", left)
	var scores []float64
	for _, e := range p.Endpoints {
		if e.Picked {
			scores = append(scores, e.Total)
		}
	}
	pick.set("llm_d.epp.picker.top_endpoints", slices.Clone(p.Picked))
	pick.set("llm_d.epp.picker.top_scores", scores)
	c.b.spans[at].End = c.now
}

func (c *scheduling) score(key string, parent SpanID, p *picker.ExplainedProfile, left int, model func(*Span)) {
	s := c.add(key+"/score", "llm_d.epp.scoring", scopeSchedule, parent, 0)
	s.set("llm_d.epp.scorer.count", len(p.Scorers))
	s.set("llm_d.epp.scoring.candidate_endpoints", left)
	model(s)
	at, id := len(c.b.spans)-1, s.ID
	for i, x := range p.Scorers {
		kind := cmp.Or(x.Type, x.Name)
		s := c.add(fmt.Sprintf("%s/score/%d", key, i), "llm_d.epp.scorer."+kind, scopeSchedule, id, c.took(x.Name))
		s.set("llm_d.epp.scorer.type", kind)
		s.set("llm_d.epp.scorer.name", x.Name)
		s.set("llm_d.epp.scorer.weight", x.Weight)
		s.set("llm_d.epp.scorer.candidate_endpoints", left)
		highest, sum, scored := 0.0, 0.0, 0
		for _, e := range p.Endpoints {
			if i < len(e.Raw) {
				highest, sum, scored = max(highest, e.Raw[i]), sum+e.Raw[i], scored+1
			}
		}
		s.set("llm_d.epp.scorer.endpoints_scored", scored)
		if scored > 0 {
			s.set("llm_d.epp.scorer.score.max", highest)
			s.set("llm_d.epp.scorer.score.avg", sum/float64(scored))
		}
	}
	c.b.spans[at].End = c.now
}
