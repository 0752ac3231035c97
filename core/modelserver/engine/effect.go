package engine

import "github.com/windtunnel/windtunnel/core/machine"

// Kind says what an Effect is, and with it which fields it uses besides At.
type Kind uint8

const (
	// Accepted: Request is in the engine and will end in Finished or Aborted.
	Accepted Kind = iota + 1
	// Rejected: Request was never taken; Code says why.
	Rejected
	// PrefillStarted: Request was scheduled and begins to compute its prompt, of
	// which Count tokens were found in the prefix cache (or fetched). It comes
	// again when a preempted request is scheduled again.
	PrefillStarted
	// FirstToken: the prompt is computed and output token 0 exists.
	FirstToken
	// Tokens: a run of output tokens of Request: numbers First to First+Count-1,
	// token First+k at Schedule.End(k+1). At is the last one's time. Only with
	// Interest EveryToken.
	Tokens
	// Paused: Request waits for Resume after its first token (HoldAfterFirst).
	Paused
	// Preempted: Request lost its blocks to others and is waiting again; Count
	// tokens must be computed once more.
	Preempted
	// Finished: Request ended with Reason and Count output tokens.
	Finished
	// Aborted: Request ended because it was told to, with Count output tokens.
	Aborted

	// KVHeld: Count blocks of the finished Request stay under Handle until
	// KVReleased or Until, whichever is first. Comes just before Finished.
	KVHeld
	// KVFreed: the blocks under Handle are free again; Reason is ReasonTimeout
	// if nobody asked for them in time, else ReasonStop.
	KVFreed
	// KVPull: blocks for Request are reserved; fetch Bytes bytes (Count tokens)
	// of Handle from engine From, then say KVArrived or KVFailed.
	KVPull
	// KVRelease: Request no longer needs Handle of engine From; tell it
	// KVReleased.
	KVRelease

	// BlockStored: Count blocks became reusable in Tier; Effects.BlockHashes gives
	// their hashes, Parent the hash before the first (0: none). First is the
	// block's number within Request, so that its owner knows the tokens. A block
	// that moved to TierCPU has no owner any more: Request is 0, and as in vLLM
	// the event has no tokens. Only with Config.KVEvents, like the next two.
	BlockStored
	// BlockRemoved: Count blocks left Tier; Effects.BlockHashes names them.
	BlockRemoved
	// AllBlocksCleared: the prefix cache is empty.
	AllBlocksCleared

	// ControlDone: operation Op took effect. ControlRefused: it did not.
	ControlDone
	ControlRefused

	// Stepped: a run of Count steps of the whole engine ended, step k at
	// Schedule.End(k+1), each with Batch requests decoding and, if Count is 1,
	// First prompt tokens; Effects.Step tells what it computed. Only with
	// Config.ReportSteps.
	Stepped
)

// Reason is why a request finished.
type Reason uint8

const (
	ReasonNone Reason = iota
	// ReasonStop: end of sequence or a stop string. OpenAI "stop".
	ReasonStop
	// ReasonLength: MaxTokens or MaxModelLen. OpenAI "length".
	ReasonLength
	// ReasonKVFailed: the KV transfer failed and the policy is to fail.
	ReasonKVFailed
	// ReasonCrash: the engine died under the request.
	ReasonCrash
	// ReasonSleep: the engine was put to sleep.
	ReasonSleep
	// ReasonTimeout: only in KVFreed.
	ReasonTimeout
)

// Code is why a request was rejected.
type Code uint8

const (
	CodeNone Code = iota
	// CodeTooLong: the prompt leaves no room for a token below MaxModelLen.
	CodeTooLong
	// CodeBadRequest: a length that is no length, or an id that is in flight.
	CodeBadRequest
	// CodeUnknownAdapter: Adapter was not loaded.
	CodeUnknownAdapter
	// CodeAsleep, CodeDraining, CodeDead: see Op.
	CodeAsleep
	CodeDraining
	CodeDead
	// CodeFull: Config.MaxInFlight requests are in the engine.
	CodeFull
)

// Tier is where cached blocks are.
type Tier uint8

const (
	// TierGPU: the accelerator's memory. KV events call it "gpu".
	TierGPU Tier = iota
	// TierCPU: host memory (Config.NumCPUBlocks). KV events call it "cpu".
	TierCPU
)

// Effect is something that happened, as plain data. Fields not named by its
// Kind are zero.
type Effect struct {
	At      machine.Time
	Request RequestID
	Kind    Kind
	Reason  Reason
	Code    Code
	Op      Op
	Tier    Tier
	From    EngineID
	First   int32
	Count   int32
	Batch   int32

	hashFirst int32 // into Effects.hashes, for BlockStored and BlockRemoved; into Effects.steps for Stepped

	Handle   uint64
	Bytes    int64
	Until    machine.Time
	Parent   uint64
	Schedule Schedule
}

// Effects is the buffer that an Engine fills. Read List, then Reset and use it
// again: it allocates nothing once it has grown.
type Effects struct {
	List   []Effect
	hashes []uint64
	steps  []Step
}

var _ machine.Machine[Message, *Effects] = (*Engine)(nil)

// Len is the number of effects.
func (x *Effects) Len() int { return len(x.List) }

// DueAt is the time at which effect number i was due.
func (x *Effects) DueAt(i int) machine.Time { return x.List[i].At }

// Reset empties the collection and keeps its memory.
func (x *Effects) Reset() { x.List, x.hashes, x.steps = x.List[:0], x.hashes[:0], x.steps[:0] }

// Step is what step number k of a Stepped in this collection computed, counted
// from 0.
func (x *Effects) Step(f *Effect, k int) Step {
	if f.Kind != Stepped {
		return Step{}
	}
	s := x.steps[f.hashFirst]
	s.Index += uint64(k)
	s.DecodeContext += int64(k) * int64(f.Batch)
	return s
}

// BlockHashes is the hashes of a BlockStored or BlockRemoved in this
// collection, valid until Reset.
func (x *Effects) BlockHashes(f *Effect) []uint64 {
	if f.Kind != BlockStored && f.Kind != BlockRemoved {
		return nil
	}
	return x.hashes[f.hashFirst : f.hashFirst+f.Count]
}

func (x *Effects) add(at machine.Time, k Kind, id RequestID) *Effect {
	x.List = append(x.List, Effect{At: at, Kind: k, Request: id})
	return &x.List[len(x.List)-1]
}
