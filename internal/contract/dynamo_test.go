package contract

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp/dynamo"
	"github.com/windtunnel/windtunnel/core/machine"
)

func dynamoRouters(t *rapid.T) Kind[dynamo.Message, *dynamo.Effects] {
	c := dynamo.DefaultConfig()
	c.TTL = rapid.SampledFrom([]machine.Time{machine.Second, 10 * machine.Second}).Draw(t, "ttl")
	c.Temperature = rapid.SampledFrom([]float64{0, 1}).Draw(t, "temperature")
	return Kind[dynamo.Message, *dynamo.Effects]{
		Make: func() Instance[dynamo.Message, *dynamo.Effects] {
			r := dynamo.NewRouter(c, 1, machine.Second)
			return Instance[dynamo.Message, *dynamo.Effects]{Machine: r, Effects: new(dynamo.Effects),
				Say:   Plainly[dynamo.Routed],
				State: func() string { return fmt.Sprint(r.Workers(), r.Running()) }}
		},
		Message: func(t *rapid.T, _ machine.Time) dynamo.Message {
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "request")
			switch rapid.IntRange(0, 3).Draw(t, "message") {
			case 0:
				return dynamo.Worker{ID: dynamo.WorkerID(rapid.IntRange(0, 3).Draw(t, "worker")),
					Role:     rapid.SampledFrom([]dynamo.Role{dynamo.Decode, dynamo.Prefill, ""}).Draw(t, "role"),
					Requests: rapid.IntRange(-1, 2).Draw(t, "requests")}
			case 1:
				return dynamo.Progress{ID: id, Over: rapid.Bool().Draw(t, "over")}
			}
			return dynamo.Route{ID: id,
				Prompt: dynamo.PromptOf("m", make([]uint32, rapid.IntRange(0, 100).Draw(t, "tokens")), c.BlockSize)}
		},
		Spans: []machine.Time{machine.Second / 2, machine.Second, 3 * machine.Second},
		Rest:  30 * machine.Second,
	}
}
