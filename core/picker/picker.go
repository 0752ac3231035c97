package picker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/apierror"
	"github.com/windtunnel/windtunnel/core/described"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/picker/config"
	"github.com/windtunnel/windtunnel/core/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/picker/parse"
)

// Options are what does not stand in the configuration file.
type Options struct {
	// Seed keys every random choice.
	Seed uint64
	// AllowExperimental admits plug-ins of Alpha stability.
	AllowExperimental bool
	// IgnoreSubset is --disable-endpoint-subset-filter.
	IgnoreSubset bool
	// Detail records removals and ties in every decision.
	Detail bool
	// Brief says that nobody reads more of a decision than what was chosen, unless its
	// request asks for the reasons (HeaderExplain): the profiles' Left, Raw and Totals
	// may then be those of the chosen endpoints alone.
	Brief bool
	// OwnNames says that nobody but the picker's own indexes sees the hashes of
	// prompts' beginnings, so that those which only one prompt has need none.
	OwnNames bool
	// Stopwatch, when given, is read before and after each plug-in's turn, and
	// the spans go into Decision.Spans. It is the driver's clock; nil costs
	// nothing, and decisions never depend on it.
	Stopwatch func() machine.Time
	// Panicked, when given, is told of a plug-in's panic while its stack still
	// stands, so that the driver can log where it was.
	Panicked func(*apierror.Error)
	// Predictor is who predicts latencies for predicted-latency-producer; nil is
	// nobody.
	Predictor *PredictorService
	// Force is for tests: it may name the endpoints that a profile's picker is
	// to choose (indexes of the View, among candidates). The header-only pick
	// asks with an empty profile name.
	Force func(c *Cycle, profile string, candidates []int32) []int32
}

// PredictorService says where llm-d's latency predictor is asked and told, as
// http://host:port.
type PredictorService struct {
	Prediction []string // each question goes to one of them
	Training   string   // "" is told nothing
	// Together is how long a question may wait for others that are asked with it, in
	// wall time; 0 is not at all. Poll is how often the servers' states and trees are
	// fetched, as the real picker's client does, which looks at none of them; 0 is never.
	Together, Poll machine.Time
}

// Foreteller is a plug-in that predicts latencies, and sees what comes of it.
type Foreteller interface {
	Plugin
	// Foretold is what was predicted of a decision's endpoint, and what came of it
	// until now; false where that is nothing.
	Foretold(d *Decision) (Foretold, bool)
	// Forecast is what was predicted of an endpoint (an index of the decision's View),
	// nil where nothing was.
	Forecast(d *Decision, endpoint int32) *Forecast
}

// Forecast is what was predicted of a request at an endpoint, and how far that is
// below the request's objectives, in milliseconds. Nil is no objective.
type Forecast struct {
	TTFTMs         float64  `json:"ttft_ms"`
	TPOTMs         float64  `json:"tpot_ms"`
	TTFTHeadroomMs *float64 `json:"ttft_headroom_ms,omitempty"`
	TPOTHeadroomMs *float64 `json:"tpot_headroom_ms,omitempty"`
}

// Foretellers are the plug-ins that predict latencies.
func (p *Picker) Foretellers() []Foreteller { return p.foretellers }

// Foretold is a prediction beside the truth. What was not observed is 0.
type Foretold struct {
	Predicted            bool
	Prediction, Observed Latency
}

// Scrape is one data source with the extractors that read it.
type Scrape struct {
	Source     MetricsSource
	Extractors []MetricsExtractor
}

type profile struct {
	name    string
	filters []Filter
	scorers []WeightedScorer
	picker  EndpointPicker

	standing *standing // with Options.Brief, where its scores can be kept
	blind    bool      // its picker reads no scores, and there are none
}

// Picker decides. It belongs to one goroutine.
type Picker struct {
	opt  Options
	cfg  *config.Config
	pool *Pool
	seq  uint64 // commits so far: two requests with one id do not share their draws

	handler      ProfileHandler
	profiles     []*profile
	profileNames []string
	parsers      []parse.Parser
	detector     SaturationDetector
	discovery    Discovery
	scrapes      []Scrape
	objects      Objects
	candidates   spares[[]int32]
	everyone     []int32 // 0, 1, 2 …
	tables       spares[tables]
	data         []spares[any] // by plug-in

	plugins         []Plugin
	bodyReaders     []BodyReader
	promptReaders   []PromptReader
	unit, unitLimit int // of prompts, in tokens; 0 where nobody compares them
	headerProcs     []HeaderProcessor
	weighers        []Weigher
	screeners       []Screener
	producers       []Producer
	askers          []Asker
	consulters      []Consulter
	senders         []Sender
	consultation    *Decision
	foretellers     []Foreteller
	admitters       []Admitter
	preRequests     []PreRequest
	committers      []Committer
	releasers       []Releaser
	responseHeaders []ResponseHeader
	responseBodies  []ResponseBody

	// Warnings are what the configuration made worth saying at start-up.
	Warnings []string
}

