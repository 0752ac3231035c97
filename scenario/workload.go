package scenario

import (
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/scenario/size"
)

// Workload describes the requests of the simulated client.
type Workload struct {
	// How many requests to send.
	Requests int `json:"requests" min:"1" max:"100000000" default:"1"`
	// Recorded requests, in place of generated ones.
	Trace WorkloadTrace `json:"trace"`
	// How many requests are in flight at once (closed loop). With a rate, the largest number.
	Concurrency int `json:"concurrency" min:"1" max:"1000000" default:"1"`
	// Requests per second that arrive independently of the end of earlier ones (open loop). Left out: the client sends
	// the next request when one ends.
	Rate float64 `json:"rate" min:"0" max:"10000000"`
	// How the times between arrivals are distributed: poisson, constant, gamma or weibull.
	Arrivals Arrivals `json:"arrivals" oneof:"poisson,constant,gamma,weibull" default:"poisson"`
	// The shape of gamma and weibull arrivals, like the burstiness of vLLM's benchmark: below 1 they are bursty, 1 is
	// poisson, above 1 they are more regular.
	Burstiness float64 `json:"burstiness" min:"0.01" max:"10000" default:"1"`
	// Consecutive rates, in place of rate. No request arrives after the last stage.
	Stages []Stage `json:"stages" max:"10000"`
	// Alternating times with and without arrivals.
	Bursts Bursts `json:"bursts"`
	// A rate that follows the time of day.
	Diurnal Diurnal `json:"diurnal"`
	// The time after which the client begins no conversation. Without requests, it also determines their number.
	Duration time.Duration `json:"duration" min:"1ms" max:"8760h"`
	// Whether requests ask for server-sent events ("stream": true).
	Stream bool `json:"stream" default:"true"`
	// Whether request bodies are sent in chunks, without content-length.
	ChunkedUpload bool `json:"chunkedUpload"`
	// The model that requests ask for: a pool's model, or an adapter. Left out: the first pool's.
	Model string `json:"model"`
	// The API of requests: chat for POST /v1/chat/completions, completions for POST /v1/completions, messages for
	// Anthropic's POST /v1/messages, responses for POST /v1/responses, grpc-generate and grpc-embed for Generate and
	// Embed of vLLM's gRPC service (vllm.grpc.engine.VllmEngine), which take HTTP/2 all the way and end with trailers.
	API API `json:"api" oneof:"chat,completions,messages,responses,grpc-generate,grpc-embed" default:"chat"`
	// More fields of every request's body, a JSON object such as '{"n": 2, "stop": ["a"]}'.
	BodyFields string `json:"bodyFields"`
	// The protocol between client and Envoy.
	HTTP HTTPVersion `json:"http" oneof:"http1,http2" default:"http1"`
	// The path of requests, with or without a query, such as /default/my-llm/v1/chat/completions, in place of the API's
	// own. It needs manifests with a route from there.
	Path string `json:"path"`
	// The host of requests, such as llm.example.com. It needs manifests.
	Host string `json:"host"`
	// The content of the prompts.
	Prompt Prompt `json:"prompt"`
	// The most tokens that a request asks for (max_tokens). 0 leaves it to the model server.
	MaxTokens int `json:"maxTokens" min:"0" max:"1000000"`
	// How many tokens each answer has (max_tokens and min_tokens with ignore_eos), in place of maxTokens.
	OutputTokens dist.Dist `json:"outputTokens" unit:"count" min:"1" max:"1000000"`
	// Requests that continue earlier ones.
	Conversations Conversations `json:"conversations"`
	// Further headers of requests, such as an InferenceObjective's name or a latency objective.
	Headers []RequestHeader `json:"headers" max:"64"`
	// LoRA adapters that conversations ask for in place of the pool's model. The sum of the shares is at most 100%.
	LoRAAdapters []AdapterShare `json:"loraAdapters" max:"1024"`
	// Whether streamed answers end with their number of tokens (stream_options.include_usage).
	IncludeUsage bool `json:"includeUsage"`
	// Several concurrent kinds of traffic.
	Classes []TrafficClass `json:"classes" max:"64"`
	// Clients that do not wait for the answer.
	Leaving Leaving `json:"leaving"`
	// The objectives of a good answer: goodput and attainment in the summary count answers within all of them. A class
	// of traffic may have other objectives.
	SLO SLO `json:"slo"`
	// How long the client waits for a whole answer.
	Timeout time.Duration `json:"timeout" min:"1ms" max:"24h" default:"2m"`

	most     int // the number of requests before settle
	class    int // the class's number from 1, for a workload of one class
	priority int // of that class
}

// SLO are the objectives of a good answer. Those that are left out do not count.
type SLO = record.SLO

// Judges reports whether the workload, or a class of it, has objectives of a good answer.
func (w *Workload) Judges() bool {
	return w.SLO.Given() || slices.ContainsFunc(w.Classes, func(c TrafficClass) bool { return c.SLO.Given() })
}

// RequestHeader is a header that some requests have.
type RequestHeader struct {
	// The header's name, such as x-llm-d-inference-objective.
	Name string `json:"name"`
	// The value that the requests send.
	Value string `json:"value"`
	// The part of all requests that have the header. Left out: all.
	Share Share `json:"share"`
}

// Prompt describes the content of prompts. At most one of text, bytes, characters and tokens is given.
type Prompt struct {
	// The same words in every request.
	Text string `json:"text"`
	// The length of a random prompt in bytes of UTF-8, for instance 1KiB or 1..4MiB.
	Bytes size.Range `json:"bytes" min:"1" max:"64MiB"`
	// The length of a random prompt in characters.
	Characters dist.Dist `json:"characters" unit:"count" min:"1" max:"67108864"`
	// The length of a random prompt in tokens of four ASCII characters. Simulated servers without a tokenizer count
	// these; another tokenizer makes more or fewer. The chat template adds its own.
	Tokens dist.Dist `json:"tokens" unit:"count" min:"1" max:"16777216"`
	// The characters of a random prompt: ascii, unicode (any code point), or boundary-like (text that resembles a
	// multipart delimiter).
	Alphabet Alphabet `json:"alphabet" oneof:"ascii,unicode,boundary-like" default:"ascii"`
	// Shared beginnings of prompts, such as system prompts. The rest of a prompt follows.
	Shared SharedPrompt `json:"shared"`
}

// SharedPrompt describes the shared beginnings of prompts.
type SharedPrompt struct {
	// The number of different beginnings. Each request draws one of them. 0: prompts share nothing.
	Groups int `json:"groups" min:"0" max:"100000"`
	// The length of a beginning in characters.
	Characters dist.Dist `json:"characters" unit:"count" min:"1" max:"16777216"`
}

// complete sets the length of prompts where neither their content nor their length is given.
func (p *Prompt) complete() {
	if p.Text == "" && p.Bytes.IsZero() && p.Characters.Quantile(1) == 0 && p.Tokens.Quantile(1) == 0 {
		p.Characters, _ = dist.ParseCount("100") // a valid text
	}
}
