package parse

import "fmt"

// MaxBodyBytes is the longest request body that is parsed.
const MaxBodyBytes = 64 << 20

// Kind is the API that a request body belongs to.
type Kind uint8

// The APIs, in the order of document 004.
const (
	Opaque Kind = iota // bytes that nobody looked into
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

// String is the API's name as it appears in records and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", k)
}

// Prompt is one prompt of a request: its text as bytes or, when the client
// sent them, its token ids. A token is estimated as four bytes of text.
type Prompt struct {
	Text   []byte
	Tokens []uint32
}

// EstimatedTokens is the prompt's length in tokens: real when ids were sent,
// else a quarter of its bytes, rounded up.
func (p *Prompt) EstimatedTokens() int {
	if p.Tokens != nil {
		return len(p.Tokens)
	}
	return (len(p.Text) + bytesPerToken - 1) / bytesPerToken
}

const bytesPerToken = 4

// Body is what the picker knows of a request's body.
type Body struct {
	Kind   Kind
	Parser string // type of the parser that read it
	Raw    []byte // the bytes as the client sent them
	Model  string
	Stream bool
	// MaxOutputTokens is the client's limit; negative when it stated none.
	MaxOutputTokens int64
	// CacheSalt keeps the prefix caches of different clients apart.
	CacheSalt string
	Prompts   []Prompt
	// Multimodal counts images, audio and video parts; Assets are those whose
	// content is known.
	Multimodal int
	Assets     []Asset

	assetTokens int // of all assets
	// Wrapped says that the JSON stands inside another message, so that its
	// model cannot be replaced in place.
	Wrapped bool
	// SkipResponse says that the response is passed on without a look.
	SkipResponse bool
}

// EstimatedTokens is the length of all prompts in tokens.
func (b *Body) EstimatedTokens() int {
	n := 0
	for i := range b.Prompts {
		n += b.Prompts[i].EstimatedTokens()
	}
	return n
}

// JSON says whether the body is a JSON object that carries a model.
func (b *Body) JSON() bool {
	return !b.Wrapped && b.Kind != Opaque && b.Kind != GRPCGenerate && b.Kind != GRPCEmbed
}

// Usage is what a response says about tokens.
type Usage struct {
	PromptTokens     int
	CompletionTokens int
	TotalTokens      int
	CachedTokens     int
	HasCached        bool // it said how many were cached, if only none
}

// Parser reads the bodies of some APIs.
type Parser interface {
	// Type is the parser's name in the configuration.
	Type() string
	// Claims says whether the parser takes requests with this path.
	Claims(path string) bool
	// Parse reads a request body. The error's text goes to the client after
	// "inference error: BadRequest - ".
	Parse(path string, body []byte) (*Body, error)
	// Usage reads a response body, or the data of one event of a stream
	// (streaming), and says what it told about tokens. ok is false when it told nothing.
	Usage(body []byte, streaming bool) (u Usage, ok bool)
}
