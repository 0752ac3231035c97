package picker

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
)

// Options are settings outside the configuration file.
type Options struct {
	// Seed keys every random choice.
	Seed uint64
	// AllowExperimental permits plug-ins of Alpha stability.
	AllowExperimental bool
	// IgnoreSubset is --disable-endpoint-subset-filter.
	IgnoreSubset bool
	// Readiness leaves out endpoints that fail Kubernetes' readiness probe, where the configuration has no probe.
	Readiness bool
	// Detail records removals and ties in every decision.
	Detail bool
	// Brief states that only the chosen endpoints of a decision are read, unless its request asks for the reasons
	// (HeaderExplain). The profiles' Left, Raw and Totals may then hold the chosen endpoints only.
	Brief bool
	// OwnNames states that only the picker's own indexes see the hashes of prompts' beginnings. Beginnings that only
	// one prompt has then need no hash.
	OwnNames bool
	// Stopwatch, if not nil, is read before and after each plug-in's call, and the spans go into Decision.Spans. It is
	// the driver's clock. Decisions never depend on it.
	Stopwatch func() machine.Time
	// Panicked, if not nil, is called with a plug-in's panic while its stack still exists, so that the driver can log
	// the stack.
	Panicked func(*apierror.Error)
	// Predictor predicts latencies for predicted-latency-producer; nil for none.
	Predictor *PredictorService
	// Force is for tests. It may return the endpoints that a profile's picker must choose (indexes of the View, among
	// candidates). A pick for a request without a body has an empty profile name.
	Force func(c *Cycle, profile string, candidates []int32) []int32
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

	standing *standing // with Options.Brief, if its scores can be kept
	blind    bool      // its picker reads no scores, and there are none
}

// Picker decides where requests go. It is not safe for concurrent use.
type Picker struct {
	opt  Options
	cfg  *config.Config
	pool *Pool
	seq  uint64 // commits so far, so that two requests with one id draw different values

	handler      ProfileHandler
	profiles     []*profile
	profileNames []string
	parsers      []parse.Parser
	detector     SaturationDetector
	discovery    Discovery
	scrapes      []Scrape
	objects      Objects
	candidates   freeList[[]int32]
	allIndexes   []int32 // 0, 1, 2 …
	tables       freeList[tables]
	data         []freeList[any] // by plug-in

	plugins         []Plugin
	hooks           // the plug-ins by what they do
	consultation    *Decision
	unit, unitLimit int // unit into which prompts are divided, and its limit, in tokens; 0 if nothing compares prompts

	// Warnings are to be logged at start-up.
	Warnings []string
}

// hooks are the plug-ins by interface.
type hooks struct {
	bodyReaders     []BodyReader
	promptReaders   []PromptReader
	headerProcs     []HeaderProcessor
	weighers        []Weigher
	screeners       []Screener
	producers       []Producer
	queriers        []Querier
	consulters      []Consulter
	senders         []Sender
	predictors      []LatencyPredictor
	admitters       []Admitter
	preRequests     []PreRequest
	committers      []Committer
	releasers       []Releaser
	responseHeaders []ResponseHeader
	responseBodies  []ResponseBody
}

// wire sorts the plug-ins by the interfaces that they implement.
func (p *Picker) wire(plugins []Plugin) {
	p.plugins = plugins
	for _, pl := range plugins { // answers from outside are read before other producers use them
		if _, asks := pl.(Querier); asks {
			collect(&p.producers, pl)
		}
	}
	for _, pl := range plugins {
		if x, ok := pl.(PrefixReader); ok {
			p.DivideBy(x.PrefixBlocks())
		}
		if _, asks := pl.(Querier); !asks {
			collect(&p.producers, pl)
		}
		if x, ok := pl.(EndpointObserver); ok {
			p.pool.OnGone(p.gone(x))
		}
		collect(&p.bodyReaders, pl)
		collect(&p.promptReaders, pl)
		collect(&p.headerProcs, pl)
		collect(&p.weighers, pl)
		collect(&p.screeners, pl)
		collect(&p.queriers, pl)
		collect(&p.consulters, pl)
		collect(&p.predictors, pl)
		collect(&p.senders, pl)
		collect(&p.admitters, pl)
		collect(&p.preRequests, pl)
		collect(&p.committers, pl)
		collect(&p.releasers, pl)
		collect(&p.responseHeaders, pl)
		collect(&p.responseBodies, pl)
	}
}

