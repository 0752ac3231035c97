package apiserver

import (
	"testing"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Requests wait for the work before them, for the tokens of answers too, and an idle API server has no work.
func TestQueue(t *testing.T) {
	const ms = machine.Millisecond
	q := New(Costs{Latency: 2 * ms, Request: 10 * ms, PromptToken: ms / 100, OutputToken: ms / 10})
	for _, x := range []struct {
		at        machine.Time
		prompt    int
		generated uint64
		want      machine.Time
	}{
		{0, 100, 0, 13 * ms},          // 10 + 1 ms of work
		{0, 100, 0, 24 * ms},          // after the one before
		{22 * ms, 0, 0, 12 * ms},      // idle again
		{32 * ms, 0, 50, 17 * ms},     // 5 ms for the tokens meanwhile
		{32 * ms, 0, 50, 27 * ms},     // counted once
		{1000 * ms, 0, 0, 12 * ms},    // a restarted engine
		{1001 * ms, 0, 10, 22 * ms},   // 9 ms left, and 1 ms for ten tokens
		{1e6 * ms, 1000, 10, 22 * ms}, // a long prompt
	} {
		if got := q.Enter(x.at, x.prompt, x.generated); got != x.want {
			t.Errorf("at %v: the engine gets it after %v; want %v", x.at, got, x.want)
		}
	}
	if free := New(Costs{}); !free.Free() || free.Enter(5, 1000, 1000) != 0 {
		t.Error("an API server without costs takes time")
	}
}