// wire sorts the plug-ins by what they implement.
func (p *Picker) wire(plugins []Plugin) {
	p.plugins = plugins
	for _, pl := range plugins { // what came from outside is read before others build on it
		if a, ok := pl.(Asker); ok {
			if x, ok := a.(Producer); ok {
				p.producers = append(p.producers, x)
			}
		}
	}
	for _, pl := range plugins {
		if x, ok := pl.(BodyReader); ok {
			p.bodyReaders = append(p.bodyReaders, x)
		}
		if x, ok := pl.(PromptReader); ok {
			p.promptReaders = append(p.promptReaders, x)
		}
		if x, ok := pl.(PrefixReader); ok {
			tokens, limit := x.PrefixBlocks()
			p.DivideBy(tokens, limit)
		}
		if x, ok := pl.(HeaderProcessor); ok {
			p.headerProcs = append(p.headerProcs, x)
		}
		if x, ok := pl.(Weigher); ok {
			p.weighers = append(p.weighers, x)
		}
		if x, ok := pl.(Screener); ok {
			p.screeners = append(p.screeners, x)
		}
		if x, ok := pl.(Producer); ok {
			if _, asks := pl.(Asker); !asks {
				p.producers = append(p.producers, x)
			}
		}
		if x, ok := pl.(Asker); ok {
			p.askers = append(p.askers, x)
		}
		if x, ok := pl.(Consulter); ok {
			p.consulters = append(p.consulters, x)
		}
		if x, ok := pl.(Foreteller); ok {
			p.foretellers = append(p.foretellers, x)
		}
		if x, ok := pl.(Sender); ok {
			p.senders = append(p.senders, x)
		}
		if x, ok := pl.(Admitter); ok {
			p.admitters = append(p.admitters, x)
		}
		if x, ok := pl.(PreRequest); ok {
			p.preRequests = append(p.preRequests, x)
		}
		if x, ok := pl.(Committer); ok {
			p.committers = append(p.committers, x)
		}
		if x, ok := pl.(Releaser); ok {
			p.releasers = append(p.releasers, x)
		}
		if x, ok := pl.(ResponseHeader); ok {
			p.responseHeaders = append(p.responseHeaders, x)
		}
		if x, ok := pl.(ResponseBody); ok {
			p.responseBodies = append(p.responseBodies, x)
		}
		if x, ok := pl.(EndpointObserver); ok {
			p.pool.OnGone(p.gone(x))
		}
	}
}

// DivideBy has prompts divided into units by which blocks of so many tokens can
// be compared up to limit tokens, before the first request.
func (p *Picker) DivideBy(tokens, limit int) {
	unit := parse.UnitTokens
	if p.unit > 0 {
		unit = p.unit
	}
	for tokens > 0 {
		unit, tokens = tokens, unit%tokens
	}
	p.unit, p.unitLimit = unit, max(p.unitLimit, limit)
}

// Pool is the endpoints and their metrics; the driver keeps it up to date.
func (p *Picker) Pool() *Pool { return p.pool }

// Config is the configuration that the picker was built from.
func (p *Picker) Config() *config.Config { return p.cfg }

// Plugins are all plug-ins, also those that nobody declared.
func (p *Picker) Plugins() []Plugin { return p.plugins }

// Plugin is a plug-in by name, nil when there is none.
func (p *Picker) Plugin(name string) Plugin {
	for _, pl := range p.plugins {
		if pl.Name() == name {
			return pl
		}
	}
	return nil
}

// Handler is the profile handler.
func (p *Picker) Handler() ProfileHandler { return p.handler }

// Detector is the saturation detector.
func (p *Picker) Detector() SaturationDetector { return p.detector }

// EndpointDiscovery is the discovery plug-in, nil when there is none.
func (p *Picker) EndpointDiscovery() Discovery { return p.discovery }

// Scrapes are the data sources.
func (p *Picker) Scrapes() []Scrape { return p.scrapes }

// FlowControl says whether requests pass the flow-control queue before Pick.
func (p *Picker) FlowControl() bool { return p.cfg.FlowControlOn }

func (p *Picker) profile(name string) *profile {
	for _, pr := range p.profiles {
		if pr.name == name {
			return pr
		}
	}
	return nil
}

// Parse reads a request's body with the parser that its path asks for. The
// error is the answer to the client.
func (p *Picker) Parse(path string, body []byte) (*parse.Body, *apierror.Error) {
	return p.parseAs(path, body, nil, nil)
}

