package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Message is something that enters the Machine.
type Message interface{ message() }

// Messages about one request. Its Stream makes all of them but Answered and
// Leave, which are the driver's.
type (
	// Arrive is a whole and parsed request that wants a decision. Decided, or
	// first Ask, follows.
	Arrive struct{ *Request }
	// Answered brings what came back of an Ask. Machine.Answer makes it.
	Answered struct {
		*Request
		Answers []picker.Answer
	}
	// Leave gives up a request that waits for its decision, because its client
	// left. Decided follows at once, with an error.
	Leave struct{ *Request }
	// Headers lets the plug-ins see the response's headers, and Piece what
	// Request.Response has read of its body since.
	Headers struct{ *Request }
	Piece   struct{ *Request }
	// Done says that the request's Stream is over, however it ended. A decided
	// request gives back what it held; another one is given up. It comes exactly
	// once.
	Done struct{ *Request }
)

// Messages about the pool.
type (
	// Endpoints are the pool's endpoints from now on.
	Endpoints struct{ List []*picker.Endpoint }
	// Objects are the Kubernetes objects in force from now on. Their endpoints
	// count unless KeepEndpoints.
	Objects struct {
		objects.Selection
		KeepEndpoints bool
	}
	// Scraped holds what came of a Scrape: samples, or why there are none.
	Scraped struct {
		Target *Target
		Source int
		Page   metrics.Page
		Err    error
	}
	// KVEvents are events of KV blocks, for one of the indexes. Without events
	// they are a sign of life. Keys are for the log: those that the index made of
	// each event's tokens.
	KVEvents struct {
		Index  int
		From   kv.Topic
		Events []kv.Event
		Keys   [][]kv.Key
	}
	// KVLost says that events of a pod were lost: what an index has of it is not
	// to be believed any more.
	KVLost struct {
		Index int
		Pod   string
	}
	// LoseIndexes empties all indexes, as a restart of the picker would.
	LoseIndexes struct{}
	// Shutdown has flow control refuse what waits, and what still arrives.
	Shutdown struct{}
)

func (Arrive) message()      {}
func (Answered) message()    {}
func (Leave) message()       {}
func (Headers) message()     {}
func (Piece) message()       {}
func (Done) message()        {}
func (Endpoints) message()   {}
func (Objects) message()     {}
func (Scraped) message()     {}
func (KVEvents) message()    {}
func (KVLost) message()      {}
func (LoseIndexes) message() {}
func (Shutdown) message()    {}

// Kind says what an Effect is.
type Kind uint8

// The kinds of effects, with the fields that they use.
const (
	// Ask: put Request.Needs to the outside, all at once, and bring Answered.
	Ask Kind = iota
	// Send: put Needs to the outside, and wait for no answer.
	Send
	// Decided: Request.Decision says where it goes, or Request.Err why nowhere.
	// Tell its Stream.
	Decided
	// Evict: end this decided request early; tell its Stream.
	Evict
	// Failed: a plug-in panicked over the end of a request (Request.Err), too late
	// for its client to be told.
	Failed
	// Scrape: fetch the page of Target for data source number Source and bring
	// Scraped.
	Scrape
	// Departed: Target has left the pool, and nothing is asked of it any more.
	Departed
	// Unread: extractor Plugin could not read Target's page (Err). Forgotten: the
	// metrics of data source number Source are older than its TTL.
	Unread
	Forgotten
	// Dial: hear the KV events of Target for index number Source. Hangup: no more.
	Dial
	Hangup
	// Mismatch: the engine at Target has KV blocks of Count tokens, and index
	// number Source others, so that it may find less than there is.
	Mismatch

	// Hooked: plug-ins have set headers or metadata of Request.Response. It is said
	// where there is a log.
	Hooked

	// Queued: Request enters flow control, where it waits, or leaves at once (Flow.Outcome). Left: it no longer does
	// (Flow). Revoked: what became of an eviction (Flow). Nothing is to be done: they
	// are for metrics.
	Queued
	Left
	Revoked
)
