package contract

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
)

func engines(t *rapid.T) Kind[engine.Message, *engine.Effects] {
	cfg := engine.Config{
		Batching: rapid.SampledFrom(
			[]engine.Batching{engine.BatchingContinuous, engine.BatchingContinuous, engine.BatchingStatic,
				engine.BatchingNone, engine.BatchingIndependent}).Draw(t, "batching"),
		Policy:   rapid.SampledFrom([]engine.Policy{engine.PolicyFCFS, engine.PolicyPriority}).Draw(t, "policy"),
		KVEvents: rapid.Bool().Draw(t, "KV events"), ReportSteps: rapid.Bool().Draw(t, "report steps"),
		KVLoadFailure: rapid.SampledFrom([]engine.KVLoadFailure{engine.KVLoadFail, engine.KVLoadRecompute}).Draw(t,
			"failed load"),
		Timer: latency.PerToken{Step: engine.ToFixed(10 * machine.Millisecond),
			PrefillToken: engine.ToFixed(machine.Millisecond)},
		BlockSize: 4, NumGPUBlocks: rapid.IntRange(8, 30).Draw(t, "blocks"),
		NumCPUBlocks: rapid.SampledFrom([]int{0, 6}).Draw(t, "CPU blocks"),
		MaxNumSeqs:   3, MaxNumBatchedTokens: 20, MaxModelLen: 30, KVHoldTimeout: 50 * machine.Millisecond,
		MaxInFlight: 8,
		LoRAs: engine.LoRAs{Adapters: []engine.AdapterID{1, 2}, MaxLoRAs: 1,
			LoRALoadTime: 5 * machine.Millisecond},
		Prefill:   engine.Span{Low: 10 * machine.Millisecond, High: 30 * machine.Millisecond},
		TokenTime: engine.Span{Low: 10 * machine.Millisecond, High: 10 * machine.Millisecond},
	}
	id := func(t *rapid.T) engine.RequestID { return engine.RequestID(rapid.IntRange(1, 12).Draw(t, "id")) }
	return Kind[engine.Message, *engine.Effects]{
		Make: func() Instance[engine.Message, *engine.Effects] {
			e, err := engine.New(cfg)
			if err != nil {
				panic(err)
			}
			return Instance[engine.Message, *engine.Effects]{Machine: e, Effects: new(engine.Effects), Say: sayEngine,
				State: func() string { return fmt.Sprintf("%+v", e.Stats()) }}
		},
		Message: func(t *rapid.T, _ machine.Time) engine.Message {
			switch rapid.IntRange(0, 12).Draw(t, "message") {
			case 0:
				return engine.Abort{ID: id(t)}
			case 1:
				return engine.Resume{ID: id(t)}
			case 2:
				return engine.KVArrived{ID: id(t)}
			case 3:
				return engine.KVFailed{ID: id(t)}
			case 4:
				return engine.KVReleased{Handle: uint64(id(t))}
			case 5:
				return engine.KVSending{By: rapid.SampledFrom([]int{1, -1, -1}).Draw(t, "sending")}
			case 6:
				return engine.Look{}
			case 7:
				return engine.Control{Op: rapid.SampledFrom(
					[]engine.Op{engine.OpLoadAdapter, engine.OpUnloadAdapter, engine.OpSleep, engine.OpWake,
						engine.OpWake, engine.OpResetPrefixCache,
						engine.OpDrain, engine.OpRestart, engine.OpRestart, engine.OpCrash, engine.OpPace}).Draw(t,
					"op"),
					Percent: rapid.SampledFrom([]int{0, 50, 100, 330}).Draw(t, "percent"),
					Adapter: engine.AdapterID(rapid.IntRange(0, 3).Draw(t, "adapter"))}
			}
			m := &engine.Submit{ID: id(t), PromptTokens: rapid.IntRange(1, 40).Draw(t, "prompt"),
				MaxTokens: rapid.IntRange(0, 12).Draw(t, "max"), StopAfter: rapid.IntRange(0, 12).Draw(t, "stop"),
				Priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")),
				Adapter:  engine.AdapterID(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "adapter")),
				Interest: rapid.SampledFrom(
					[]engine.Interest{engine.Milestones, engine.EveryToken, engine.EndOnly}).Draw(t, "interest"),
				HoldAfterFirst: rapid.IntRange(0, 4).Draw(t, "hold") == 0,
				HoldKV:         rapid.IntRange(0, 3).Draw(t, "hold KV") == 0}
			for i := range m.PromptTokens / cfg.BlockSize {
				m.Hashes = append(m.Hashes, uint64(rapid.IntRange(1, 2).Draw(t, "hash")+10*i))
			}
			if rapid.IntRange(0, 4).Draw(t, "remote") == 0 {
				m.Remote = engine.RemoteKV{From: 2, Handle: 5, Tokens: rapid.IntRange(1, 40).Draw(t, "remote tokens")}
			}
			return m
		},
		Spans: []machine.Time{machine.Millisecond, 10 * machine.Millisecond, 25 * machine.Millisecond},
		Rest:  10 * machine.Second,
	}
}

// sayEngine describes each token separately, because an engine that is woken late reports several in one effect.
func sayEngine(fx *engine.Effects) []Said {
	var out []Said
	for i := range fx.List {
		f := &fx.List[i]
		if f.Kind != engine.Tokens {
			out = append(out, Said{f.At,
				fmt.Sprint(f, f.Op, f.From, f.First, f.Count, f.Batch, f.Handle, f.Bytes, f.Until, f.Parent, f.Schedule,
					fx.BlockHashes(f), fx.Step(f, 0))})
			continue
		}
		for k := range int(f.Count) {
			out = append(out, Said{f.Schedule.End(k + 1), fmt.Sprintf("token %d of %d", int(f.First)+k, f.Request)})
		}
	}
	return out
}