// parseAs is Parse, of bytes or of a description.
func (p *Picker) parseAs(path string, body []byte, d *described.Body, room *parse.Room) (*parse.Body, *apierror.Error) {
	ps, err := parse.Choose(p.parsers, path)
	if err != nil {
		return nil, &apierror.Error{Status: 400, Message: err.Error()}
	}
	size := len(body)
	if d != nil {
		size = d.Len()
	}
	if size > parse.MaxBodyBytes {
		return nil, &apierror.Error{Status: 400, Message: fmt.Sprintf("request body of %d bytes is larger than %d", size, parse.MaxBodyBytes)}
	}
	return p.parse(ps, path, body, d, room)
}

// ParserName is the name of the parser that a request's path asks for, "" for
// none.
func (p *Picker) ParserName(r *Request) string {
	ps, err := parse.Choose(p.parsers, apiPath(r.Headers))
	if err != nil {
		return ""
	}
	return ps.Type()
}

// Prepare completes a request: target model, objective, fairness id, token
// estimate. It returns what the plug-ins need from outside, or why the
// request is refused.
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
		if err := p.requestHeader(h, r); err != nil {
			return nil, err
		}
	}
	if r.FairnessID == "" {
		r.FairnessID = DefaultFairnessID
	}
	if len(r.FairnessID) > maxFairnessBytes {
		r.FairnessID = Digest(r.FairnessID)
	}
	var all []Need
	for _, a := range p.askers {
		list, err := p.needs(a, now, r, p.pool.View())
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// Pick decides where a request goes. It changes nothing but d, which may be a
// released decision to be reused or nil. view is usually Pool().View().
func (p *Picker) Pick(now machine.Time, r *Request, view *View, answers []Answer, d *Decision) (out *Decision) {
	if d == nil {
		d = &Decision{}
	}
	c := p.begin(now, r, view, answers, d)
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

// begin makes a decision one about this request.
func (p *Picker) begin(now machine.Time, r *Request, view *View, answers []Answer, d *Decision) *Cycle {
	d.reset(len(p.plugins))
	d.Request, d.View, d.At, d.Detail = r, view, now, p.opt.Detail
	d.cycle = Cycle{Now: now, Request: r, View: view, Decision: d, p: p, answers: answers, peer: -1, seed: p.opt.Seed ^ (p.seq+1)*0x9e3779b97f4a7c15}
	d.cycle.brief = p.opt.Brief && !d.Detail && p.opt.Force == nil && p.opt.Stopwatch == nil && view == p.pool.view && r.Headers.Get(HeaderExplain) == ""
	return &d.cycle
}

// candidates are the endpoints that a request may go to, before screeners.
func (c *Cycle) candidates() {
	p, d, n := c.p, c.Decision, len(c.View.States)
	some := c.Request.HasSubset && !p.opt.IgnoreSubset
	if c.all = !some && len(p.screeners) == 0; c.all {
		d.Candidates = p.everyoneOf(n)
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
		list = append(list, p.everyoneOf(n)...)
	}
	d.own, d.Candidates = list, list
}

// everyoneOf is the indexes of n endpoints, which nobody changes.
func (p *Picker) everyoneOf(n int) []int32 {
	for len(p.everyone) < n {
		p.everyone = append(p.everyone, int32(len(p.everyone)))
	}
	return p.everyone[:n:n]
}

// Consult returns what plug-ins ask the outside about the endpoints that a request
// may go to, now that it is about to be placed. Like Pick it changes nothing, and
// needs the answers that are there. A plug-in that panics asks nothing.
func (p *Picker) Consult(now machine.Time, r *Request, view *View, answers []Answer) (all []Need) {
	if len(p.consulters) == 0 || r.HeaderOnly() {
		return nil
	}
	if p.consultation == nil {
		p.consultation = &Decision{}
	}
	c := p.begin(now, r, view, answers, p.consultation)
	c.candidates()
	for _, s := range p.screeners {
		if p.Guard(s, func() { c.Decision.Candidates = s.Screen(c, c.Decision.Candidates) }) != nil {
			return nil // as it will again, when it is picked
		}
	}
	if c.Candidates = c.Decision.Candidates; len(c.Candidates) == 0 {
		return nil
	}
	for _, x := range p.consulters {
		_ = p.Guard(x, func() { all = append(all, x.Consult(c)...) }) // it has no answer then
	}
	return all
}

// SendAt is when a plug-in next sends to the outside, and Send what is due.
func (p *Picker) SendAt() machine.Time {
	at := machine.Never
	for _, x := range p.senders {
		if t, ok := x.SendAt(); ok {
			at = min(at, t)
		}
	}
	return at
}

// Send is what plug-ins send to the outside that is due.
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
		c.running = s
		if d.Detail {
			d.scratch = append(d.scratch[:0], d.Candidates...)
		}
		t := c.begin()
		d.Candidates = s.Screen(c, d.Candidates)
		c.end("Screener", s, t)
		if d.Detail && len(d.Candidates) < len(d.scratch) {
			d.Screened = appendRemoval(d.Screened, s, d.scratch, d.Candidates)
		}
		if len(d.Candidates) == 0 {
			return &apierror.Error{Status: 503, Message: "screeners eliminated all endpoint candidates"}
		}
	}
	c.Candidates = d.Candidates
	for _, pr := range p.producers {
		c.running = pr
		t := c.begin()
		pr.Produce(c)
		c.end("DataProducer", pr, t)
	}
	for _, a := range p.admitters {
		c.running = a
		t := c.begin()
		err := a.Admit(c)
		c.end("Admission", a, t)
		if err != nil {
			return flowcontrol.Denied(err)
		}
	}
	c.running = p.handler
	t, inner := c.begin(), len(d.Spans)
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
		c.running = h
		t := c.begin()
		h.PreRequest(c)
		c.end("PreRequest", h, t)
	}
	return nil
}

