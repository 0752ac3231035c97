package flowcontrol_test

import (
	"fmt"

	. "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

// One request fills the pool, two wait; the higher priority leaves first, and
// the other's time runs out.
func ExampleController() {
	config := DefaultConfig()
	config.Detector.Kind = ConcurrencyDetectorType
	config.Detector.Concurrency.MaxConcurrency = 1
	c, err := NewController(config)
	if err != nil {
		panic(err)
	}
	show := func(e Effect) {
		fmt.Printf("%v request %d: %v", e.At, e.ID, e.Outcome)
		if r := e.Refusal(); r != nil {
			fmt.Printf(" (%d %s)", r.Status, r.Reason)
		}
		fmt.Println()
	}
	var fx Effects
	c.Input(0, Pool{Loads: make([]Load, 1)}, &fx)
	c.Input(0, Arrive{ID: 1, FairnessID: "default-flow"}, &fx)
	c.Input(0, Arrive{ID: 2, FairnessID: "default-flow", TTL: 5 * machine.Second}, &fx)
	c.Input(0, Arrive{ID: 3, FairnessID: "default-flow", Priority: 10}, &fx)
	c.Input(2*machine.Second, Done{ID: 1, PromptTokens: 3, CompletionTokens: 4}, &fx)

	// A driver sleeps until a message comes or Next is due.
	for at, ok := c.Next(); ok; at, ok = c.Next() {
		c.Advance(at, &fx)
	}
	for _, e := range fx.List {
		show(e)
	}
	// Output:
	// 0s request 1: Dispatched
	// 2.001s request 3: Dispatched
	// 5s request 2: EvictedTTL (429 rejected-ttl-expired)
}
