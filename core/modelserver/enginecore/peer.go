package enginecore

import (
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// fetch is how the cache is asked for.
func fetch(r *connector.Remote) Question {
	if r.Key != "" {
		return Question{Op: OpAwait, EngineID: r.EngineID, Key: r.Key}
	}
	return Question{Op: OpGet, EngineID: r.EngineID, Blocks: r.Blocks}
}

// Op is what one server asks of another.
type Op string

const (
	// OpHello asks who is there.
	OpHello Op = "hello"
	// OpGet asks for a cache by its blocks, and OpAwait by its key: the answer
	// comes when it is computed.
	OpGet   Op = "get"
	OpAwait Op = "await"
	// OpFind asks how much of a prompt's beginning is in the prefix cache.
	OpFind Op = "find"
	// OpRelease gives the cache back that was asked for before.
	OpRelease Op = "release"
)

// Question is what one server asks of another, with the fields of its Op.
type Question struct {
	Op       Op
	EngineID string // whom it is meant for
	Blocks   connector.Blocks
	Key      string
	Hashes   []uint64 // of the prompt's blocks
}

// Reply is the answer to a Question.
type Reply struct {
	// Err is why there is none, or empty.
	Err string
	// Tokens is how many there are.
	Tokens int
	// Waiting says that the cache is still to be computed; another Reply follows.
	Waiting bool
	// EngineID is the server that answers.
	EngineID string
}

// Call is the number of something that a Core has asked for, and Inquiry the
// driver's number of somebody who asks a Core. Neither comes again.
type (
	Call    uint64
	Inquiry uint64
)

// MaxKey bounds a Question's key, in bytes.
const MaxKey = 1024

// DefaultPeerTimeout bounds the wait for another server's first byte.
const DefaultPeerTimeout = 2 * machine.Second
