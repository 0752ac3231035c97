package picker

import (
	"github.com/windtunnel/windtunnel/core/epp/picker/parse"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/wire/header"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Plugin is the interface of all plug-ins: a type, under which the Registry makes it, and a name, under which the
// configuration refers to it. Embed Base.
//
// A plug-in implements any number of the interfaces below. The picker finds out which and calls it accordingly, as
// llm-d-router does. Calls are never concurrent, except where an interface states otherwise. Calls during Pick must not
// change the plug-in's state: a preview is a Pick without Commit.
type Plugin interface {
	Type() string
	Name() string
	base() *Base
}

// Base holds a plug-in's identity. Embed it by value; the Builder sets it.
type Base struct {
	typ, name string
	index     int
	called    string
}

// NewBase returns the identity of a plug-in outside any Registry. The Builder names those that a Factory makes.
func NewBase(typ, name string) Base { return Base{typ: typ, name: name, index: -1} }

// Type returns the name under which the Registry made the plug-in, or CallType's.
func (b *Base) Type() string {
	if b.called != "" {
		return b.called
	}
	return b.typ
}

// CallType sets another type for metrics and pages. For example, decode-filter is a by-label.
func (b *Base) CallType(typ string) { b.called = typ }

// Name returns the instance's name in the configuration.
func (b *Base) Name() string { return b.name }

func (b *Base) base() *Base { return b }

// Filter removes endpoints from a profile's candidates. It is kind "filter" of document 003.
type Filter interface {
	Plugin
	// Filter returns the remaining candidates in their order. It may compact the given slice.
	Filter(c *Cycle, candidates []int32) []int32
}

// Scorer prefers some endpoints to others. It is kind "score" of document 003.
type Scorer interface {
	Plugin
	// Score writes a score in [0, 1] for each candidate: scores[i], which is zero before, for candidates[i]. The picker
	// clamps other values.
	Score(c *Cycle, candidates []int32, scores []float64)
}

// CacheScorer marks a Scorer of how much of a prompt endpoints already hold.
type CacheScorer interface {
	Scorer
	ScoresCache()
}

// Weigher multiplies a scorer's weight for one request by a factor that depends only on the request's headers. 1 is no
// change.
type Weigher interface {
	Plugin
	Weigh(r *Request, s Scorer) float64
}

// EndpointPicker chooses among scored candidates. It appends its choice, best first, to picked. Random choices draw
// from Cycle.Draw, so that a seed repeats them.
type EndpointPicker interface {
	Plugin
	PickEndpoints(c *Cycle, candidates []int32, totals []float64, picked []int32) []int32
}

// ProfileHandler decides which profiles a request runs through (Cycle.Run) and which result is the destination
// (Cycle.SetPrimary). The client gets its error as 429 "failed to find target endpoint: ...".
type ProfileHandler interface {
	Plugin
	Schedule(c *Cycle) error
}

// ProfileChecker is a ProfileHandler that supports only some sets of profiles. The Builder calls it.
type ProfileChecker interface {
	CheckProfiles(names []string) error
}

// HeaderProcessor changes a request by its headers before all other decisions (extension point RequestHeader).
type HeaderProcessor interface {
	Plugin
	RequestHeader(r *Request)
}

// HeaderProducer marks a HeaderProcessor that the real picker runs as a data producer; its time counts there.
type HeaderProducer interface{ ProducesOfHeaders() }

// headerPoint returns the extension point at which a plug-in's time counts.
func headerPoint(h HeaderProcessor) string {
	if _, ok := h.(HeaderProducer); ok {
		return "DataProducer"
	}
	return "RequestHeader"
}

// CookieReader is a plug-in that reads a cookie. SecretReader reads headers that may carry credentials (header.Secret),
// named in lower case. Neither may keep more of them than their Digest.
type (
	CookieReader interface{ ReadsCookie() string }
	SecretReader interface{ ReadsSecrets() []string }
)

// StateKeeper is a plug-in whose state can be saved and loaded into another instance. If a plug-in changes with
// decisions and is no StateKeeper, a recording lacks its state from before the recording's beginning.
type StateKeeper interface {
	Plugin
	// SaveState returns a copy of the state for encoding/json.
	SaveState() any
	// LoadState restores a written state.
	LoadState(text []byte) error
}

// DecisionKeeper is a plug-in that keeps Data for each decision and reads it after Commit. It saves and loads that data
// for decisions that are not released.
type DecisionKeeper interface {
	Plugin
	SaveDecision(d *Decision) any
	LoadDecision(d *Decision, text []byte) error
}

// Screener removes endpoints for all profiles, before producers run. A request without remaining endpoints gets 503.
type Screener interface {
	Plugin
	Screen(c *Cycle, candidates []int32) []int32
}

// Producer computes data about a request for other plug-ins: prefix matches, token counts, predictions. It stores them
// with Data.
type Producer interface {
	Plugin
	Produce(c *Cycle)
}

// BodyReader completes a request's body by its headers. Like PromptReader, it is called concurrently by the requests'
// goroutines, before the picker's turn, and must not read state that changes.
type BodyReader interface {
	Plugin
	ReadBody(r *Request)
}

// PromptReader prepares its costly data of a prompt, for each prompt of a body and each that a renderer made.
type PromptReader interface {
	Plugin
	ReadPrompt(r *Request, p *parse.Prompt)
}

// PrefixReader compares prompts block by block from the beginning (parse.Prompt.AppendBlocks). PrefixBlocks returns the
// block size and the longest compared prefix, in tokens. Blocks of other sizes cost more.
type PrefixReader interface {
	Plugin
	PrefixBlocks() (tokens, limit int)
}

// AnswerReader is a Querier whose answers contain a prompt's tokens. ReadAnswer sets Answer.Prompts from Answer.Value,
// in the request's goroutine.
type AnswerReader interface {
	Querier
	ReadAnswer(a *Answer)
}

// Querier is a plug-in that calls a service outside before Pick: a tokeniser, a remote scorer. Cycle.Answer has the
// answers.
type Querier interface {
	Plugin
	Needs(now machine.Time, r *Request, v *View) []Need
}

// Consulter is a Producer that calls a service about endpoints just before a request is placed, when other producers'
// data exists. Consult changes nothing; Produce finds the answers in Cycle.Answer.
type Consulter interface {
	Producer
	Consult(c *Cycle) []Need
}

// LatencyReader is a Consulter whose answers are latencies. ReadLatencies sets Answer.Latencies from Answer.Value, in
// the request's goroutine.
type LatencyReader interface {
	Consulter
	ReadLatencies(a *Answer)
}

// Sender is a plug-in that sends messages at certain times and waits for no answer. The picker calls Send at SendAt,
// after which SendAt must return a later time.
type Sender interface {
	Plugin
	SendAt() (machine.Time, bool)
	Send(now machine.Time) []Need
}

// Admitter may refuse a request after data was produced. The client gets a 500 with "request cannot be admitted: " and
// the error.
type Admitter interface {
	Plugin
	Admit(c *Cycle) error
}

// PreRequest reads the finished decision and may add headers to it (Decision.SetHeader). It is part of Pick and must
// not change state.
type PreRequest interface {
	Plugin
	PreRequest(c *Cycle)
}

// Committer changes its state when a decision takes effect.
type Committer interface {
	Plugin
	Commit(now machine.Time, d *Decision)
}

// Releaser undoes the effects of Commit. It is called exactly once for each committed decision, however the request
// ends.
type Releaser interface {
	Plugin
	Release(now machine.Time, d *Decision)
}

// ResponseHeader reads the response's headers and may add to them (Response.SetHeader).
type ResponseHeader interface {
	Plugin
	ResponseHeader(now machine.Time, r *Response)
}

// ResponseBody reads each chunk of the response. Response.First and Response.End mark the first and the last. At the
// end it may add dynamic metadata (Response.SetMetadata).
type ResponseBody interface {
	Plugin
	ResponseBody(now machine.Time, r *Response)
}

// EndpointObserver keeps state by Endpoint.Slot. EndpointGone reports that an endpoint left; with forget, another
// endpoint will get the slot.
type EndpointObserver interface {
	Plugin
	EndpointGone(slot int, forget bool)
}

// SaturationDetector returns how full a set of endpoints is. At 1 and above no further requests should go to them.
// Indexes are those of the View.
type SaturationDetector interface {
	Plugin
	Saturation(now machine.Time, v *View, candidates []int32) float64
}

// RequestParser is a parse.Parser as a plug-in.
type RequestParser interface {
	Plugin
	Parser() parse.Parser
}

// MetricsExtractor reads one scraped page into an endpoint's metrics. Wants reports whether it reads a family of
// metrics; a page has no others. labels are the endpoint's; one label may name its engine. After an error, which is
// counted and logged with the plug-in's name, the metrics stay as they were. The page's memory is reused.
type MetricsExtractor interface {
	Plugin
	Wants(family string) bool
	Extract(page metrics.Page, labels map[string]string, into *Metrics) error
}

// Prober is a MetricsSource that needs each probe's result, for readiness. slot is the endpoint's; err is nil after an
// answer.
type Prober interface {
	Probed(slot int, err error)
}

// MetricsForgetter is a MetricsExtractor that can reset the metrics it wrote when they are older than their source's
// TTL.
type MetricsForgetter interface {
	Forget(m *Metrics)
}

// MetricsSource states where and how often the driver fetches metrics. It is kind "scrape" of document 003.
type MetricsSource interface {
	Plugin
	Scrape() ScrapeSpec
}

// ScrapeSpec describes how to fetch a page.
type ScrapeSpec struct {
	Scheme   string       // http or https
	Path     string       // /metrics
	Port     string       // "" is the endpoint's own
	Interval machine.Time // 0 is the driver's default
	Timeout  machine.Time // 0 is the driver's default
	TTL      machine.Time // metrics older than this are dropped; 0 is never
	// InsecureSkipVerify accepts any certificate.
	InsecureSkipVerify bool
}

// Discovery states where the endpoints come from; the driver reads and watches the source.
type Discovery interface {
	Plugin
	// EndpointsFile returns the path of the endpoints file and whether it is watched.
	EndpointsFile() (path string, watch bool)
}

// Need is one call of a plug-in to a service outside.
type Need struct {
	Plugin  string // name of the calling plug-in
	Key     string // the plug-in's own name for the call
	Method  string
	URL     string
	Timeout machine.Time
	// Headers are sent besides content-type.
	Headers header.List
	// Body encodes the request's body when it is sent; its error becomes the answer. Nil sends no body.
	Body func() ([]byte, error)
	// Endpoints are the endpoints that the call concerns (Endpoint.ID), in its order. Subject is the content that Body
	// encodes, for readers within the process.
	Endpoints []string
	Subject   any
	// Together is how long the driver may wait for other calls to the same URL, to send all in one message; 0 is no
	// wait. Their Subjects are predictor.Features.
	Together machine.Time
}

// Answer is the answer to a Need: a value, or an error (also a timeout). The tags are its names in the log of inputs.
type Answer struct {
	Plugin string `json:"plugin"`
	Key    string `json:"key"`
	Value  []byte `json:"value"`
	// Prompts are a renderer's answer in another form than Value.
	Prompts []parse.Prompt `json:"-"`
	// Latencies are the predictions for Endpoints, which are the Need's.
	Latencies []Latency `json:"-"`
	Endpoints []string  `json:"endpoints"`
	Err       error     `json:"-"`
	// Took is how long the driver waited, for metrics; 0 is unknown.
	Took machine.Time `json:"-"`
}

// Latency is a request's predicted or measured latency at an endpoint, in milliseconds: time to first token, and time
// per output token after that.
type Latency struct{ TTFTMs, TPOTMs float64 }

// AnswerTo returns an empty answer to a Need.
func AnswerTo(n *Need) Answer { return Answer{Plugin: n.Plugin, Key: n.Key, Endpoints: n.Endpoints} }
