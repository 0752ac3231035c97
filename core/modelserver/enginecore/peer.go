package enginecore

import (
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Remote names a KV cache that another server has, or will have.
type Remote struct {
	// Host and Port are where that server answers for its caches.
	Host string
	Port int
	// EngineID and Blocks name a cache that is there. With a Key EngineID may be
	// empty.
	EngineID string
	Blocks   Blocks
	// Key names a cache that may still have to be computed, by what both of its
	// servers were told.
	Key string
	// Tokens is how much of the prompt it has; 0 is all.
	Tokens int
}

// Address is where the server answers, host:port.
func (r *Remote) Address() string {
	host := r.Host
	if strings.Contains(host, ":") { // IPv6
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(r.Port)
}

// fetch is how the cache is asked for.
func (r *Remote) fetch() Question {
	if r.Key != "" {
		return Question{Op: OpAwait, EngineID: r.EngineID, Key: r.Key}
	}
	return Question{Op: OpGet, EngineID: r.EngineID, Blocks: r.Blocks}
}

// Blocks are the numbers of a cache's blocks, one after the other. They count
// modulo blockNumbers: a cache has far fewer, so that none comes again while it
// is held.
type Blocks struct{ First, Count int }

const blockNumbers = 1 << 30

// Numbers lists them.
func (b Blocks) Numbers() []int {
	list := make([]int, b.Count)
	for i := range list {
		list[i] = (b.First + i) % blockNumbers
	}
	return list
}

// BlocksOf reads a list of numbers. No server holds blocks that are not one
// after the other: of those nobody finds any.
func BlocksOf(numbers []int) Blocks {
	for i, n := range numbers {
		if n != (numbers[0]+i)%blockNumbers {
			return Blocks{First: -1, Count: len(numbers)}
		}
	}
	if len(numbers) == 0 {
		return Blocks{}
	}
	return Blocks{numbers[0], len(numbers)}
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
	Blocks   Blocks
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
