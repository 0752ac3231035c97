package contract

import (
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

func engineCores(t *rapid.T) Kind[enginecore.Message, *enginecore.Effects] {
	cfg := enginecore.Config{EngineID: "e", ViaStore: rapid.Bool().Draw(t, "via store"),
		PeerTimeout: 40 * machine.Millisecond, Ranks: 2, Publish: rapid.Bool().Draw(t, "publish"),
		Engine: engine.Config{
			Batching: rapid.SampledFrom([]engine.Batching{engine.BatchingContinuous, engine.BatchingIndependent}).Draw(
				t, "batching"), KVEvents: true,
			KVLoadFailure: rapid.SampledFrom([]engine.KVLoadFailure{engine.KVLoadFail, engine.KVLoadRecompute}).Draw(t,
				"failed load"),
			Timer: latency.PerToken{Step: engine.ToFixed(10 * machine.Millisecond),
				PrefillToken: engine.ToFixed(machine.Millisecond)},
			BlockSize: 4, NumGPUBlocks: 30, MaxNumSeqs: 3, MaxModelLen: 30, KVHoldTimeout: 50 * machine.Millisecond,
			MaxInFlight: 8,
			Prefill:     engine.Span{Low: 10 * machine.Millisecond, High: 30 * machine.Millisecond},
			TokenTime:   engine.Span{Low: 10 * machine.Millisecond, High: 10 * machine.Millisecond},
		}}
	drawn := []*enginecore.Sequence{{}}
	one := func(t *rapid.T) *enginecore.Sequence { return rapid.SampledFrom(drawn).Draw(t, "sequence") }
	call := func(t *rapid.T) enginecore.Call { return enginecore.Call(rapid.IntRange(1, 12).Draw(t, "call")) }
	inquiry := func(t *rapid.T) enginecore.Inquiry {
		return enginecore.Inquiry(rapid.IntRange(1, 4).Draw(t, "inquiry"))
	}
	key := func(t *rapid.T) string { return rapid.SampledFrom([]string{"", "k1", "k2"}).Draw(t, "key") }
	remote := func(t *rapid.T) *connector.Remote {
		return &connector.Remote{Host: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "host"), Key: key(t),
			EngineID: "f", Tokens: rapid.IntRange(0, 20).Draw(t, "remote tokens")}
	}
	return Kind[enginecore.Message, *enginecore.Effects]{
		Make: func() Instance[enginecore.Message, *enginecore.Effects] {
			s, err := enginecore.New(cfg)
			if err != nil {
				panic(err)
			}
			own := map[*enginecore.Sequence]*enginecore.Sequence{}
			mine := func(q *enginecore.Sequence) *enginecore.Sequence {
				if own[q] == nil {
					mine := *q
					own[q] = &mine
				}
				return own[q]
			}
			return Instance[enginecore.Message, *enginecore.Effects]{Machine: s, Effects: new(enginecore.Effects),
				Say:   sayEngineCore,
				State: func() string { return fmt.Sprintf("%+v, %d left", s.Engine().Stats(), s.Busy()) },
				Own: func(m enginecore.Message) enginecore.Message {
					switch m := m.(type) {
					case enginecore.Submit:
						return enginecore.Submit{Sequence: mine(m.Sequence)}
					case enginecore.Abort:
						return enginecore.Abort{Sequence: mine(m.Sequence)}
					case enginecore.Resume:
						return enginecore.Resume{Sequence: mine(m.Sequence)}
					}
					return m
				}}
		},
		Message: func(t *rapid.T, _ machine.Time) enginecore.Message {
			switch rapid.IntRange(0, 15).Draw(t, "message") {
			case 0:
				return enginecore.Abort{Sequence: one(t)}
			case 1:
				return enginecore.Resume{Sequence: one(t)}
			case 2, 3:
				op := rapid.SampledFrom(
					[]enginecore.Op{enginecore.OpHello, enginecore.OpGet, enginecore.OpAwait, enginecore.OpAwait,
						enginecore.OpFind, enginecore.OpRelease}).Draw(t, "op")
				return enginecore.Asked{Inquiry: inquiry(t),
					Question: enginecore.Question{Op: op, EngineID: "e", Key: key(t),
						Blocks: connector.Blocks{First: rapid.IntRange(1, 9).Draw(t, "first"),
							Count: rapid.IntRange(1, 4).Draw(t, "count")}}}
			case 4:
				return enginecore.Left{Inquiry: inquiry(t)}
			case 5, 6:
				return enginecore.Replied{Call: call(t),
					Reply: enginecore.Reply{Tokens: rapid.IntRange(0, 20).Draw(t, "tokens"),
						Waiting: rapid.Bool().Draw(t, "waiting"), EngineID: "f",
						Err: rapid.SampledFrom([]string{"", "", "no"}).Draw(t, "err")}}
			case 7:
				return enginecore.Broke{Call: call(t), Err: errors.New("reset")}
			case 8, 9:
				return enginecore.Moved{Call: call(t),
					How: rapid.SampledFrom([]enginecore.Progress{enginecore.Usable, enginecore.Arrived,
						enginecore.Failed}).Draw(t, "how")}
			case 10:
				return enginecore.Found{Call: call(t), Blocks: rapid.IntRange(0, 4).Draw(t, "found"), Writer: "f"}
			case 11:
				return &enginecore.Control{
					Control: engine.Control{
						Op: rapid.SampledFrom([]engine.Op{engine.OpSleep, engine.OpWake, engine.OpWake, engine.OpDrain,
							engine.OpRestart, engine.OpRestart, engine.OpCrash, engine.OpFailRank}).Draw(t, "op")},
					Level: 1}
			}
			q := &enginecore.Sequence{Key: key(t), LoseKV: rapid.IntRange(0, 4).Draw(t, "lose") == 0,
				Tokens: func(_, count int) []uint32 { return make([]uint32, count) }}
			q.Submit = engine.Submit{ID: engine.RequestID(rapid.IntRange(1, 12).Draw(t, "id")),
				PromptTokens: rapid.IntRange(1, 28).Draw(t, "prompt"), MaxTokens: rapid.IntRange(0, 12).Draw(t, "max"),
				HoldAfterFirst: rapid.IntRange(0, 4).Draw(t, "hold") == 0,
				HoldKV:         rapid.IntRange(0, 2).Draw(t, "hold KV") == 0}
			for i := range q.Submit.PromptTokens / cfg.Engine.BlockSize {
				q.Submit.Hashes = append(q.Submit.Hashes, uint64(rapid.IntRange(1, 2).Draw(t, "hash")+10*i))
			}
			switch rapid.IntRange(0, 3).Draw(t, "from") {
			case 0, 1:
				q.Remote = remote(t)
			case 2:
				q.Source = remote(t)
			}
			drawn = append(drawn, q)
			return enginecore.Submit{Sequence: q}
		},
		Spans: []machine.Time{machine.Millisecond, 10 * machine.Millisecond, 25 * machine.Millisecond},
		Rest:  10 * machine.Second,
	}
}