// Total is what an endpoint scored in all, 0 where it was not left.
func (r *ProfileResult) Total(endpoint int32) float64 {
	for j, i := range r.Left {
		if i == endpoint {
			return r.Totals[j]
		}
	}
	return 0
}

// CacheAware is a producer that knows which share of a prompt an endpoint
// holds; conditional decode asks it.
type CacheAware interface {
	// MatchedBlocks is how many of the prompt's blocks the endpoint holds.
	MatchedBlocks(c *Cycle, endpoint int32) int
}

// conditionalProducer is the one producer that conditional decode asks, by its
// name: with prefix data under any other name the answer is always 412, as the
// real EPP's.
const conditionalProducer = "approx-prefix-cache-producer"

func (p *Picker) hasCached(c *Cycle, i int32) bool {
	for _, pr := range p.producers {
		if ca, ok := pr.(CacheAware); ok && pr.Name() == conditionalProducer && ca.MatchedBlocks(c, i) > 0 {
			return true
		}
	}
	return false
}

// anyEndpoint serves a request without a body: one endpoint at random, no
// profile, no subset.
func (p *Picker) anyEndpoint(c *Cycle) *apierror.Error {
	d, v := c.Decision, c.View
	if len(v.States) == 0 {
		return &apierror.Error{Status: 500, Message: "no pods available in datastore"}
	}
	d.Candidates = p.everyoneOf(len(v.States))
	draw := c.Draw("header-only")
	pick := int32(draw.Intn(len(v.States)))
	if p.opt.Force != nil {
		if f := p.opt.Force(c, "", d.Candidates); len(f) > 0 {
			pick, d.Forced = f[0], true
		}
	}
	d.HideScores = true
	d.Targets = append(d.Targets, Target{v.States[pick].Endpoint, v.States[pick].HostPort(), 0})
	return nil
}

// Commit makes a decision take effect. A decision with an error changes
// nothing and need not be committed. An error says that a plug-in panicked: the
// decision is then to be released, and not to be followed.
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
		t := c.begin()
		err = first(err, p.commit(h, now, d))
		if _, picks := h.(EndpointPicker); !picks { // its turn counted when it picked
			c.end("PreRequest", h, t)
		}
	}
	return err
}

// Release ends what Commit began. Only the first call counts; an uncommitted
// decision has nothing to release. An error says that a plug-in panicked; the
// others have released all the same.
func (p *Picker) Release(now machine.Time, d *Decision) (err *apierror.Error) {
	if d == nil || !d.committed || d.released {
		return nil
	}
	d.released = true
	if d.Request.HeaderOnly() {
		return nil
	}
	for _, r := range p.releasers {
		err = first(err, p.release(r, now, d))
	}
	return err
}

// Stopwatch reads the driver's stopwatch; 0 without one.
func (p *Picker) Stopwatch() machine.Time {
	if p.opt.Stopwatch == nil {
		return 0
	}
	return p.opt.Stopwatch()
}

// Objects are the Kubernetes objects (or files in their shape) that change
// decisions at run time.
type Objects struct {
	// Objectives are the priorities of the pool's InferenceObjectives by name.
	Objectives map[string]int
	// Rewrites are the pool's InferenceModelRewrites, oldest first.
	Rewrites []Rewrite
	// Models are the priorities of requests without an objective, by the models that
	// they ask for (older InferenceModels).
	Models map[string]int `json:",omitempty"`
}

// SetObjects replaces the objects.
func (p *Picker) SetObjects(o Objects) { p.objects = o }

// Objects are the objects in force.
func (p *Picker) Objects() Objects { return p.objects }

func (o *Objects) objective(name, model string) Objective {
	if name == "" {
		return Objective{Priority: o.Models[model]}
	}
	return Objective{Name: name, Priority: o.Objectives[name]}
}
