package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Sampling holds the fields that chat and completion requests share: OpenAI's and vLLM's own.
type Sampling struct {
	Model            string             `json:"model"`
	Stream           bool               `json:"stream"`
	StreamOptions    *StreamRequest     `json:"stream_options"`
	MaxTokens        *int               `json:"max_tokens"`
	N                *int               `json:"n"`
	Stop             Strings            `json:"stop"`
	StopTokenIDs     []uint32           `json:"stop_token_ids"`
	IncludeStop      bool               `json:"include_stop_str_in_output"`
	IgnoreEOS        bool               `json:"ignore_eos"`
	MinTokens        int                `json:"min_tokens"`
	Seed             *int64             `json:"seed"`
	Temperature      *float64           `json:"temperature"`
	TopP             *float64           `json:"top_p"`
	TopK             *int               `json:"top_k"`
	MinP             *float64           `json:"min_p"`
	PresencePenalty  *float64           `json:"presence_penalty"`
	FrequencyPenalty *float64           `json:"frequency_penalty"`
	LogitBias        map[string]float64 `json:"logit_bias"`
	Priority         int64              `json:"priority"`
	RequestID        string             `json:"request_id"`
	SessionID        string             `json:"session_id"`
	CacheSalt        string             `json:"cache_salt"`
	ReturnTokenIDs   bool               `json:"return_token_ids"`
	PromptLogprobs   *int               `json:"prompt_logprobs"`
	// TruncatePrompt keeps only this many tokens at the end of the prompt; -1 keeps as many as fit.
	TruncatePrompt *int `json:"truncate_prompt_tokens"`
	// ResponseFormat and StructuredOutputs constrain the form of an answer. Guided does the same with vLLM's fields
	// before 0.12.
	ResponseFormat    json.RawMessage `json:"response_format"`
	StructuredOutputs json.RawMessage `json:"structured_outputs"`
	*Guided
	KVTransferParams json.RawMessage `json:"kv_transfer_params"`
	ECTransferParams json.RawMessage `json:"ec_transfer_params"`
	// SGLang's bootstrap fields say where the prefill server and the decode server of this request find each other.
	// Other engines ignore them.
	BootstrapHost json.RawMessage `json:"bootstrap_host"`
	BootstrapPort json.RawMessage `json:"bootstrap_port"`
	BootstrapRoom json.RawMessage `json:"bootstrap_room"`
	// CacheHitThreshold (0…1) ends the request at once, with the finish reason cache_threshold, where the cache holds a
	// smaller part of the prompt.
	CacheHitThreshold *float64 `json:"cache_hit_threshold"`
	// KVHandle names blocks that another server holds, in the form of document 002 (docs/documents.md).
	KVHandle string `json:"kv_handle"`
	// KVMetadata requests a handle in that form.
	KVMetadata bool `json:"return_kv_metadata"`
}

// Guided holds vLLM's older fields for the form of an answer.
type Guided struct {
	JSON    json.RawMessage `json:"guided_json"`
	Regex   json.RawMessage `json:"guided_regex"`
	Choice  json.RawMessage `json:"guided_choice"`
	Grammar json.RawMessage `json:"guided_grammar"`
}

// StreamRequest is a request's stream_options.
type StreamRequest struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

// Usage reports whether a stream ends with a usage chunk, and whether every chunk has the usage so far.
func (s *Sampling) Usage() (include, continuous bool) {
	if s.StreamOptions == nil {
		return false, false
	}
	return s.StreamOptions.IncludeUsage, s.StreamOptions.IncludeUsage && s.StreamOptions.ContinuousUsage
}

// Choices returns the number of answers that the request asks for.
func (s *Sampling) Choices() int {
	if s.N == nil {
		return 1
	}
	return *s.N
}

// MaxChoices limits n, as vLLM does, so that one request cannot demand unbounded work.
const MaxChoices = 16384

// MaxLogprobs limits the alternatives with logprobs for each token. It is vLLM's default of --max-logprobs.
const MaxLogprobs = 20

// greedy is the temperature below which vLLM does not sample.
const greedy = 1e-5

// Repeats reports whether the same prompt gets the same answer again, because the request has a seed or decodes
// greedily. The answer depends on seed, which is 0 for a greedy request.
func (s *Sampling) Repeats() (seed uint64, repeats bool) {
	switch {
	case s.Temperature != nil && *s.Temperature < greedy:
		return 0, true
	case s.Seed != nil:
		return uint64(*s.Seed), true
	}
	return 0, false
}

