// Package engine is one model server's engine as a pure state machine: what
// vLLM's V1 scheduler and KV block manager decide, step by step, with the GPU
// replaced by a StepTimer that says how long each step takes.
//
// # Using it
//
// An Engine has the shape described in core/machine. A driver owns one and does
//
//	e, err := engine.New(engine.Config{...})
//	var fx engine.Effects                    // reused for ever
//
//	e.Input(now, &engine.Submit{ID: 7, PromptTokens: 512, MaxTokens: 128}, &fx)
//	for _, f := range fx.List { ... }        // read, then
//	fx.Reset()
//	at, ok := e.Next()                       // wake me then, if ok
//	e.Advance(at, &fx)                       // and again
//
// Input and Advance first play everything that was due before now, so one call
// may hand out effects of several past moments; each carries the time at which
// it was due (Effect.At). They come in order of that time. A live driver is a
// goroutine that waits for a message or for Next; waking late does no harm,
// because the engine's own timeline never depends on who woke it when. A
// virtual driver keeps the engine in its event queue, keyed by Next.
//
// # The life of a request
//
//	Submit → Accepted → PrefillStarted → FirstToken → Tokens… → Finished
//	       ↘ Rejected                                         ↘ Aborted
//
// FirstToken is token number 0; Tokens carries numbers 1 and up, as runs, and
// only for a request whose Interest is EveryToken. Every accepted request ends
// in exactly one Finished or Aborted; a rejected one only has its Rejected.
// Preempted and PrefillStarted may come again in between.
//
// With Submit.HoldAfterFirst the request pauses after FirstToken, keeping its
// slot and its KV blocks, until Resume: the held-open request of document 000 (docs/documents.md).
//
// # Time
//
// A step begins where the last one ended. Messages given at the very moment of
// a step's end still take part in the next step: the engine composes it only
// when time moves on, so Next may be one nanosecond after that moment.
// A message older than the engine's own time takes effect at the engine's time.
// Step ends are exact sums in fixed point (StepTimer, Schedule).
//
// # Where what is decided
//
// schedule.go and admit.go compose a step, settle.go plays its end, batch.go
// keeps who is in it. macro.go makes many steps one event. blocks.go and
// prefix.go are the KV cache, offload.go its tier in host memory, transfer.go
// and held.go its way from engine to engine. timeline.go is
// BatchingIndependent, which needs none of that.
//
// The rules are those of vLLM's V1 scheduler and block pool, with the defaults of
// vLLM 0.33; a test plays both side by side. Known differences: content that is
// computed twice is kept once; generated blocks can be found by others once
// their request has left; blocks without content are taken in the order in which
// they were freed, and not before those with content; vLLM sets one of its blocks
// aside, so that it can use one fewer than NumGPUBlocks; a request whose KV was
// fetched may pass a queue that waits for blocks, and loses them before everybody
// would stand still.
package engine
