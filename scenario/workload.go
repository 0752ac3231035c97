package scenario

import (
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario/size"
)

// Workload is what the simulated client sends.
type Workload struct {
	// How many requests to send.
	Requests int `json:"requests" min:"1" max:"100000000"`
	// Requests that were once sent, in place of made up ones.
	Trace WorkloadTrace `json:"trace"`
	// How many requests to have in flight at once (closed loop). With a rate, the most that may be.
	Concurrency int `json:"concurrency" min:"1" max:"1000000"`
	// Requests per second that arrive whether or not earlier ones have ended (open loop). Left out: the next request is
	// sent when one ends.
	Rate float64 `json:"rate" min:"0" max:"10000000"`
	// How the times between arrivals are distributed: poisson, constant, gamma or weibull.
	Arrivals Arrivals `json:"arrivals"`
	// The shape of gamma and weibull arrivals, as the burstiness of vLLM's benchmark: below 1 they come in heaps, 1 is
	// poisson, above 1 they are more regular.
	Burstiness float64 `json:"burstiness" min:"0.01" max:"10000"`
	// Rates one after the other, in place of rate. After the last nobody arrives.
	Stages []Stage `json:"stages" max:"10000"`
	// Times in which requests arrive and times in which none does, by turns.
	Bursts Bursts `json:"bursts"`
	// A rate that follows the time of day.
	Diurnal Diurnal `json:"diurnal"`
	// When the client begins no conversation any more. Without requests beside it there are as many as it takes.
	Duration time.Duration `json:"duration" min:"1ms" max:"8760h"`
	// Whether answers are asked for as server-sent events ("stream": true).
	Stream bool `json:"stream"`
	// Whether request bodies are sent without content-length, as they are written.
	ChunkedUpload bool `json:"chunkedUpload"`
	// The model that requests ask for: that of a pool, or an adapter. Left out, the first pool's.
	Model string `json:"model"`
	// What is asked: chat for POST /v1/chat/completions, completions for POST /v1/completions, messages for Anthropic's
	// POST /v1/messages, responses for POST /v1/responses, grpc-generate and grpc-embed for Generate and Embed of
	// vLLM's gRPC service (vllm.grpc.engine.VllmEngine), which take HTTP/2 all the way and end with trailers.
	API API `json:"api"`
	// More fields of every request's body, a JSON object such as '{"n": 2, "stop": ["a"]}'.
	BodyFields string `json:"bodyFields"`
	// The protocol between client and Envoy.
	HTTP HTTPVersion `json:"http"`
	// The path that requests ask for, with a query or without, such as /default/my-llm/v1/chat/completions, in place of
	// the API's own. It needs manifests whose routes lead from there.
	Path string `json:"path"`
	// The host that requests name, such as llm.example.com. It needs manifests.
	Host string `json:"host"`
	// What the prompts are made of.
	Prompt Prompt `json:"prompt"`
	// The most tokens that a request asks for (max_tokens). 0 leaves it to the model server.
	MaxTokens int `json:"maxTokens" min:"0" max:"1000000"`
	// How many tokens each answer has (max_tokens and min_tokens with ignore_eos), in place of maxTokens.
	OutputTokens dist.Dist `json:"outputTokens" unit:"count" min:"1" max:"1000000"`
	// Requests that go on from earlier ones.
	Conversations Conversations `json:"conversations"`
	// Headers that requests have besides their own, such as an InferenceObjective's name or a latency objective.
	Headers []RequestHeader `json:"headers" max:"64"`
	// LoRA adapters that conversations ask for in the place of the pool's model; the shares come to at most 100%.
	LoRAAdapters []AdapterShare `json:"loraAdapters" max:"1024"`
	// Whether streamed answers end with how many tokens they had (stream_options.include_usage).
	IncludeUsage bool `json:"includeUsage"`
	// Several kinds of traffic at once.
	Classes []TrafficClass `json:"classes" max:"64"`
	// Clients that do not wait for the answer.
	Leaving Leaving `json:"leaving"`
	// What makes an answer good: goodput and attainment in the summary count those within all of these. A class of
	// traffic may have another.
	SLO SLO `json:"slo"`
	// How long the client waits for a whole answer.
	Timeout time.Duration `json:"timeout" min:"1ms" max:"24h"`

	most     int // the requests that were asked for, see settle
	class    int // the class's number from 1, if this is one's own
	priority int // of a class
}

func (w *Workload) defaults() {
	w.Requests = 1
	w.Concurrency = 1
	w.Stream = true
	w.HTTP = HTTP1
	w.API = ChatAPI
	w.Arrivals = PoissonArrivals
	w.Burstiness = 1
	w.Timeout = 2 * time.Minute
}

// SLO is what makes an answer good; what is left out does not matter.
type SLO = record.SLO

// Judges says whether anything says what makes an answer good: the workload or a class of it.
func (w *Workload) Judges() bool {
	return w.SLO.Given() || slices.ContainsFunc(w.Classes, func(c TrafficClass) bool { return c.SLO.Given() })
}

// RequestHeader is a header of requests.
type RequestHeader struct {
	// The header's name, such as x-llm-d-inference-objective.
	Name string `json:"name"`
	// Its value.
	Value string `json:"value"`
	// The part of all requests that have it; left out, all.
	Share Share `json:"share"`
}

// Prompt is what prompts are made of. At most one of text, bytes, characters and
// tokens is given.
type Prompt struct {
	// The same words in every request.
	Text string `json:"text"`
	// The length of a random prompt in bytes of UTF-8, for instance 1KiB or 1..4MiB.
	Bytes size.Range `json:"bytes" min:"1" max:"64MiB"`
	// The length of a random prompt in characters.
	Characters dist.Dist `json:"characters" unit:"count" min:"1" max:"67108864"`
	// The length of a random prompt in tokens of four ASCII characters, which is what simulated servers without a
	// tokenizer count; another tokenizer makes more or fewer of them. The chat template's own come on top.
	Tokens dist.Dist `json:"tokens" unit:"count" min:"1" max:"16777216"`
	// Which characters a random prompt has: ascii, unicode (any code point), or boundary-like (text that resembles a
	// multipart delimiter).
	Alphabet Alphabet `json:"alphabet"`
	// What prompts have in common at their beginnings, such as system prompts; the rest of a prompt follows it.
	Shared SharedPrompt `json:"shared"`
}

// SharedPrompt is what prompts have in common at their beginnings.
type SharedPrompt struct {
	// How many different beginnings there are; each request draws one of them. 0: prompts have nothing in common.
	Groups int `json:"groups" min:"0" max:"100000"`
	// How long a beginning is, in characters.
	Characters dist.Dist `json:"characters" unit:"count" min:"1" max:"16777216"`
}

// unsaid tells whether nothing says what a prompt is or how long.
func (p *Prompt) unsaid() bool {
	return p.Text == "" && p.Bytes.IsZero() && p.Characters.Quantile(1) == 0 && p.Tokens.Quantile(1) == 0
}

func (p *Prompt) defaults() { p.Alphabet = ASCII }
