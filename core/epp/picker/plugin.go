package picker

import (
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Plugin is what every plug-in has: a type, under which the Registry makes it,
// and a name, under which the configuration refers to it. Embed Base.
//
// A plug-in implements as many of the kinds below as it likes; the picker
// finds out which and wires it accordingly, as llm-d-router does. All calls
// come from one goroutine. Calls made during Pick must not change the
// plug-in's state: a preview is a Pick that is never committed.
type Plugin interface {
	Type() string
	Name() string
	base() *Base
}

// Base carries a plug-in's identity. Embed it by value; the Builder fills it in.
type Base struct {
	typ, name string
	index     int
	called    string
}

// NewBase names a plug-in that stands in no Registry. One that a Factory makes is
// named by the Builder.
func NewBase(typ, name string) Base { return Base{typ: typ, name: name, index: -1} }

// Type returns the name under which the Registry made the plug-in, or that which
// CallType gave.
func (b *Base) Type() string {
	if b.called != "" {
		return b.called
	}
	return b.typ
}

// CallType shows another type in metrics and on pages: decode-filter, for
// example, is a by-label.
func (b *Base) CallType(typ string) { b.called = typ }

// Name returns the instance's name in the configuration.
func (b *Base) Name() string { return b.name }

func (b *Base) base() *Base { return b }

// Filter takes endpoints out of a profile's candidates. Kind "filter" of
// document 003.
type Filter interface {
	Plugin
	// Filter returns the candidates that stay, in their order. It may compact
	// the slice that it was given.
	Filter(c *Cycle, candidates []int32) []int32
}

// Scorer prefers some endpoints to others. Kind "score" of document 003.
type Scorer interface {
	Plugin
	// Score writes a score in [0, 1] for each candidate: scores[i] is that of
	// candidates[i] and is zero beforehand. What lies outside is clamped.
	Score(c *Cycle, candidates []int32, scores []float64)
}

// CacheScorer is a Scorer of what endpoints hold of a prompt already.
type CacheScorer interface {
	Scorer
	ScoresCache()
}

// Weigher multiplies the weights of scorers for one request, by what is in its
// headers alone: 1 leaves them.
type Weigher interface {
	Plugin
	Weigh(r *Request, s Scorer) float64
}

// EndpointPicker chooses among scored candidates. It appends what it chose,
// best first, to picked. Random choices draw from Cycle.Draw, so that a seed
// repeats them.
type EndpointPicker interface {
	Plugin
	PickEndpoints(c *Cycle, candidates []int32, totals []float64, picked []int32) []int32
}

// ProfileHandler says which profiles a request runs through and which result
// is the destination: Cycle.Run runs one, Cycle.SetPrimary names the
// destination's. An error is answered with 429 "failed to find target
// endpoint: ...".
type ProfileHandler interface {
	Plugin
	Schedule(c *Cycle) error
}

// ProfileChecker is a ProfileHandler that cannot work with every set of
// profiles. It is asked when the picker is built.
type ProfileChecker interface {
	CheckProfiles(names []string) error
}

// HeaderProcessor changes a request by its headers before anything else is
// decided (extension point RequestHeader).
type HeaderProcessor interface {
	Plugin
	RequestHeader(r *Request)
}

// HeaderProducer is a HeaderProcessor that is a data producer to the real picker, whose turn counts
// as such.
type HeaderProducer interface{ ProducesOfHeaders() }

// headerPoint returns the extension point at which a plug-in's turn counts.
func headerPoint(h HeaderProcessor) string {
	if _, ok := h.(HeaderProducer); ok {
		return "DataProducer"
	}
	return "RequestHeader"
}

// CookieReader is a plug-in that reads a cookie, and SecretReader one that reads
// headers which may carry credentials (header.Secret), named in lower case. They
// must remember no more of them than Digest.
type (
	CookieReader interface{ ReadsCookie() string }
	SecretReader interface{ ReadsSecrets() []string }
)

// StateKeeper is a plug-in whose state can be saved, and loaded into another
// instance of it. Of one that changes with decisions and is no StateKeeper a
// recording knows nothing from before its beginning.
type StateKeeper interface {
	Plugin
	// SaveState returns a copy of the state, in a form that encoding/json can write.
	SaveState() any
	// LoadState takes over what was written.
	LoadState(text []byte) error
}

// DecisionKeeper keeps something for each decision (Data) that it reads after
// Commit: what StateKeeper does, for a decision that is not released.
type DecisionKeeper interface {
	Plugin
	SaveDecision(d *Decision) any
	LoadDecision(d *Decision, text []byte) error
}

// Screener takes endpoints out before producers run and for all profiles.
// A request that no endpoint is left for is answered with 503.
type Screener interface {
	Plugin
	Screen(c *Cycle, candidates []int32) []int32
}

// Producer works out per-request data that other plug-ins read: prefix
// matches, token counts, predictions. It keeps them with Data.
type Producer interface {
	Plugin
	Produce(c *Cycle)
}

// BodyReader completes what is known of a request's body, by its headers. Like
// PromptReader it is called by the request's own goroutine, for several requests
// at once, before the picker has its turn: it reads nothing that changes.
type BodyReader interface {
	Plugin
	ReadBody(r *Request)
}

// PromptReader works out what it will compare of a prompt, where that costs
// something: of each prompt of a body, and of each that a renderer made.
type PromptReader interface {
	Plugin
	ReadPrompt(r *Request, p *parse.Prompt)
}

// PrefixReader compares prompts block by block from their beginning
// (parse.Prompt.AppendBlocks): in blocks of so many tokens, and no further than
// limit tokens. Blocks of other sizes cost more.
type PrefixReader interface {
	Plugin
	PrefixBlocks() (tokens, limit int)
}

// AnswerReader is a Querier whose answers say what a prompt's tokens are:
// ReadAnswer sets Answer.Prompts from Answer.Value, by the request's own
// goroutine.
type AnswerReader interface {
	Querier
	ReadAnswer(a *Answer)
}

// Querier is a plug-in that needs something from outside before Pick: a
// tokeniser, a remote scorer. What comes back is in Cycle.Answer.
type Querier interface {
	Plugin
	Needs(now machine.Time, r *Request, v *View) []Need
}

// Consulter is a Producer that asks the outside about endpoints when a request is
// about to be placed: other producers' data is there. Consult changes nothing;
// what comes back is in Cycle.Answer when Produce is called.
type Consulter interface {
	Producer
	Consult(c *Cycle) []Need
}

// LatencyReader is a Consulter whose answers are latencies: ReadLatencies sets
// Answer.Latencies from Answer.Value, by the request's own goroutine.
type LatencyReader interface {
	Consulter
	ReadLatencies(a *Answer)
}

// Sender is a plug-in that sends to the outside by the clock, and waits for no
// answer. Send is called when SendAt has come, after which that is later.
type Sender interface {
	Plugin
	SendAt() (machine.Time, bool)
	Send(now machine.Time) []Need
}

// Admitter may refuse a request after data was produced. The error's text
// follows "request cannot be admitted: " in a 500.
type Admitter interface {
	Plugin
	Admit(c *Cycle) error
}

// PreRequest looks at the finished decision and may add headers to it
// (Decision.SetHeader). It is part of Pick and must not change state.
type PreRequest interface {
	Plugin
	PreRequest(c *Cycle)
}

// Committer changes its state when a decision takes effect.
type Committer interface {
	Plugin
	Commit(now machine.Time, d *Decision)
}

// Releaser undoes what Commit holds, exactly once per committed decision,
// whatever way the request ended.
type Releaser interface {
	Plugin
	Release(now machine.Time, d *Decision)
}

// ResponseHeader sees the response's headers and may add to them
// (Response.SetHeader).
type ResponseHeader interface {
	Plugin
	ResponseHeader(now machine.Time, r *Response)
}

// ResponseBody sees each chunk of the response; Response.First and
// Response.End tell the first and the last. At the end it may add dynamic
// metadata (Response.SetMetadata).
type ResponseBody interface {
	Plugin
	ResponseBody(now machine.Time, r *Response)
}

// EndpointObserver keeps state by Endpoint.Slot and wants to know when an
// endpoint leaves. With forget the slot will be another endpoint's.
type EndpointObserver interface {
	Plugin
	EndpointGone(slot int, forget bool)
}

// SaturationDetector says how full a set of endpoints is: 1 and above means
// that nothing more should be sent. Indexes are those of the View.
type SaturationDetector interface {
	Plugin
	Saturation(now machine.Time, v *View, candidates []int32) float64
}

// RequestParser is a parse.Parser as a plug-in.
type RequestParser interface {
	Plugin
	Parser() parse.Parser
}

// MetricsExtractor reads the samples of one scrape into an endpoint's metrics.
// Wants says which families of metrics it reads: a page has no others. labels
// are the endpoint's: one of them may name its engine. An error leaves the
// metrics as they were; it is counted and logged, and names the plug-in. The
// page's memory is used again for the next one.
type MetricsExtractor interface {
	Plugin
	Wants(family string) bool
	Extract(page metrics.Page, labels map[string]string, into *Metrics) error
}

// Prober is a MetricsSource that wants to know whether it was answered at all: a
// readiness probe. slot is the endpoint's; err is why there was no answer.
type Prober interface {
	Probed(slot int, err error)
}

// MetricsForgetter is a MetricsExtractor that can take back what it wrote, when
// that has become older than its source's TTL.
type MetricsForgetter interface {
	Forget(m *Metrics)
}

// MetricsSource says where and how often metrics are fetched; the driver
// fetches. Kind "scrape" of document 003.
type MetricsSource interface {
	Plugin
	Scrape() ScrapeSpec
}

// ScrapeSpec is what the driver needs to know to fetch a page.
type ScrapeSpec struct {
	Scheme   string       // http or https
	Path     string       // /metrics
	Port     string       // "" is the endpoint's own
	Interval machine.Time // 0 is the driver's default
	Timeout  machine.Time // 0 is the driver's default
	TTL      machine.Time // metrics older than this are forgotten; 0 is never
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool
}

// Discovery says where the endpoints come from; the driver reads and watches.
type Discovery interface {
	Plugin
	// EndpointsFile returns the path of the endpoints file and whether it is watched.
	EndpointsFile() (path string, watch bool)
}

// Need is one question to the outside.
type Need struct {
	Plugin  string // name of the plug-in that asks
	Key     string // the plug-in's own name for the question
	Method  string
	URL     string
	Timeout machine.Time
	// Headers are set beside content-type.
	Headers header.List
	// Body makes what is sent, when it is sent; an error is the answer then. Nil
	// sends nothing.
	Body func() ([]byte, error)
	// Endpoints are those that the question is about (Endpoint.ID), in its order, and
	// Subject is what Body writes, for who need not read bytes.
	Endpoints []string
	Subject   any
	// Together is how long the driver may wait for others to the same URL, to ask all
	// with one message; 0 is not at all. Their Subjects are predictor.Features.
	Together machine.Time
}

// Answer is what came back: a value, or why there is none (also a timeout).
type Answer struct {
	Plugin string
	Key    string
	Value  []byte
	// Prompts are a renderer's answer in another form than Value.
	Prompts []parse.Prompt
	// Latencies are what was predicted of Endpoints, which are the question's.
	Latencies []Latency
	Endpoints []string
	Err       error
	// Took is how long the driver waited, for metrics; 0 is unknown.
	Took machine.Time
}

// Latency is what is predicted of a request at an endpoint, in milliseconds: the time
// to its first token, and per output token after that.
type Latency struct{ TTFTMs, TPOTMs float64 }

// AnswerTo begins the answer to a question.
func AnswerTo(n *Need) Answer { return Answer{Plugin: n.Plugin, Key: n.Key, Endpoints: n.Endpoints} }
