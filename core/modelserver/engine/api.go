package engine

import "github.com/windtunnel/windtunnel/core/machine"

// RequestID names a request within one engine. The driver chooses it; it must
// not be in flight already. It keys the random draws of the request, so the
// same id in the same run draws the same values.
type RequestID uint64

// EngineID names an engine to its peers, for KV transfers.
type EngineID uint32

// AdapterID names a LoRA adapter; 0 is the base model.
type AdapterID uint32

// Interest is what the sender of a request wants to see of its decoding.
type Interest uint8

const (
	// Milestones: FirstToken and the end. What virtual time asks for; decoding
	// then costs the same for 10 tokens and for 10,000.
	Milestones Interest = iota
	// EveryToken: a Tokens effect at the end of every step that made one. What
	// a streaming server asks for.
	EveryToken
	// EndOnly: the same effects as Milestones, but Next does not name the moment
	// of the first token under BatchingIndependent; FirstToken comes, with its
	// own time, when the engine is next advanced. What a server asks for that
	// answers in one piece: nobody is woken twice for one answer.
	EndOnly
)

// Message is what Input takes: *Submit, Abort, Resume, Control, KVArrived,
// KVFailed, KVReleased, KVSending or Look.
type Message interface{ message() }

// Submit asks for one completion. Several of one prompt (n > 1) are several
// Submits with the same Hashes, as vLLM's own front end makes them. The engine
// copies what it needs, except Hashes.
type Submit struct {
	ID RequestID

	// PromptTokens is the length of the prompt, at least 1.
	PromptTokens int

	// Hashes names the content of the request's KV blocks: the chained hash of
	// each full block of the prompt, followed, where the sender knows them, by
	// those of the output. Two requests share a cached prefix exactly as far as
	// their hashes agree. Blocks past the end of Hashes are unlike any other
	// request's. BlockHashes computes them from token ids. The engine keeps the
	// slice; do not write to it afterwards. It may be shared between requests.
	Hashes []uint64
	// SkipReadingCache has the whole prompt computed, though its blocks may be used
	// again afterwards (vLLM: requests with prompt_logprobs).
	SkipReadingCache bool

	// MaxTokens bounds the output; 0 means as far as MaxModelLen allows.
	// Reaching it finishes with ReasonLength.
	MaxTokens int
	// StopAfter is where the model would end by itself (end-of-sequence token or
	// a stop string): after that many output tokens, with ReasonStop. 0: never.
	StopAfter int
	// MinTokens postpones StopAfter; IgnoreEOS removes it (vLLM's sampling
	// parameters min_tokens and ignore_eos).
	MinTokens int
	IgnoreEOS bool

	// Priority matters under PolicyPriority; lower is served earlier.
	Priority int32
	// Adapter is the LoRA adapter to run with.
	Adapter AdapterID

	// Interest is what the sender wants to see of the decoding.
	Interest Interest
	// HoldAfterFirst pauses the request after its first token until Resume.
	HoldAfterFirst bool

	// HoldKV keeps the request's KV blocks after it finished, for another engine
	// to fetch (vLLM: kv_transfer_params.do_remote_decode). The handle in KVHeld
	// is the request's own id.
	HoldKV bool
	// Remote, if its Tokens is above 0, says where the prompt's KV can be
	// fetched instead of computed (vLLM: do_remote_prefill).
	Remote RemoteKV

	// PrefillTime and TokenTime set this request's own times under
	// BatchingIndependent; 0 draws from Config.Prefill and Config.TokenTime.
	PrefillTime machine.Time
	TokenTime   machine.Time
}

// RemoteKV is KV computed by another engine, under the handle of its KVHeld.
type RemoteKV struct {
	From   EngineID
	Handle uint64
	// Tokens is how many leading prompt tokens the other engine holds.
	Tokens int
}

// Abort ends a request at any moment of its life, at the end of the step that
// is running: the token of that step is dropped and the blocks are free before
// the next one is composed. An unknown or finished id is nothing.
type Abort struct{ ID RequestID }

// Resume lets a request go on that was submitted with HoldAfterFirst. Sent
// before the first token, it cancels the pause. An unknown id is nothing.
type Resume struct{ ID RequestID }

// Op is an operation of Control.
type Op uint8

const (
	// OpLoadAdapter makes Control.Adapter known; OpUnloadAdapter forgets it.
	// Requests in flight that use it go on.
	OpLoadAdapter Op = iota + 1
	OpUnloadAdapter
	// OpSleep aborts what is in flight, drops the KV cache and rejects requests
	// with CodeAsleep until OpWake.
	OpSleep
	OpWake
	// OpResetPrefixCache forgets all cached blocks. As in vLLM it is refused
	// while any block is in use.
	OpResetPrefixCache
	// OpDrain rejects new requests with CodeDraining and reports
	// ControlDone{OpDrain} once nothing is in flight.
	OpDrain
	// OpCrash ends everything with ReasonCrash at once, in the middle of a step;
	// OpFailRank is the loss of one rank of a tensor-parallel group, which fails
	// the whole group the same way. Requests are then rejected with CodeDead.
	OpCrash
	OpFailRank
	// OpRestart brings an engine back that crashed, drained or slept: empty
	// cache, nothing in flight, adapters of the configuration.
	OpRestart
	// OpPace has steps that begin from now on take Control.Percent of the timer's
	// time, as on an accelerator that is throttled; a restart leaves it so. It is
	// refused by an engine without steps.
	OpPace
)

// MaxPace is the most that OpPace takes: a hundred times as long.
const MaxPace = 10_000

// Control changes the engine itself. Its answer is ControlDone or
// ControlRefused.
type Control struct {
	Op      Op
	Adapter AdapterID // for OpLoadAdapter and OpUnloadAdapter
	Rank    int       // for OpFailRank, for the record only
	Percent int       // for OpPace, from 1 to MaxPace
}

// KVArrived says that the pull asked for by KVPull is complete.
type KVArrived struct{ ID RequestID }

// KVFailed says that the pull asked for by KVPull failed; what happens then is
// Config.KVLoadFailure.
type KVFailed struct{ ID RequestID }

// KVReleased tells the holder that a handle of KVHeld is no longer needed. An
// unknown or expired handle is nothing.
type KVReleased struct{ Handle uint64 }

// KVSending tells the holder that a connector which blocks it (document 003's
// NIXL v1) began to send its KV (By is 1) or ended (By is -1). While any such
// transfer is under way no step begins; one that is under way ends. Engines of
// BatchingIndependent take no notice.
type KVSending struct{ By int }

// Look asks that the steps of a long run be reported (Stepped) by the end of
// the one under way. It changes nothing else.
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
