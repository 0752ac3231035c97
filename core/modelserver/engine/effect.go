package engine

import "github.com/windtunnel/windtunnel/core/machine"

// Kind is the type of an Effect. It decides which fields the Effect uses besides At.
type Kind uint8

const (
	// Accepted: Request is in the engine and will end in Finished or Aborted.
	Accepted Kind = iota + 1
	// Rejected: the engine did not take Request; Code is the reason.
	Rejected
	// PrefillStarted: the engine scheduled Request and begins to compute its prompt. It found Count tokens of the
	// prompt in the prefix cache, or fetched them. The effect is repeated when a preempted request is scheduled again.
	PrefillStarted
	// FirstToken: the prompt is computed and output token 0 exists.
	FirstToken
	// Tokens: a run of output tokens of Request: numbers First to First+Count-1,
	// token First+k at Schedule.End(k+1). At is the last one's time. Only with
	// Interest EveryToken.
	Tokens
	// Paused: Request waits for Resume after its first token (HoldAfterFirst).
	Paused
	// Preempted: Request lost its blocks to other requests and is waiting again. The engine must compute Count tokens
	// once more.
	Preempted
	// Finished: Request ended with Reason and Count output tokens.
	Finished
	// Aborted: an Abort ended Request, with Count output tokens.
	Aborted

	// KVHeld: Count blocks of the finished Request stay under Handle until KVReleased or Until, whichever is first. The
	// effect comes just before Finished.
	KVHeld
	// KVFreed: the blocks under Handle are free again. Reason is ReasonTimeout if no engine fetched them in time, else
	// ReasonStop.
	KVFreed
	// KVPull: blocks for Request are reserved. The driver fetches Bytes bytes (Count tokens) of Handle from engine
	// From, then sends KVArrived or KVFailed.
	KVPull
	// KVRelease: Request no longer needs Handle of engine From. The driver sends KVReleased to that engine.
	KVRelease

	// BlockStored: Count blocks became reusable in Tier. Effects.BlockHashes returns their hashes, Parent is the hash
	// before the first (0: none). First is the block's number within Request, so that the request's owner knows the
	// tokens. A block that moved to TierCPU has no owner any more: Request is 0, and as in vLLM the event has no
	// tokens. BlockStored and the next two kinds need Config.KVEvents.
	BlockStored
	// BlockRemoved: Count blocks left Tier; Effects.BlockHashes returns their hashes.
	BlockRemoved
	// AllBlocksCleared: the prefix cache is empty.
	AllBlocksCleared

	// ControlDone: operation Op took effect. ControlRefused: it did not.
	ControlDone
	ControlRefused

	// Stepped: a run of Count steps of the whole engine ended, step k at Schedule.End(k+1). Each decoded Batch requests
	// and, if Count is 1, computed First prompt tokens. Effects.Step returns the details. Stepped needs
	// Config.ReportSteps.
	Stepped
)

// Reason is the cause of a request's end.
type Reason uint8

const (
	ReasonNone Reason = iota
	// ReasonStop: end of sequence or a stop string. OpenAI "stop".
	ReasonStop
	// ReasonLength: MaxTokens or MaxModelLen. OpenAI "length".
	ReasonLength
	// ReasonKVFailed: the KV transfer failed and the policy is to fail.
	ReasonKVFailed
	// ReasonCrash: the engine crashed during the request.
	ReasonCrash
	// ReasonSleep: the engine was put to sleep.
	ReasonSleep
	// ReasonTimeout: only in KVFreed.
	ReasonTimeout
)

// Code is the cause of a rejection.
type Code uint8

const (
	CodeNone Code = iota
	// CodeTooLong: the prompt leaves no space for a token below MaxModelLen.
	CodeTooLong
	// CodeBadRequest: an invalid length, or an id that is in flight.
	CodeBadRequest
	// CodeUnknownAdapter: Adapter is not loaded.
	CodeUnknownAdapter
	// CodeAsleep, CodeDraining, CodeDead: see Op.
	CodeAsleep
	CodeDraining
	CodeDead
	// CodeFull: Config.MaxInFlight requests are in the engine.
	CodeFull
)

// Tier is the memory that holds cached blocks.
type Tier uint8

const (
	// TierGPU: the accelerator's memory. KV events call it "gpu".
	TierGPU Tier = iota
	// TierCPU: host memory (Config.NumCPUBlocks). KV events call it "cpu".
	TierCPU
)

// Effect is one event in the engine, as plain data. Fields that its Kind does not name are zero.
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

// Effects is the buffer that an Engine fills. Read List, then call Reset and use it again. Once it has grown, it no
// longer allocates.
type Effects struct {
	List   []Effect
	hashes []uint64
	steps  []Step
}

var _ machine.Machine[Message, *Effects] = (*Engine)(nil)

// Len returns the number of effects.
func (x *Effects) Len() int { return len(x.List) }

// DueAt returns the time at which effect number i was due.
func (x *Effects) DueAt(i int) machine.Time { return x.List[i].At }

// Reset removes all effects and keeps the memory.
func (x *Effects) Reset() { x.List, x.hashes, x.steps = x.List[:0], x.hashes[:0], x.steps[:0] }

// Step returns the work of step number k, counted from 0, of a Stepped in this buffer.
func (x *Effects) Step(f *Effect, k int) Step {
	if f.Kind != Stepped {
		return Step{}
	}
	s := x.steps[f.hashFirst]
	s.Index += uint64(k)
	s.DecodeContext += int64(k) * int64(f.Batch)
	return s
}

// BlockHashes returns the hashes of a BlockStored or BlockRemoved in this buffer, valid until Reset.
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
