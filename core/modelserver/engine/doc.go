// Package engine is one model server's engine as a pure state machine. It makes the decisions of vLLM's V1 scheduler
// and KV block manager, step by step. A StepTimer replaces the GPU and returns the duration of each step.
//
// # Using it
//
// An Engine has the shape described in core/machine. A driver owns one and does
//
//	e, err := engine.New(engine.Config{...})
//	var fx engine.Effects                    // reused for every call
//
//	e.Input(now, &engine.Submit{ID: 7, PromptTokens: 512, MaxTokens: 128}, &fx)
//	for _, f := range fx.List { ... }        // read, then
//	fx.Reset()
//	at, ok := e.Next()                       // the time of the next wake-up, if ok
//	e.Advance(at, &fx)                       // and again
//
// Input and Advance first process everything that was due before now, so one call may return effects of several past
// times. Each effect carries the time at which it was due (Effect.At), and effects come in the order of that time. A
// live driver is a goroutine that waits for a message or for Next. It may wake late, because the engine's own timeline
// never depends on the time of a wake-up. A virtual driver keeps the engine in its event queue, keyed by Next.
//
// # The life of a request
//
//	Submit → Accepted → PrefillStarted → FirstToken → Tokens… → Finished
//	       ↘ Rejected                                         ↘ Aborted
//
// FirstToken is token number 0. Tokens carries numbers 1 and up, as runs, and only for a request whose Interest is
// EveryToken. Every accepted request ends in exactly one Finished or Aborted. A rejected one has only its Rejected.
// Preempted and PrefillStarted may be repeated in between.
//
// With Submit.HoldAfterFirst, the request pauses after FirstToken until Resume, and keeps its slot and its KV blocks.
// It is the held-open request of document 000 (docs/documents.md).
//
// # Time
//
// A step begins when the last one ends. Messages at exactly the end of a step still take part in the next step: the
// engine composes it only when time advances, so Next may be one nanosecond later. A message older than the engine's
// own time takes effect at the engine's time. Step ends are exact sums in fixed point (StepTimer, Schedule).
//
// # Files
//
// schedule.go and admit.go compose a step, settle.go processes its end, and batch.go holds its members. macro.go makes
// many steps one event. blocks.go and prefix.go are the KV cache, and offload.go is its tier in host memory.
// transfer.go and held.go move KV between engines. timeline.go is BatchingIndependent, which needs none of the others.
//
// The rules are those of vLLM's V1 scheduler and block pool, with the defaults of vLLM 0.33. A test runs both side by
// side. The known differences are:
//
//   - The engine stores content that is computed twice only once.
//   - Other requests can find generated blocks once their request has left.
//   - The engine takes blocks without content in the order in which they were freed, and not before those with content.
//   - vLLM reserves one of its blocks, so that it can use one fewer than NumGPUBlocks.
//   - A request whose KV was fetched may overtake a queue that waits for blocks. It loses them before all requests
//     would wait forever.
package engine
