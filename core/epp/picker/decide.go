package picker

import (
	"cmp"
	"errors"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
)

// Prepare completes a request: target model, objective, fairness id, token estimate. It returns the plug-ins' calls to
// services outside, or the reason for refusing the request.
func (p *Picker) Prepare(now machine.Time, r *Request) ([]Need, *apierror.Error) {
	if err := p.resolveModel(r); err != nil {
		return nil, err
	}
	r.Objective = p.objects.objective(newer(r.Headers, HeadersObjective), r.Model)
	r.FairnessID = newer(r.Headers, HeadersFairness)
	r.TTFTMs = parseMs(newer(r.Headers, HeadersTTFT))
	r.TPOTMs = parseMs(newer(r.Headers, HeadersTPOT))
	if r.Body != nil && r.Tokens == 0 {
		r.Tokens = r.Body.EstimatedTokens()
	}
	for _, h := range p.headerProcs {
		t := p.Stopwatch()
		if err := p.Guard(h, func() { h.RequestHeader(r) }); err != nil {
			return nil, err
		}
		if p.opt.Stopwatch != nil {
			r.Spans = append(r.Spans, Span{headerPoint(h), h, p.opt.Stopwatch() - t})
		}
	}
	r.FairnessID = cmp.Or(r.FairnessID, DefaultFairnessID)
	if len(r.FairnessID) > maxFairnessBytes {
		r.FairnessID = Digest(r.FairnessID)
	}
	var all []Need
	for _, a := range p.queriers {
		if err := p.Guard(a, func() { all = append(all, a.Needs(now, r, p.pool.View())...) }); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Pick decides where a request goes. It changes nothing except d, which is nil or a released decision to reuse. view is
// usually Pool().View().
func (p *Picker) Pick(now machine.Time, r *Request, view *View, answers []Answer, d *Decision) (out *Decision) {
	if d == nil {
		d = &Decision{}
	}
	c := p.newCycle(now, r, view, answers, d)
	defer func() {
		if v := recover(); v != nil {
			d.Err = p.opt.panicked(naming(c.running), v)
			d.Targets = d.Targets[:0]
			out = d
		}
	}()
	d.Err = p.decide(c)
	if d.Err != nil {
		d.Targets = d.Targets[:0]
	}
	return d
}

// newCycle resets a decision for this request.
func (p *Picker) newCycle(now machine.Time, r *Request, view *View, answers []Answer, d *Decision) *Cycle {
	d.reset(len(p.plugins))
	d.Request, d.View, d.At, d.Detail = r, view, now, p.opt.Detail
	d.cycle = Cycle{Now: now, Request: r, View: view, Decision: d, p: p, answers: answers, peer: -1,
		seed: p.opt.Seed ^ (p.seq+1)*0x9e3779b97f4a7c15}
	d.cycle.brief = p.opt.Brief && !d.Detail && p.opt.Force == nil && p.opt.Stopwatch == nil && view == p.pool.view &&
		r.Headers.Get(HeaderExplain) == ""
	return &d.cycle
}

// candidates sets the endpoints that a request may go to, before screeners.
func (c *Cycle) candidates() {
	p, d, n := c.p, c.Decision, len(c.View.States)
	some := c.Request.HasSubset && !p.opt.IgnoreSubset
	if c.all = !some && len(p.screeners) == 0; c.all {
		d.Candidates = p.allOf(n)
		return
	}
	if d.own == nil {
		d.own = p.candidates.take()
	}
	list := slices.Grow(d.own[:0], n)
	if some {
		for i := range c.View.States {
			if c.Request.matchesSubset(c.View.States[i].Endpoint) {
				list = append(list, int32(i))
			}
		}
	} else {
		list = append(list, p.allOf(n)...)
	}
	d.own, d.Candidates = list, list
}

// allOf returns the indexes of n endpoints. The caller must not change them.
func (p *Picker) allOf(n int) []int32 {
	for len(p.allIndexes) < n {
		p.allIndexes = append(p.allIndexes, int32(len(p.allIndexes)))
	}
	return p.allIndexes[:n:n]
}

// Consult returns the plug-ins' calls about the endpoints that a request may go to, just before placement. Like Pick it
// changes nothing, and needs the answers so far. A plug-in that panics gets no answer.
func (p *Picker) Consult(now machine.Time, r *Request, view *View, answers []Answer) (all []Need) {
	if len(p.consulters) == 0 || r.HeaderOnly() {
		return nil
	}
	if p.consultation == nil {
		p.consultation = &Decision{}
	}
	c := p.newCycle(now, r, view, answers, p.consultation)
	c.candidates()
	for _, s := range p.screeners {
		if p.Guard(s, func() { c.Decision.Candidates = s.Screen(c, c.Decision.Candidates) }) != nil {
			return nil // it panics again in Pick
		}
	}
	if c.Candidates = c.Decision.Candidates; len(c.Candidates) == 0 {
		return nil
	}
	for _, x := range p.consulters {
		_ = p.Guard(x, func() { all = append(all, x.Consult(c)...) }) // it gets no answer
	}
	return all
}

// SendAt returns the next time at which a plug-in sends to a service outside, machine.Never if none does.
func (p *Picker) SendAt() machine.Time {
	at := machine.Never
	for _, x := range p.senders {
		if t, ok := x.SendAt(); ok {
			at = min(at, t)
		}
	}
	return at
}

// Send returns the plug-ins' calls that are due by now.
func (p *Picker) Send(now machine.Time) (all []Need) {
	for _, x := range p.senders {
		if t, ok := x.SendAt(); ok && t <= now {
			all = append(all, x.Send(now)...)
		}
	}
	return all
}

func (p *Picker) decide(c *Cycle) *apierror.Error {
	d, r, v := c.Decision, c.Request, c.View
	if r.HeaderOnly() {
		return p.anyEndpoint(c)
	}
	c.candidates()
	if r.Objective.Priority < 0 && !p.cfg.FlowControlOn {
		c.running = p.detector
		d.Saturation = p.detector.Saturation(c.Now, v, d.Candidates)
		if err := flowcontrol.Shed(r.Objective.Priority, d.Saturation); err != nil {
			return err
		}
	}
	if len(d.Candidates) == 0 {
		return &apierror.Error{Status: 503, Message: "failed to find endpoint candidates for serving the request"}
	}
	for _, s := range p.screeners {
		if d.Detail {
			d.scratch = append(d.scratch[:0], d.Candidates...)
		}
		t := c.startTurn(s)
		d.Candidates = s.Screen(c, d.Candidates)
		c.endTurn("Screener", s, t)
		if d.Detail && len(d.Candidates) < len(d.scratch) {
			d.Screened = appendRemoval(d.Screened, s, d.scratch, d.Candidates)
		}
		if len(d.Candidates) == 0 {
			return &apierror.Error{Status: 503, Message: "screeners eliminated all endpoint candidates"}
		}
	}
	c.Candidates = d.Candidates
	for _, pr := range p.producers {
		t := c.startTurn(pr)
		pr.Produce(c)
		c.endTurn("DataProducer", pr, t)
	}
	for _, a := range p.admitters {
		t := c.startTurn(a)
		err := a.Admit(c)
		c.endTurn("Admission", a, t)
		if err != nil {
			return flowcontrol.Denied(err)
		}
	}
	d.Handled = true
	t, inner := c.startTurn(p.handler), len(d.Spans)
	err := p.handler.Schedule(c)
	c.handled(p.handler, t, inner)
	if err != nil {
		if e := (*apierror.Error)(nil); errors.As(err, &e) {
			return e
		}
		return &apierror.Error{Status: 429, Message: "failed to find target endpoint: " + err.Error()}
	}
	res := d.PrimaryProfile()
	if !res.Ok() {
		return &apierror.Error{Status: 500, Message: "results must be greater than zero"}
	}
	if len(d.Targets) == 0 {
		for _, i := range res.Picked {
			d.Targets = append(d.Targets, Target{v.States[i].Endpoint, v.States[i].HostPort(), res.Total(i)})
		}
	}
	if r.PreferIfAvailable() && !p.hasCached(c, res.Picked[0]) {
		return &apierror.Error{Status: 412, Message: "no decode worker has the requested KV cache"}
	}
	for _, h := range p.preRequests {
		t := c.startTurn(h)
		h.PreRequest(c)
		c.endTurn("PreRequest", h, t)
	}
	return nil
}

// Total returns an endpoint's weighted sum of scores, 0 if a filter removed the endpoint.
func (r *ProfileResult) Total(endpoint int32) float64 {
	if j := slices.Index(r.Left, endpoint); j >= 0 {
		return r.Totals[j]
	}
	return 0
}

// CacheAware is a producer that knows how much of a prompt an endpoint holds, for conditional decode.
type CacheAware interface {
	// MatchedBlocks returns how many of the prompt's blocks the endpoint holds.
	MatchedBlocks(c *Cycle, endpoint int32) int
}

// conditionalProducer is the name of the one producer that conditional decode asks. With prefix data under any other
// name the answer is always 412, as in the real EPP.
const conditionalProducer = "approx-prefix-cache-producer"

func (p *Picker) hasCached(c *Cycle, i int32) bool {
	return slices.ContainsFunc(p.producers, func(pr Producer) bool {
		ca, ok := pr.(CacheAware)
		return ok && pr.Name() == conditionalProducer && ca.MatchedBlocks(c, i) > 0
	})
}

// anyEndpoint serves a request without a body: a random endpoint, no profile, no subset.
func (p *Picker) anyEndpoint(c *Cycle) *apierror.Error {
	d, v := c.Decision, c.View
	if len(v.States) == 0 {
		return &apierror.Error{Status: 500, Message: "no pods available in datastore"}
	}
	d.Candidates = p.allOf(len(v.States))
	draw := c.Draw("header-only")
	pick := int32(draw.Intn(len(v.States)))
	if p.opt.Force != nil {
		if f := p.opt.Force(c, "", d.Candidates); len(f) > 0 {
			pick = f[0]
		}
	}
	d.HideScores = true
	d.Targets = append(d.Targets, Target{v.States[pick].Endpoint, v.States[pick].HostPort(), 0})
	return nil
}

// Commit makes a decision take effect. A decision with an error changes nothing and needs no Commit. An error means
// that a plug-in panicked; the caller must then release the decision and refuse the request.
func (p *Picker) Commit(now machine.Time, d *Decision) (err *apierror.Error) {
	if d.committed || d.Err != nil {
		return nil
	}
	d.committed = true
	p.seq++
	if d.Request.HeaderOnly() {
		return nil
	}
	c := &d.cycle
	for _, h := range p.committers {
		t := p.Stopwatch()
		err = first(err, p.Guard(h, func() { h.Commit(now, d) }))
		if _, picks := h.(EndpointPicker); !picks { // its time counted in Pick
			c.endTurn("PreRequest", h, t)
		}
	}
	return err
}

// Release ends what Commit began. Only the first call counts, and an uncommitted decision has nothing to release. An
// error means that a plug-in panicked; the others have still released.
func (p *Picker) Release(now machine.Time, d *Decision) (err *apierror.Error) {
	if d == nil || !d.committed || d.released {
		return nil
	}
	d.released = true
	if d.Request.HeaderOnly() {
		return nil
	}
	for _, r := range p.releasers {
		err = first(err, p.Guard(r, func() { r.Release(now, d) }))
	}
	return err
}