// Check returns an error for values that vLLM refuses.
func (s *Sampling) Check() *Error {
	presence, frequency, logprobs, hits := s.PresencePenalty, s.FrequencyPenalty, s.PromptLogprobs, s.CacheHitThreshold
	switch {
	case s.N != nil && (*s.N < 1 || *s.N > MaxChoices):
		return Errorf(400, "n", "n must be between 1 and %d, got %d.", MaxChoices, *s.N)
	case s.MaxTokens != nil && *s.MaxTokens < 0:
		return Errorf(400, "max_tokens", "max_tokens must be at least 1, got %d.", *s.MaxTokens)
	case s.MinTokens < 0:
		return Errorf(400, "min_tokens", "min_tokens must be greater than or equal to 0, got %d.", s.MinTokens)
	case s.MaxTokens != nil && s.MinTokens > *s.MaxTokens:
		return TooManyMinTokens(*s.MaxTokens, s.MinTokens)
	case s.Temperature != nil && *s.Temperature < 0:
		return Errorf(400, "temperature", "temperature must be non-negative, got %v.", *s.Temperature)
	case s.TopP != nil && (*s.TopP <= 0 || *s.TopP > 1):
		return Errorf(400, "top_p", "top_p must be in (0, 1], got %v.", *s.TopP)
	case s.TopK != nil && *s.TopK < -1:
		return Errorf(400, "top_k", "top_k must be 0 (disable), or at least 1, got %d.", *s.TopK)
	case presence != nil && (*presence < -2 || *presence > 2):
		return Errorf(400, "presence_penalty", "presence_penalty must be in [-2, 2], got %v.", *presence)
	case frequency != nil && (*frequency < -2 || *frequency > 2):
		return Errorf(400, "frequency_penalty", "frequency_penalty must be in [-2, 2], got %v.", *frequency)
	case s.MinP != nil && (*s.MinP < 0 || *s.MinP > 1):
		return Errorf(400, "min_p", "min_p must be in [0, 1], got %v.", *s.MinP)
	case logprobs != nil && s.Stream && (*logprobs > 0 || *logprobs == -1):
		return Errorf(400, "prompt_logprobs", "`prompt_logprobs` are not available when `stream=True`.")
	case logprobs != nil && *logprobs < -1:
		return Errorf(400, "prompt_logprobs", "`prompt_logprobs` must be a positive value or -1.")
	case logprobs != nil && (*logprobs == -1 || *logprobs > MaxLogprobs):
		return Errorf(400, "prompt_logprobs", "Requested prompt logprobs of %d, which is greater than max allowed: %d",
			*logprobs, MaxLogprobs)
	case hits != nil && !(*hits >= 0 && *hits <= 1):
		return Errorf(400, "cache_hit_threshold", "cache_hit_threshold must be in [0, 1], got %v.", *hits)
	case s.StreamOptions != nil && !s.Stream:
		return Errorf(400, "stream_options", "Stream options can only be defined when `stream=True`.")
	case slices.Contains(s.Stop, ""):
		return Errorf(400, "stop", "stop cannot contain an empty string.")
	case len(s.KVTransferParams) > 0 && !isObjectOrNull(s.KVTransferParams):
		return Errorf(400, "kv_transfer_params", "kv_transfer_params: expected an object, got %s.",
			kindOf(s.KVTransferParams))
	}
	return nil
}

// Chat is a request to /v1/chat/completions.
type Chat struct {
	Sampling
	Messages            []Message  `json:"messages"`
	MaxCompletionTokens *int       `json:"max_completion_tokens"`
	Logprobs            bool       `json:"logprobs"`
	TopLogprobs         int        `json:"top_logprobs"`
	Tools               []Tool     `json:"tools"`
	ToolChoice          ToolChoice `json:"tool_choice"`
	ParallelToolCalls   *bool      `json:"parallel_tool_calls"`
	ReasoningEffort     string     `json:"reasoning_effort"`
	Echo                bool       `json:"echo"`
	AddGenerationPrompt *bool      `json:"add_generation_prompt"`
	// ContinueFinalMessage makes the model continue the last message.
	ContinueFinalMessage bool `json:"continue_final_message"`
	// ChatTemplateKwargs are variables for the chat template.
	ChatTemplateKwargs json.RawMessage `json:"chat_template_kwargs"`
	// NewMessages and ContinueFrom come with KVHandle (document 002). They hold the messages that the handle does not
	// cover, and the text that the model continues.
	NewMessages  []Message `json:"new_messages"`
	ContinueFrom string    `json:"continue_from"`
}

