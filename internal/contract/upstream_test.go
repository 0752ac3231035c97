package contract

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
	"github.com/windtunnel/windtunnel/core/machine"
)

func clusters(t *rapid.T) Kind[upstream.Message, *machine.Effects[upstream.Effect]] {
	few := func(label string) *int {
		if n := rapid.IntRange(-1, 3).Draw(t, label); n >= 0 {
			return &n
		}
		return nil
	}
	c := upstream.Config{Seed: 3, Streams: rapid.SampledFrom([]int{1, 100}).Draw(t, "streams"),
		Lost: "connection termination",
		Limits: &gateway.Limits{Connections: few("connections"), Pending: few("pending"), Requests: few("requests"),
			Retries: few("retries")}}
	if rapid.Bool().Draw(t, "budget") {
		share := 20.0
		c.Limits.Budget, c.Limits.Least = &share, few("least")
	}
	if rapid.Bool().Draw(t, "outlier") {
		interval, base, most := gateway.Duration(100*time.Millisecond), gateway.Duration(300*time.Millisecond), 60
		c.Limits.Outlier = &gateway.Outlier{Consecutive5xx: few("5xx"), Gateway: few("gateway"),
			LocalOrigin: few("local"), Split: rapid.Bool().Draw(t, "split"), Interval: &interval, Base: &base,
			MaxPercent:    &most,
			SuccessVolume: few("volume"), SuccessHosts: few("hosts"),
			AlwaysEjectOneHost: rapid.Bool().Draw(t, "always")}
	}
	if rapid.Bool().Draw(t, "probed") {
		c.Health = &objects.Health{Interval: 100 * time.Millisecond, Timeout: 50 * time.Millisecond,
			UnhealthyThreshold: 2, HealthyThreshold: 1}
	}
	all := []string{"a:1", "b:1", "c:1", "d:1"}
	c.Endpoints = all[:rapid.IntRange(0, 3).Draw(t, "endpoints")]
	return Kind[upstream.Message, *machine.Effects[upstream.Effect]]{
		Make: func() Instance[upstream.Message, *machine.Effects[upstream.Effect]] {
			x := upstream.New(c)
			return Instance[upstream.Message, *machine.Effects[upstream.Effect]]{Machine: x,
				Effects: new(machine.Effects[upstream.Effect]), Say: Plainly[upstream.Effect],
				State: func() string { return fmt.Sprint(x.InFlight(), x.Timed()) }}
		},
		Message: func(t *rapid.T, _ machine.Time) upstream.Message {
			request, attempt := uint64(rapid.IntRange(1, 6).Draw(t, "request")), rapid.IntRange(1, 3).Draw(t, "attempt")
			switch rapid.IntRange(0, 10).Draw(t, "message") {
			case 0, 1, 2:
				return upstream.RequestHeaders{Request: request, ID: fmt.Sprint(request),
					Named: rapid.SliceOfN(rapid.SampledFrom(append(all, "?")), 0, 2).Draw(t, "named"),
					Attempts: gateway.Attempts{Retries: rapid.IntRange(0, 3).Draw(t, "retries"), On: []string{"5xx"},
						Base: 10 * time.Millisecond, Max: 20 * time.Millisecond,
						Whole: time.Duration(rapid.IntRange(0, 2).Draw(t, "whole")) * 100 * time.Millisecond,
						Try:   time.Duration(rapid.IntRange(0, 2).Draw(t, "try")) * 50 * time.Millisecond}}
			case 3:
				return upstream.Whole{Request: request}
			case 4, 5:
				return upstream.Head{Request: request, Attempt: attempt,
					Status: rapid.SampledFrom([]int{200, 200, 404, 500, 503}).Draw(t, "status"),
					Code:   rapid.SampledFrom([]int{0, 0, 14}).Draw(t, "code"), End: rapid.Bool().Draw(t, "end")}
			case 6:
				return upstream.Ended{Request: request, Attempt: attempt}
			case 7:
				return upstream.Broken{Request: request, Attempt: attempt, Refused: rapid.Bool().Draw(t, "refused")}
			case 8:
				return upstream.Left{Request: request}
			case 9:
				return upstream.Endpoints{
					List: rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 4, rapid.ID).Draw(t, "list")}
			}
			return upstream.Probed{Endpoint: rapid.SampledFrom(all).Draw(t, "endpoint"), Probe: attempt,
				Well: rapid.Bool().Draw(t, "well"), Answered: rapid.Bool().Draw(t, "answered")}
		},
		Spans: []machine.Time{5 * machine.Millisecond, 50 * machine.Millisecond, 100 * machine.Millisecond},
		Rest:  2 * machine.Second,
	}
}
