package modelserver

import (
	"fmt"
	"net/netip"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/modelserver/structured"
	"github.com/windtunnel/windtunnel/core/wire/chattemplate"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/core/wire/tokens"
)

// The statuses of vLLM's own where no request is answered: of /health of an engine that has died or has not started,
// and of requests that find the queue of --max-num-queued-reqs full.
const (
	StatusDead = 503
	StatusFull = 503
)

// Config is what a server's answers depend on beside its state. It does not
// change while the server runs.
type Config struct {
	// Seed is the run's; it keys words, lengths and times.
	Seed uint64
	// Engine is the engine's configuration, with its defaults.
	Engine engine.Config
	// Models are the names it serves; the first is the one it answers with.
	Models []string
	// Tokenizer turns text into tokens and back, Template chats into text, and
	// Vocabulary is of what random words are made.
	Tokenizer tokens.Tokenizer
	Template  tokens.Template
	// ChatTemplate is the model's own, which then counts in place of Template; nil
	// where there is none.
	ChatTemplate *chattemplate.Template
	Vocabulary   *tokens.Vocabulary
	// OwnNames says that nobody but the engine sees the names of blocks, so that
	// those of a prompt that nobody shares may be its own to give.
	OwnNames bool
	// Content is what it says, Dataset the answers to draw from in its place, and
	// Tools bounds the arguments of the calls that it makes up.
	Content Content
	Dataset []string
	Tools   structured.Options
	// Forms are those that were compiled lately; nil keeps none.
	Forms Forms
	// IgnoreFaultHeader leaves FaultHeader and x-return-error to others.
	IgnoreFaultHeader bool
	// CacheHitThreshold is that of requests which bring none, 0 to 1.
	CacheHitThreshold float64
	// Dimensions is how long an embedding is where the request does not say.
	// Zero is DefaultDimensions.
	Dimensions int
	// EncoderOnly tells where the encodings of a chat's media can be had.
	EncoderOnly bool
	// Omni lets chats be answered with a picture; ImageTime is how long painting
	// takes, nil no time.
	Omni      bool
	ImageTime *dist.Dist
	// PromptTokensDetails tells cached tokens in usage.
	PromptTokensDetails bool
	// StoreResponses keeps the responses of /v1/responses for previous_response_id and GET.
	StoreResponses bool
	// FullStatus answers requests that find the queue full: StatusFull, or zero for 429.
	FullStatus int
	// Connector is how KV caches travel, KVRole the server's part where both have a
	// request (connector.RoleProducer or connector.RoleConsumer; empty tells by the address that the
	// request names).
	Connector link.Profile
	KVRole    string
	// KVPeers are the servers from which KV caches may be fetched; a request that
	// names another one is refused.
	KVPeers Peers
	// EngineID is what other servers know the engine by, TensorParallel how many
	// ranks it has, for those who fetch from it.
	EngineID       string
	TensorParallel int
}

const (
	// DefaultOutput is how many tokens the model says where neither the request
	// nor the server's draws tell.
	DefaultOutput = 64
	// DefaultModel is the model served where none is named.
	DefaultModel = "windtunnel"
	// MaxStored is how many responses, conversations and handles a server keeps.
	MaxStored = 10_000
)

// EngineID is the name by which other servers know a server's engine: the same
// in every run with this seed.
func EngineID(seed uint64, server int) string {
	d := machine.NewDraw(seed, "server", "engine id", uint64(server))
	return fmt.Sprintf("%016x-%016x", d.Uint64(), d.Uint64())
}

// State is what of a server's state the reading of a request looks at. It may be
// asked from several goroutines at once where the driver has several.
type State interface {
	// Draws are the times and lengths of requests at this moment.
	Draws() *lifecycle.Draws
	// Fault is what goes wrong with a request of this id, whatever it asks for.
	Fault(request string) lifecycle.Fault
	// Adapter finds a LoRA adapter by its name.
	Adapter(name string) (engine.AdapterID, bool)
	// Own tells whether an address is this machine's.
	Own(netip.Addr) bool
	// MeetsAt tells whether an address is the server's own meeting port.
	MeetsAt(host string, port int) bool
	// Fetched notes a kv_handle, and tells whether it was noted before.
	Fetched(handle string) bool
	// Shown is told of the media of a prompt.
	Shown([]Media)
	// ImagePercent is how many chats in a hundred are answered with a picture.
	ImagePercent() int
	// EncodingsAt is where the encodings of media can be had.
	EncodingsAt() (host string, port int)
	// Stored are the responses and conversations that clients may go on from.
	Stored() Stored
}

// Stored are the responses and conversations that a server keeps.
type Stored interface {
	// Response is what was said up to a response, and whether it is kept.
	Response(id string) ([]openai.Message, bool)
	// Conversation are the items of a conversation, and whether it is kept.
	Conversation(id string) ([]Item, bool)
	// KeepResponse keeps a response under its id.
	KeepResponse(id string, r *StoredResponse)
	// Continue adds items to a conversation that is kept.
	Continue(id string, items []Item)
}

// Reader reads a server's requests.
type Reader struct {
	*Config
	State State
}
