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

// vLLM's own statuses when it does not answer a request: of /health if the engine has died or has not started, and of
// requests that find the queue of --max-num-queued-reqs full.
const (
	StatusDead = 503
	StatusFull = 503
)

// Config holds everything except the state that a server's answers depend on. It does not change while the server runs.
type Config struct {
	// Seed is the seed of the run. It keys words, lengths and times.
	Seed uint64
	// Engine is the engine's configuration, with its defaults filled in.
	Engine engine.Config
	// Models are the names that the server serves. It answers with the first.
	Models []string
	// Tokenizer turns text into tokens and back. Template turns chats into text. Random words are drawn from
	// Vocabulary.
	Tokenizer tokens.Tokenizer
	Template  tokens.Template
	// ChatTemplate is the model's own template. It replaces Template unless it is nil.
	ChatTemplate *chattemplate.Template
	Vocabulary   *tokens.Vocabulary
	// OwnNames states that only the engine sees the names of blocks. The server may then choose names freely for the
	// blocks of a prompt that no other request shares.
	OwnNames bool
	// Content selects what the server generates. Dataset, if there is one, replaces it with recorded answers. Tools
	// bounds the arguments of generated tool calls.
	Content Content
	Dataset []string
	Tools   structured.Options
	// Forms caches compiled forms; nil caches none.
	Forms Forms
	// IgnoreFaultHeader makes the server ignore FaultHeader and x-return-error.
	IgnoreFaultHeader bool
	// CacheHitThreshold is the default for requests without a threshold, from 0 to 1.
	CacheHitThreshold float64
	// Dimensions is the length of an embedding if the request does not set one. Zero is DefaultDimensions.
	Dimensions int
	// EncoderOnly makes the server return the addresses of the encodings of a chat's media.
	EncoderOnly bool
	// Omni lets the server answer chats with a picture. ImageTime is the time that painting one takes; nil is no time.
	Omni      bool
	ImageTime *dist.Dist
	// PromptTokensDetails reports cached tokens in usage.
	PromptTokensDetails bool
	// StoreResponses keeps the responses of /v1/responses for previous_response_id and GET.
	StoreResponses bool
	// FullStatus answers requests that find the queue full: StatusFull, or zero for 429.
	FullStatus int
	// Connector is the protocol that transfers KV caches. KVRole is the server's role where the protocol sends a
	// request to both servers: connector.RoleProducer or connector.RoleConsumer. If it is empty, the address that the
	// request names decides.
	Connector link.Profile
	KVRole    string
	// KVPeers are the servers from which this one may fetch KV caches. The server refuses a request that names any
	// other.
	KVPeers Peers
	// EngineID is the name by which other servers know the engine. TensorParallel is the number of its ranks, for
	// servers that fetch from it.
	EngineID       string
	TensorParallel int
}

const (
	// DefaultOutput is the number of tokens that the model generates if neither the request nor the server's draws set
	// a number.
	DefaultOutput = 64
	// DefaultModel is the name of the model if the configuration names none.
	DefaultModel = "windtunnel"
	// MaxStored is the most responses, conversations and handles that a server keeps.
	MaxStored = 10_000
)

// EngineID returns the name by which other servers know a server's engine. It is the same in every run with this seed.
func EngineID(seed uint64, server int) string {
	d := machine.NewDraw(seed, "server", "engine id", uint64(server))
	return fmt.Sprintf("%016x-%016x", d.Uint64(), d.Uint64())
}

// State is the part of a server's state that a Reader needs. A driver with several goroutines may call it from all of
// them at once.
type State interface {
	// Draws returns the distributions of times and lengths that hold now.
	Draws() *lifecycle.Draws
	// Fault returns the fault that the server injects into the request with this id.
	Fault(request string) lifecycle.Fault
	// Adapter returns the LoRA adapter with a name.
	Adapter(name string) (engine.AdapterID, bool)
	// Own reports whether an address belongs to this machine.
	Own(netip.Addr) bool
	// MeetsAt reports whether an address is the server's own bootstrap port, where prefill and decode servers meet.
	MeetsAt(host string, port int) bool
	// Fetched notes a kv_handle, and reports whether the server had noted it before.
	Fetched(handle string) bool
	// Shown notes the media of a prompt.
	Shown([]Media)
	// ImagePercent returns the percentage of chats that the server answers with a picture.
	ImagePercent() int
	// EncodingsAt returns the address from which other servers can fetch the encodings of media.
	EncodingsAt() (host string, port int)
	// Stored returns the responses and conversations that clients may continue.
	Stored() Stored
}

// Stored are the responses and conversations that a server keeps.
type Stored interface {
	// Response returns the chat up to the end of a response, and whether the server keeps that response.
	Response(id string) ([]openai.Message, bool)
	// Conversation returns the items of a conversation, and whether the server keeps that conversation.
	Conversation(id string) ([]Item, bool)
	// KeepResponse stores a response under its id.
	KeepResponse(id string, r *StoredResponse)
	// Continue adds items to a stored conversation.
	Continue(id string, items []Item)
}

// Reader parses the requests to one server.
type Reader struct {
	*Config
	State State
}
