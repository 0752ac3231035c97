package engine

import "github.com/windtunnel/windtunnel/core/machine"

// RequestID identifies a request within one engine. The driver chooses it, and it must not be in flight already. It
// keys the random draws of the request: the same id in the same run draws the same values.
type RequestID uint64

// EngineID identifies an engine to its peers in KV transfers.
type EngineID uint32

// AdapterID identifies a LoRA adapter; 0 is the base model.
type AdapterID uint32

// Interest selects the effects that the driver gets while a request decodes.
type Interest uint8

const (
	// Milestones: FirstToken and the end, for virtual time. Decoding then costs the same for 10 tokens and for 10,000.
	Milestones Interest = iota
	// EveryToken: a Tokens effect at the end of every step that made a token, for a server that streams.
	EveryToken
	// EndOnly: the same effects as Milestones, but under BatchingIndependent Next does not return the time of the first
	// token. FirstToken comes, with its own time, when the engine is next advanced. It is for a server that answers in
	// one piece: one answer then needs one wake-up, not two.
	EndOnly
)

// Message is an argument of Input: *Submit, Abort, Resume, Control, KVArrived, KVFailed, KVReleased, KVSending or Look.
type Message interface{ message() }

// Submit asks for one completion. Several completions of one prompt (n > 1) are several Submits with the same Hashes,
// as in vLLM's own front end. The engine copies what it needs, except Hashes.
type Submit struct {
	ID RequestID

	// PromptTokens is the length of the prompt, at least 1.
	PromptTokens int

	// Hashes identify the content of the request's KV blocks: the chained hash of each full block of the prompt,
	// followed by those of the output if the sender knows them. Two requests share a cached prefix exactly as far as
	// their hashes agree. Blocks past the end of Hashes differ from those of all other requests. BlockHashes computes
	// hashes from token ids. The engine keeps the slice; do not write to it afterwards. Several requests may share it.
	Hashes []uint64
	// SkipReadingCache makes the engine compute the whole prompt. Later requests may still reuse its blocks (vLLM:
	// requests with prompt_logprobs).
	SkipReadingCache bool

	// MaxTokens limits the output; 0 means up to MaxModelLen. A request that reaches it finishes with ReasonLength.
	MaxTokens int
	// StopAfter is the number of output tokens after which the model ends by itself (end-of-sequence token or a stop
	// string), with ReasonStop. 0: never.
	StopAfter int
	// MinTokens postpones StopAfter; IgnoreEOS removes it (vLLM's sampling parameters min_tokens and ignore_eos).
	MinTokens int
	IgnoreEOS bool

	// Priority counts under PolicyPriority; the engine serves lower values first.
	Priority int32
	// Adapter is the LoRA adapter that the request runs with.
	Adapter AdapterID

	// Interest selects the effects of the request's decoding.
	Interest Interest
	// HoldAfterFirst pauses the request after its first token until Resume.
	HoldAfterFirst bool

	// HoldKV keeps the request's KV blocks after it finishes, for another engine to fetch (vLLM:
	// kv_transfer_params.do_remote_decode). The handle in KVHeld is the request's own id.
	HoldKV bool
	// Remote, if its Tokens is above 0, names the engine from which to fetch the prompt's KV instead of computing it
	// (vLLM: do_remote_prefill).
	Remote RemoteKV

	// PrefillTime and TokenTime set this request's own times under BatchingIndependent; 0 draws from Config.Prefill and
	// Config.TokenTime.
	PrefillTime machine.Time
	TokenTime   machine.Time
}

// RemoteKV is KV computed by another engine, under the handle of its KVHeld.
type RemoteKV struct {
	From   EngineID
	Handle uint64
	// Tokens is the number of leading prompt tokens that the other engine holds.
	Tokens int
}

// Abort ends a request in any phase, at the end of the running step. The engine drops the token of that step, and frees
// the blocks before it composes the next step. It ignores an unknown or finished id.
type Abort struct{ ID RequestID }

// Resume continues a request that was submitted with HoldAfterFirst. Sent before the first token, it cancels the pause.
// The engine ignores an unknown id.
type Resume struct{ ID RequestID }

// Op is an operation of Control.
type Op uint8

const (
	// OpLoadAdapter makes Control.Adapter known; OpUnloadAdapter forgets it. Requests in flight that use it continue.
	OpLoadAdapter Op = iota + 1
	OpUnloadAdapter
	// OpSleep aborts all requests in flight, drops the KV cache and rejects requests with CodeAsleep until OpWake.
	OpSleep
	OpWake
	// OpResetPrefixCache forgets all cached blocks. As in vLLM, the engine refuses it while any block is in use.
	OpResetPrefixCache
	// OpDrain rejects new requests with CodeDraining and reports
	// ControlDone{OpDrain} once nothing is in flight.
	OpDrain
	// OpCrash ends everything with ReasonCrash at once, in the middle of a step. OpFailRank is the loss of one rank of
	// a tensor-parallel group, which fails the whole group in the same way. The engine then rejects requests with
	// CodeDead.
	OpCrash
	OpFailRank
	// OpRestart restarts an engine that crashed, drained or slept: with an empty cache, nothing in flight, and the
	// adapters of the configuration.
	OpRestart
	// OpPace makes steps that begin from now on take Control.Percent of the timer's time, as on an accelerator that is
	// throttled. A restart keeps it. An engine without steps refuses it.
	OpPace
)

// MaxPace is the largest percentage of OpPace: steps take a hundred times as long.
const MaxPace = 10_000

// Control changes the engine itself. The engine answers with ControlDone or ControlRefused.
type Control struct {
	Op      Op
	Adapter AdapterID // for OpLoadAdapter and OpUnloadAdapter
	Rank    int       // for OpFailRank, only for the record
	Percent int       // for OpPace, from 1 to MaxPace
}

// KVArrived reports that the pull that KVPull asked for is complete.
type KVArrived struct{ ID RequestID }

// KVFailed reports that the pull that KVPull asked for failed. Config.KVLoadFailure decides what follows.
type KVFailed struct{ ID RequestID }

// KVReleased reports to the holder that a handle of KVHeld is no longer needed. The engine ignores an unknown or
// expired handle.
type KVReleased struct{ Handle uint64 }

// KVSending reports to the holder that a connector which blocks it (document 003's NIXL v1) began to send its KV (By is
// 1) or ended (By is -1). While any such transfer is running, no step begins; a step that is running ends. Engines with
// BatchingIndependent ignore it.
type KVSending struct{ By int }

// Look makes the engine report the steps of a long run (Stepped) by the end of the running step. It changes nothing
// else.
type Look struct{}

func (*Submit) message()    {}
func (Abort) message()      {}
func (Resume) message()     {}
func (Control) message()    {}
func (KVArrived) message()  {}
func (KVFailed) message()   {}
func (KVReleased) message() {}
func (KVSending) message()  {}
func (Look) message()       {}