// CheckPrompt refuses a chat that both begins a message and continues one. The error has vLLM's text where the request
// sets both, and the text of transformers where it omits add_generation_prompt.
func (c *Chat) CheckPrompt() *Error {
	switch {
	case !c.ContinueFinalMessage || c.AddGenerationPrompt != nil && !*c.AddGenerationPrompt:
		return nil
	case c.AddGenerationPrompt != nil:
		return Errorf(400, "", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	}
	return Errorf(400, "", "continue_final_message and add_generation_prompt are not compatible. Use "+
		"continue_final_message when you want the model to continue the final message, "+
		"and add_generation_prompt when you want to add a header that will prompt it to start a new assistant "+
		"message instead.")
}

// Limit returns the request's limit of generated tokens, and false where it has none.
func (c *Chat) Limit() (int, bool) {
	switch {
	case c.MaxCompletionTokens != nil:
		return *c.MaxCompletionTokens, true
	case c.MaxTokens != nil:
		return *c.MaxTokens, true
	}
	return 0, false
}

// Parse overwrites c with the request to /v1/chat/completions in body. A server that parses many requests may reuse one
// c. Parse overwrites the old list of messages and changes nothing else that the old c points to.
func (c *Chat) Parse(body []byte) *Error {
	spare := c.Messages[:0]
	*c = Chat{}
	if !fastChat(body, c, spare) {
		*c = Chat{}
		if err := Decode(body, c); err != nil {
			return err
		}
	}
	if c.KVHandle != "" && len(c.Messages) == 0 {
		c.Messages = c.NewMessages
		if len(c.Messages) == 0 && c.ContinueFrom != "" {
			c.Messages = []Message{{Role: "assistant", Content: Content{Text: c.ContinueFrom}}}
		}
	}
	if c.Messages == nil {
		return Invalidf("messages", "messages: field required, expected a list of messages.")
	}
	if len(c.Messages) == 0 {
		return Errorf(400, "messages", "messages: expected at least one message, got an empty list.")
	}
	for i := range c.Messages {
		if c.Messages[i].Role == "" {
			return Invalidf(fmt.Sprintf("messages[%d].role", i),
				"messages[%d].role: field required, expected system, user, assistant, tool or developer.", i)
		}
	}
	switch n, limited := c.Limit(); {
	case limited && n < 1:
		return Errorf(400, "max_tokens", "max_tokens must be at least 1, got %d.", n)
	case c.TopLogprobs != 0 && !c.Logprobs:
		return Errorf(400, "top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.")
	case c.TopLogprobs < -1 || c.TopLogprobs > 20:
		return Errorf(400, "top_logprobs", "top_logprobs: expected 0 to 20, got %d.", c.TopLogprobs)
	}
	if e := c.checkTools(); e != nil {
		return e
	}
	if e := c.CheckPrompt(); e != nil {
		return e
	}
	return c.Check()
}

// Completion is a request to /v1/completions.
type Completion struct {
	Sampling
	Prompt   Prompt `json:"prompt"`
	Echo     bool   `json:"echo"`
	Logprobs *int   `json:"logprobs"`
	Suffix   string `json:"suffix"`
}

// DefaultCompletionTokens is OpenAI's default max_tokens for completions.
const DefaultCompletionTokens = 16

// MaxPrompts limits the prompts of one completion request.
const MaxPrompts = 4096

// ParseCompletion parses a request to /v1/completions.
func ParseCompletion(body []byte) (*Completion, *Error) {
	c := new(Completion)
	if err := Decode(body, c); err != nil {
		return nil, err
	}
	if c.MaxTokens == nil {
		n := DefaultCompletionTokens
		c.MaxTokens = &n
	}
	switch {
	case c.Prompt.Len() == 0:
		return nil, Errorf(400, "prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
	case c.Prompt.Len() > MaxPrompts:
		return nil, Errorf(400, "prompt", "prompt: expected at most %d prompts, got %d.", MaxPrompts, c.Prompt.Len())
	case *c.MaxTokens == 0 && !c.Echo:
		return nil, Errorf(400, "max_tokens", "max_tokens must be at least 1, got 0.")
	case c.Suffix != "":
		return nil, Errorf(400, "suffix", "suffix is not currently supported")
	case c.Logprobs != nil && (*c.Logprobs < 0 || *c.Logprobs > MaxLogprobs):
		return nil, Errorf(400, "logprobs", "logprobs: expected 0 to %d, got %d.", MaxLogprobs, *c.Logprobs)
	}
	return c, c.Check()
}

// Decode parses one JSON object. The error names the field at fault.
func Decode(body []byte, into any) *Error {
	if len(bytes.TrimSpace(body)) == 0 {
		return Invalidf("", "The request body is empty, expected a JSON object.")
	}
	err := json.Unmarshal(body, into)
	if err == nil {
		return nil
	}
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) {
		if typed.Field == "" {
			return Invalidf("", "The request body is a JSON %s, expected an object.", typed.Value)
		}
		field := wireName(typed.Field)
		return Invalidf(field, "%s: expected %s, got %s.", field, expected(typed.Type.Kind().String()), typed.Value)
	}
	var ours *Error
	if errors.As(err, &ours) {
		return ours
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return Invalidf("", "The request body is not valid JSON: %v at byte %d.", syntax, syntax.Offset)
	}
	return Invalidf("", "The request body could not be read: %v.", err)
}

// wireName returns a field's name as the client wrote it. encoding/json prefixes it with the names of embedded structs,
// which begin with a capital letter.
func wireName(field string) string {
	for {
		head, rest, more := strings.Cut(field, ".")
		if !more || head == "" || head[0] < 'A' || head[0] > 'Z' {
			return field
		}
		field = rest
	}
}

func expected(kind string) string {
	switch kind {
	case "int", "int64":
		return "an integer"
	case "uint32", "uint64":
		return "an integer from 0 on"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	case "slice":
		return "a list"
	case "map", "struct", "ptr":
		return "an object"
	}
	return "another type"
}

func isObjectOrNull(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && (raw[0] == '{' || string(raw) == "null")
}

func kindOf(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '[':
		return "a list"
	case '{':
		return "an object"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
