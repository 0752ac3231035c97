package parse

import (
	"fmt"
	"slices"

	"github.com/windtunnel/windtunnel/core/wire/described"
)

// MaxBodyBytes is the longest request body that is parsed.
const MaxBodyBytes = 64 << 20

// Kind is the API that a request body belongs to.
type Kind uint8

// The APIs, in the order of document 004.
const (
	Opaque Kind = iota // bytes that no parser read
	Chat
	Completions
	Embeddings
	Responses
	Conversations
	Images
	Messages     // Anthropic
	Generate     // vLLM /inference/v1/generate
	GRPCGenerate // vllm.grpc.engine.VllmEngine/Generate
	GRPCEmbed    // vllm.grpc.engine.VllmEngine/Embed
)

var kindNames = [...]string{"opaque", "chat", "completions", "embeddings", "responses", "conversations",
	"images", "messages", "generate", "grpc-generate", "grpc-embed"}

// String returns the API's name as it appears in records and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", k)
}

// KindNamed returns the API of a name.
func KindNamed(name string) (Kind, bool) {
	i := slices.Index(kindNames[:], name)
	return Kind(max(i, 0)), i >= 0
}

const bytesPerToken = 4

// Body holds the fields of a request's body that the picker reads. The tags are their names in the log of inputs.
type Body struct {
	Kind   Kind   `json:"-"`
	Parser string `json:"parser"` // type of the parser that read it
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	// MaxOutputTokens is the client's limit; negative when it stated none.
	MaxOutputTokens int64 `json:"-"`
	// CacheSalt keeps the prefix caches of different clients apart.
	CacheSalt string   `json:"salt"`
	Prompts   []Prompt `json:"-"`
	// Multimodal counts images, audio and video parts; Assets are those whose content is known.
	Multimodal int     `json:"multimodal"`
	Assets     []Asset `json:"-"`
	// ContentParts states that a renderer gets a message's content as a list of parts, which may take long to render.
	ContentParts bool `json:"-"`
	// Wrapped states that the JSON is inside another message, so that its model cannot be replaced in place.
	Wrapped bool `json:"wrapped"`
	// SkipResponse states that the picker passes the response without reading it.
	SkipResponse bool `json:"skip"`
	// Described states that the body has these fields alone, and neither bytes nor prompts' contents.
	Described bool `json:"-"`

	raw         []byte          // as the client sent it
	of          *described.Body // the bytes' description, in place of raw
	assetTokens int             // of all assets
}

// Raw returns the bytes as the client sent them.
func (b *Body) Raw() []byte {
	if b.Described {
		panic(&Unknown{"the body's bytes"})
	}
	if b.raw == nil && b.of != nil {
		b.raw = b.of.Bytes()
	}
	return b.raw
}

// Of returns the body's description, nil if the body has bytes alone.
func (b *Body) Of() *described.Body { return b.of }

// Forget gives up the content, which has done its work: a request that is held
// for long should not hold it.
func (b *Body) Forget() { b.raw, b.of, b.Prompts = nil, nil, nil }

// EstimatedTokens returns the length of all prompts in tokens.
func (b *Body) EstimatedTokens() int {
	n := 0
	for i := range b.Prompts {
		n += b.Prompts[i].EstimatedTokens()
	}
	return n
}

// JSON reports whether the body is a JSON object that carries a model.
func (b *Body) JSON() bool {
	return !b.Wrapped && b.Kind != Opaque && b.Kind != GRPCGenerate && b.Kind != GRPCEmbed
}

// Usage holds the token counts of a response. The tags are its names in the log of inputs.
type Usage struct {
	PromptTokens     int  `json:"prompt"`
	CompletionTokens int  `json:"completion"`
	TotalTokens      int  `json:"total"`
	CachedTokens     int  `json:"-"`
	HasCached        bool `json:"-"` // the response has CachedTokens, if only 0
}

// Parser reads the bodies of some APIs.
type Parser interface {
	// Type returns the parser's name in the configuration.
	Type() string
	// Claims reports whether the parser takes requests with this path.
	Claims(path string) bool
	// Parse reads a request body. The error's text goes to the client after
	// "inference error: BadRequest - ".
	Parse(path string, body []byte) (*Body, error)
	// Usage reads the token counts of a response body, or of the data of one event of a stream (streaming). ok is false
	// if there are none.
	Usage(body []byte, streaming bool) (u Usage, ok bool)
}