// collect adds a plug-in to the list of a kind if it is one of them.
func collect[K any](list *[]K, pl Plugin) {
	if x, ok := pl.(K); ok {
		*list = append(*list, x)
	}
}

// DivideBy makes the picker divide prompts so that blocks of so many tokens can be compared, up to limit tokens. Call
// it before the first request.
func (p *Picker) DivideBy(tokens, limit int) {
	unit := cmp.Or(p.unit, parse.UnitTokens)
	for tokens > 0 {
		unit, tokens = tokens, unit%tokens
	}
	p.unit, p.unitLimit = unit, max(p.unitLimit, limit)
}

// Pool returns the endpoints and their metrics; the driver keeps it up to date.
func (p *Picker) Pool() *Pool { return p.pool }

// Config returns the configuration that the picker was built from.
func (p *Picker) Config() *config.Config { return p.cfg }

// Plugins returns all plug-ins, including undeclared ones.
func (p *Picker) Plugins() []Plugin { return p.plugins }

// Plugin returns a plug-in by name, nil if there is none.
func (p *Picker) Plugin(name string) Plugin {
	if i := slices.IndexFunc(p.plugins, func(pl Plugin) bool { return pl.Name() == name }); i >= 0 {
		return p.plugins[i]
	}
	return nil
}

// Detector returns the saturation detector.
func (p *Picker) Detector() SaturationDetector { return p.detector }

// EndpointDiscovery returns the discovery plug-in, nil if there is none.
func (p *Picker) EndpointDiscovery() Discovery { return p.discovery }

// Scrapes returns the data sources.
func (p *Picker) Scrapes() []Scrape { return p.scrapes }

// FlowControl reports whether requests pass the flow-control queue before Pick.
func (p *Picker) FlowControl() bool { return p.cfg.FlowControlOn }

func (p *Picker) profile(name string) *profile {
	for _, pr := range p.profiles {
		if pr.name == name {
			return pr
		}
	}
	return nil
}

// Parse reads a request's body with the parser of its path. The error is the answer to the client.
func (p *Picker) Parse(path string, body []byte) (*parse.Body, *apierror.Error) {
	return p.parseAs(path, body, nil, nil)
}

// parseAs parses bytes or a description.
func (p *Picker) parseAs(path string, body []byte, d *described.Body,
	memory *parse.Memory) (*parse.Body, *apierror.Error) {
	ps, err := parse.Choose(p.parsers, path)
	if err != nil {
		return nil, &apierror.Error{Status: 400, Message: err.Error()}
	}
	size := len(body)
	if d != nil {
		size = d.Len()
	}
	if size > parse.MaxBodyBytes {
		return nil, &apierror.Error{Status: 400,
			Message: fmt.Sprintf("request body of %d bytes is larger than %d", size, parse.MaxBodyBytes)}
	}
	return p.parse(ps, path, body, d, memory)
}

// ParserName returns the name of the parser of a request's path, "" if there is none.
func (p *Picker) ParserName(r *Request) string {
	ps, err := parse.Choose(p.parsers, apiPath(r.Headers))
	if err != nil {
		return ""
	}
	return ps.Type()
}

// Stopwatch reads the driver's stopwatch; 0 without one.
func (p *Picker) Stopwatch() machine.Time {
	if p.opt.Stopwatch == nil {
		return 0
	}
	return p.opt.Stopwatch()
}

// Objects are the Kubernetes objects (or files of the same form) that change decisions at run time.
type Objects struct {
	// Objectives are the priorities of the pool's InferenceObjectives by name.
	Objectives map[string]int
	// Rewrites are the pool's InferenceModelRewrites, oldest first.
	Rewrites []Rewrite
	// Models are the priorities of requests without an objective, by the models that they name (older InferenceModels).
	Models map[string]int `json:",omitempty"`
}

// SetObjects replaces the objects.
func (p *Picker) SetObjects(o Objects) { p.objects = o }

// Objects returns the objects in force.
func (p *Picker) Objects() Objects { return p.objects }

func (o *Objects) objective(name, model string) Objective {
	if name == "" {
		return Objective{Priority: o.Models[model]}
	}
	return Objective{Name: name, Priority: o.Objectives[name]}
}
