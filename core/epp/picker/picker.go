package picker

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/apierror"
	"github.com/windtunnel/windtunnel/core/wire/described"
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
	candidates   freeList[[]int32]
	everyone     []int32 // 0, 1, 2 …
	tables       freeList[tables]
	data         []freeList[any] // by plug-in

	plugins         []Plugin
	hooks           // the plug-ins by what they do
	consultation    *Decision
	unit, unitLimit int // of prompts, in tokens; 0 where nobody compares them

	// Warnings are what the configuration made worth saying at start-up.
	Warnings []string
}

// hooks are the plug-ins by what they do.
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

// wire sorts the plug-ins by what they implement.
func (p *Picker) wire(plugins []Plugin) {
	p.plugins = plugins
	for _, pl := range plugins { // what came from outside is read before others build on it
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

// Pool returns the endpoints and their metrics; the driver keeps it up to date.
func (p *Picker) Pool() *Pool { return p.pool }

// Config returns the configuration that the picker was built from.
func (p *Picker) Config() *config.Config { return p.cfg }

// Plugins returns all plug-ins, also those that nobody declared.
func (p *Picker) Plugins() []Plugin { return p.plugins }

// Plugin returns a plug-in by name, nil when there is none.
func (p *Picker) Plugin(name string) Plugin {
	if i := slices.IndexFunc(p.plugins, func(pl Plugin) bool { return pl.Name() == name }); i >= 0 {
		return p.plugins[i]
	}
	return nil
}

// Detector returns the saturation detector.
func (p *Picker) Detector() SaturationDetector { return p.detector }

// EndpointDiscovery returns the discovery plug-in, nil when there is none.
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
		return nil, &apierror.Error{Status: 400,
			Message: fmt.Sprintf("request body of %d bytes is larger than %d", size, parse.MaxBodyBytes)}
	}
	return p.parse(ps, path, body, d, room)
}

// ParserName returns the name of the parser that a request's path asks for, "" for
// none.
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

// Objects returns the objects in force.
func (p *Picker) Objects() Objects { return p.objects }

func (o *Objects) objective(name, model string) Objective {
	if name == "" {
		return Objective{Priority: o.Models[model]}
	}
	return Objective{Name: name, Priority: o.Objectives[name]}
}
