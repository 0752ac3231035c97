package epp

import (
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

// Message is an input of the Machine.
type Message interface{ apply(m *Machine) }

// Messages about one request. The driver makes Answered and Leave, the request's Stream all others.
type (
	// Arrive submits a whole, parsed request. Decided follows, perhaps after Ask.
	Arrive struct{ *Request }
	// Answered holds the answers to an Ask. Machine.Answer makes it.
	Answered struct {
		*Request
		Answers []picker.Answer
	}
	// Leave withdraws an undecided request whose client left. Decided follows at once, with an error.
	Leave struct{ *Request }
	// Headers shows the plug-ins the response's headers; Piece shows them what Request.Response has read of the body
	// since.
	Headers struct{ *Request }
	Piece   struct{ *Request }
	// Done reports the end of the request's Stream, for whatever reason, exactly once. A decided request releases what
	// it held; an undecided one is withdrawn.
	Done struct{ *Request }
)

// Messages about the pool.
type (
	// Endpoints replaces the pool's endpoints.
	Endpoints struct{ List []*picker.Endpoint }
	// Objects replaces the Kubernetes objects and, unless KeepEndpoints, the endpoints.
	Objects struct {
		objects.Selection
		KeepEndpoints bool
	}
	// Scraped is the result of a Scrape: samples, or an error.
	Scraped struct {
		Target *Target
		Source int
		Page   metrics.Page
		Err    error
	}
	// KVEvents are events of KV blocks for one of the indexes. Without events they only show that the publisher is
	// alive. Keys are for the log: the keys that the index made of each event's tokens.
	KVEvents struct {
		Index  int
		From   kv.Topic
		Events []kv.Event
		Keys   [][]kv.Key
	}
	// KVLost reports that events of a pod were lost. The index drops the pod's blocks.
	KVLost struct {
		Index int    `json:"index"`
		Pod   string `json:"pod"`
	}
	// LoseIndexes empties all indexes, as a restart of the picker would.
	LoseIndexes struct{}
	// Shutdown makes flow control refuse waiting requests and new ones.
	Shutdown struct{}
)

func (x Arrive) apply(m *Machine)      { m.arrive(x.Request) }
func (x Answered) apply(m *Machine)    { m.answered(x.Request, x.Answers) }
func (x Leave) apply(m *Machine)       { m.leave(x.Request) }
func (x Headers) apply(m *Machine)     { m.respond(x.Request, (*picker.Response).RunHeaderHooks) }
func (x Piece) apply(m *Machine)       { m.respond(x.Request, (*picker.Response).RunBodyHooks) }
func (x Done) apply(m *Machine)        { m.done(x.Request) }
func (x Endpoints) apply(m *Machine)   { m.setEndpoints(x.List) }
func (x Objects) apply(m *Machine)     { m.setObjects(&x) }
func (x Scraped) apply(m *Machine)     { m.scraped(&x) }
func (x KVEvents) apply(m *Machine)    { m.kvEvents(&x) }
func (x KVLost) apply(m *Machine)      { m.inputIndex(m.indexes[x.Index], kvindex.DropBlocks{Pod: x.Pod}) }
func (x LoseIndexes) apply(m *Machine) { m.loseIndexes() }
func (x Shutdown) apply(m *Machine)    { m.flow(flowcontrol.Shutdown{}) }

// Kind is an effect's type.
type Kind uint8

// The kinds of effects, with the fields that they use.
const (
	// Ask: send all of Request.Needs to services outside at once, then pass Answered.
	Ask Kind = iota
	// Send: send Needs to services outside, and wait for no answer.
	Send
	// Decided: Request.Decision has the destination, or Request.Err the reason for none. Call Stream.Decide.
	Decided
	// Evict: end this decided request early. Call Stream.Evict.
	Evict
	// Failed: a plug-in panicked at the end of a request (Request.Err), too late to inform its client.
	Failed
	// Scrape: fetch Target's page for data source number Source and pass Scraped.
	Scrape
	// Departed: Target has left the pool; end all requests to it.
	Departed
	// Unread: extractor Plugin could not read Target's page (Err). Forgotten: the metrics of data source number Source
	// are older than its TTL.
	Unread
	Forgotten
	// Dial: subscribe to the KV events of Target for index number Source. Hangup: unsubscribe.
	Dial
	Hangup
	// Mismatch: the engine at Target has KV blocks of Count tokens, unlike index number Source, which may therefore
	// find less than there is.
	Mismatch

	// Hooked: plug-ins have set headers or metadata of Request.Response. Only emitted for a log.
	Hooked

	// Queued: Request enters flow control, where it waits or leaves at once (Flow.Outcome). Left: Request has left flow
	// control (Flow). Revoked: how an eviction ended (Flow). All three are for metrics; the driver does nothing.
	Queued
	Left
	Revoked
)
