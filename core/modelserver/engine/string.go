package engine

import (
	"fmt"
	"strings"
)

var kindNames = []string{
	"none", "Accepted", "Rejected", "PrefillStarted", "FirstToken", "Tokens", "Paused", "Preempted", "Finished",
	"Aborted",
	"KVHeld", "KVFreed", "KVPull", "KVRelease", "BlockStored", "BlockRemoved", "AllBlocksCleared",
	"ControlDone", "ControlRefused", "Stepped",
}

func (k Kind) String() string { return name(kindNames, int(k)) }

var reasonNames = []string{"none", "stop", "length", "kv transfer failed", "crash", "sleep", "timeout"}

func (r Reason) String() string { return name(reasonNames, int(r)) }

var codeNames = []string{
	"none", "prompt too long", "bad request", "unknown adapter", "asleep", "draining", "dead", "full",
}

func (c Code) String() string { return name(codeNames, int(c)) }

var tierNames = []string{"gpu", "cpu"}

// String returns the medium in vLLM's KV events.
func (t Tier) String() string { return name(tierNames, int(t)) }

var opNames = []string{
	"none", "load adapter", "unload adapter", "sleep", "wake", "reset prefix cache", "drain", "crash", "fail rank",
	"restart",
}

func (o Op) String() string { return name(opNames, int(o)) }

// String returns one line with the fields that the effect's kind uses, for logs, golden files and people.
func (f Effect) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v", f.At, f.Kind)
	if f.Request != 0 {
		fmt.Fprintf(&b, " %d", f.Request)
	}
	switch f.Kind {
	case Rejected:
		fmt.Fprintf(&b, ": %v", f.Code)
	case PrefillStarted:
		fmt.Fprintf(&b, " cached=%d", f.Count)
	case Tokens:
		fmt.Fprintf(&b, " %d..%d", f.First, f.First+f.Count-1)
		if f.Count > 1 {
			fmt.Fprintf(&b, " from %v", f.Schedule.End(1))
		}
	case Preempted:
		fmt.Fprintf(&b, " recompute=%d", f.Count)
	case Finished:
		fmt.Fprintf(&b, ": %v, %d tokens", f.Reason, f.Count)
	case Aborted:
		fmt.Fprintf(&b, ": %d tokens", f.Count)
	case KVHeld:
		fmt.Fprintf(&b, " handle=%d blocks=%d until %v", f.Handle, f.Count, f.Until)
	case KVFreed:
		fmt.Fprintf(&b, " handle=%d blocks=%d: %v", f.Handle, f.Count, f.Reason)
	case KVPull:
		fmt.Fprintf(&b, " handle=%d from=%d tokens=%d bytes=%d", f.Handle, f.From, f.Count, f.Bytes)
	case KVRelease:
		fmt.Fprintf(&b, " handle=%d from=%d", f.Handle, f.From)
	case BlockStored:
		fmt.Fprintf(&b, " %v first=%d count=%d parent=%x", f.Tier, f.First, f.Count, f.Parent)
	case BlockRemoved:
		fmt.Fprintf(&b, " %v count=%d", f.Tier, f.Count)
	case ControlDone, ControlRefused:
		fmt.Fprintf(&b, " %v", f.Op)
		if f.First != 0 {
			fmt.Fprintf(&b, " %d", f.First)
		}
	case Stepped:
		fmt.Fprintf(&b, " %d steps, prefill %d tokens, decode %d", f.Count, f.First, f.Batch)
	}
	return b.String()
}
