package enginecore

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// fetch returns the question that asks for a cache.
func fetch(r *connector.Remote) Question {
	if r.Key != "" {
		return Question{Op: OpAwait, EngineID: r.EngineID, Key: r.Key}
	}
	return Question{Op: OpGet, EngineID: r.EngineID, Blocks: r.Blocks}
}

// Op is the kind of a question between servers.
type Op string

const (
	// OpHello asks for the server's EngineID.
	OpHello Op = "hello"
	// OpGet asks for a cache by its blocks, and OpAwait by its key: the answer follows when the cache is computed.
	OpGet   Op = "get"
	OpAwait Op = "await"
	// OpFind asks how much of a prompt's beginning is in the prefix cache.
	OpFind Op = "find"
	// OpRelease gives back the cache that the connection asked for before.
	OpRelease Op = "release"
)

// Question is a request from one server to another. Op decides which fields it has.
type Question struct {
	Op       Op
	EngineID string // the engine that the question is for
	Blocks   connector.Blocks
	Key      string
	Hashes   []uint64 // of the prompt's blocks
}

// Reply is the answer to a Question.
type Reply struct {
	// Err is the reason for a failure, or empty.
	Err string
	// Tokens is the number of cached tokens.
	Tokens int
	// Waiting states that the cache is still to be computed. Another Reply follows.
	Waiting bool
	// EngineID is the engine that answers.
	EngineID string
}

// Call is a Core's number of one of its calls, and Inquiry the driver's number of a server that asks the Core. Numbers
// are never reused.
type (
	Call    uint64
	Inquiry uint64
)

// MaxKey limits a Question's key, in bytes.
const MaxKey = 1024

// DefaultPeerTimeout limits the wait for another server's first byte, as vLLM limits a NIXL handshake.
const DefaultPeerTimeout = 5 * machine.Second
