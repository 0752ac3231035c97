package contract

import (
	"fmt"

	"pgregory.net/rapid"

	fc "github.com/windtunnel/windtunnel/core/epp/picker/flowcontrol"
	"github.com/windtunnel/windtunnel/core/machine"
)

func controllers(t *rapid.T) Kind[fc.Message, *fc.Effects] {
	priority := rapid.IntRange(-2, 2)
	c := fc.DefaultConfig()
	c.DefaultBand.Fairness.Kind = rapid.SampledFrom([]string{fc.GlobalStrict, fc.RoundRobin, fc.ProgramAware}).Draw(t,
		"fairness")
	c.DefaultBand.Ordering = rapid.SampledFrom([]fc.Ordering{fc.FCFS, fc.EDF, fc.SLODeadline}).Draw(t, "ordering")
	c.MaxRequests = rapid.SampledFrom([]int64{0, 5}).Draw(t, "requests")
	c.RequestTTL = rapid.SampledFrom([]machine.Time{0, 7 * machine.Millisecond, 500 * machine.Millisecond}).Draw(t,
		"TTL")
	c.Detector.Kind = rapid.SampledFrom([]string{fc.UtilizationDetectorType, fc.ConcurrencyDetectorType}).Draw(t,
		"detector")
	c.Detector.Concurrency.MaxConcurrency = 2
	c.UsageLimit.Kind = rapid.SampledFrom(
		[]string{fc.StaticUsageLimit, fc.PriorityHoldback, fc.SoftReflectiveCeiling}).Draw(t, "ceilings")
	low := 0.2
	c.UsageLimit.Holdback = fc.Holdback{MinCeiling: &low}
	c.Eviction = rapid.Bool().Draw(t, "eviction")
	id := func(t *rapid.T) fc.RequestID { return fc.RequestID(rapid.IntRange(1, 16).Draw(t, "id")) }
	load := func(t *rapid.T, at machine.Time) fc.Load {
		return fc.Load{Scraped: rapid.IntRange(0, 5).Draw(t, "scraped") > 0, UpdatedAt: at,
			Waiting:  rapid.IntRange(0, 8).Draw(t, "waiting"),
			KVUsage:  machine.Float(rapid.IntRange(0, 10).Draw(t, "KV")) / 10,
			Requests: int64(rapid.IntRange(0, 2).Draw(t, "running"))}
	}
	return Kind[fc.Message, *fc.Effects]{
		Make: func() Instance[fc.Message, *fc.Effects] {
			m, err := fc.NewController(c)
			if err != nil {
				panic(err)
			}
			return Instance[fc.Message, *fc.Effects]{Machine: m, Effects: new(fc.Effects), Say: Plainly[fc.Effect],
				State: func() string { return fmt.Sprintf("%+v", m.Snapshot(0)) }}
		},
		Message: func(t *rapid.T, at machine.Time) fc.Message {
			switch rapid.IntRange(0, 11).Draw(t, "message") {
			case 0, 1:
				return fc.Done{ID: id(t), PromptTokens: 3, CompletionTokens: 4}
			case 2:
				return fc.Gone{ID: id(t)}
			case 3:
				return fc.Placed{ID: id(t)}
			case 4:
				var loads []fc.Load
				for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
					loads = append(loads, load(t, at))
				}
				return fc.Pool{Loads: loads}
			case 5, 6:
				return fc.LoadChanged{Endpoint: rapid.IntRange(-1, 3).Draw(t, "endpoint"), Load: load(t, at)}
			case 7:
				return fc.Objectives{Priorities: rapid.SliceOfN(priority, 0, 3).Draw(t, "objectives")}
			case 8:
				if rapid.IntRange(0, 9).Draw(t, "shutdown") == 0 {
					return fc.Shutdown{}
				}
			}
			return fc.Arrive{ID: id(t), Priority: priority.Draw(t, "priority"),
				FairnessID: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "flow"),
				Bytes:      int64(rapid.IntRange(-1, 150).Draw(t, "bytes")),
				Tokens:     int64(rapid.IntRange(0, 30).Draw(t, "tokens")),
				TTL:        machine.Time(rapid.IntRange(0, 3).Draw(t, "ttl")) * 1700 * machine.Microsecond,
				TTFT:       machine.Time(rapid.IntRange(0, 3).Draw(t, "ttft")) * machine.Millisecond}
		},
		Spans: []machine.Time{100 * machine.Microsecond, machine.Millisecond, 100 * machine.Millisecond,
			10 * machine.Second},
		Rest: 60 * machine.Second,
	}
}