func sayEngineCore(fx *enginecore.Effects) []Said {
	engine := sayEngine(&fx.Engine)
	out := make([]Said, len(fx.List))
	for i := range fx.List {
		e := &fx.List[i]
		whose := "nobody's"
		if e.Sequence != nil {
			whose = fmt.Sprint(e.Sequence.Submit.ID)
		}
		switch a := e.Do.(type) {
		case nil:
			out[i] = engine[e.Engine]
		case enginecore.Ask:
			out[i].Text = fmt.Sprintf("ask %d %v %+v of %s", a.Call, *a.To, a.Question, whose)
		case enginecore.Controlled:
			out[i].Text = fmt.Sprintf("controlled %+v %v", *a.Control, a.Done)
		case enginecore.Lost:
			out[i].Text = fmt.Sprintf("lost %v of %s", a.Err, whose)
		default:
			out[i].Text = fmt.Sprintf("%T %+v of %s", a, a, whose)
		}
		out[i].At = e.At
	}
	return out
}

func enginecoreNetworks(t *rapid.T) Kind[enginecore.NetworkMessage, *enginecore.NetworkEffects] {
	cfg := enginecore.NetworkConfig{Engines: []string{"a", "b"}, NIC: link.Wire{BytesPerSecond: 1e8},
		Profile: rapid.SampledFrom(
			[]link.Profile{connector.NIXLv2.Profile, connector.NIXLv1.Profile, connector.NIXLv2.Profile.Pipelined(),
				connector.LMCache.Profile}).Draw(t, "connector")}
	server := rapid.IntRange(0, 1)
	call := func(t *rapid.T) enginecore.Call { return enginecore.Call(rapid.IntRange(1, 12).Draw(t, "call")) }
	hashes := rapid.SampledFrom([][]uint64{{1}, {1, 2}, {1, 2, 3}})
	return Kind[enginecore.NetworkMessage, *enginecore.NetworkEffects]{
		Make: func() Instance[enginecore.NetworkMessage, *enginecore.NetworkEffects] {
			n, err := enginecore.NewNetwork(cfg)
			if err != nil {
				panic(err)
			}
			return Instance[enginecore.NetworkMessage, *enginecore.NetworkEffects]{Machine: n,
				Effects: new(enginecore.NetworkEffects), Say: Plainly[enginecore.Delivery],
				State: func() string { return fmt.Sprint(n.InFlight()) }}
		},
		Message: func(t *rapid.T, _ machine.Time) enginecore.NetworkMessage {
			switch rapid.IntRange(0, 7).Draw(t, "message") {
			case 0:
				return enginecore.Cancel{To: server.Draw(t, "to"), Call: call(t)}
			case 1:
				return enginecore.LookUp{To: server.Draw(t, "to"), Call: call(t), Hashes: hashes.Draw(t, "hashes")}
			case 2:
				return enginecore.Put{From: server.Draw(t, "from"), Hashes: hashes.Draw(t, "hashes")}
			case 3:
				return enginecore.Break{Of: server.Draw(t, "of"), Stay: rapid.Bool().Draw(t, "stay")}
			case 4:
				return enginecore.Mend{Of: server.Draw(t, "of")}
			}
			return enginecore.Move{To: server.Draw(t, "to"), Call: call(t),
				From:   rapid.SampledFrom([]string{"", "a", "b", "elsewhere"}).Draw(t, "from"),
				Stored: rapid.Bool().Draw(t, "stored"),
				Bytes:  rapid.SampledFrom([]int64{-1, 0, 1e5, 1e6}).Draw(t, "bytes")}
		},
		Spans: []machine.Time{machine.Millisecond, 10 * machine.Millisecond, 100 * machine.Millisecond},
		Rest:  60 * machine.Second,
	}
}
