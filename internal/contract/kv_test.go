package contract

import (
	"fmt"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
	"pgregory.net/rapid"
)

func indexes(t *rapid.T) Kind[kvindex.Message, *kvindex.Effects] {
	span := func(label string) machine.Time {
		return machine.Time(rapid.SampledFrom([]int{0, 5, 30, 90}).Draw(t, label)) * machine.Second
	}
	cfg := kvindex.Config{Hasher: kv.Hasher{BlockTokens: 1}, TTL: span("TTL"), CleanupInterval: span("cleanup"),
		StaleAfter: span("stale"), ForgetAfter: span("forget"),
		MaxBlocks: rapid.SampledFrom([]int{0, 5}).Draw(t, "blocks"),
		MaxPods:   rapid.SampledFrom([]int{0, 2}).Draw(t, "pods"), Orphans: 4}
	pod := rapid.SampledFrom([]string{"a", "b", "c"})
	keys := func(t *rapid.T) (keys []kv.Key) {
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			keys = append(keys, kv.Key(rapid.IntRange(1, 8).Draw(t, "key")))
		}
		return keys
	}
	event := rapid.Custom(func(t *rapid.T) kv.Event {
		e := kv.Event{Kind: rapid.SampledFrom(
			[]kv.Kind{kv.Stored, kv.Stored, kv.Stored, kv.Removed, kv.Cleared, kv.Heartbeat, kv.Updated}).Draw(t,
			"kind"),
			Medium: rapid.SampledFrom([]string{kv.MediumGPU, kv.MediumCPU}).Draw(t, "medium"), Group: kv.NoGroup,
			BlockTokens: 1,
			Parent:      kv.EngineHash(rapid.IntRange(0, 8).Draw(t, "parent")),
			ByName:      rapid.IntRange(0, 5).Draw(t, "by name") == 0}
		for range rapid.IntRange(1, 3).Draw(t, "blocks") {
			e.Hashes = append(e.Hashes, kv.EngineHash(rapid.IntRange(1, 8).Draw(t, "hash")))
			e.Tokens = append(e.Tokens, rapid.Uint32Range(1, 2).Draw(t, "token"))
		}
		return e
	})
	return Kind[kvindex.Message, *kvindex.Effects]{
		Make: func() Instance[kvindex.Message, *kvindex.Effects] {
			ix := kvindex.New(cfg)
			return Instance[kvindex.Message, *kvindex.Effects]{Machine: ix, Effects: new(kvindex.Effects),
				Say: Plainly[kvindex.Effect], State: func() string {
					s := fmt.Sprintf("%+v %+v", ix.State(), ix.Stats())
					for _, name := range ix.PodNames() {
						p, _ := ix.Pod(name)
						s += fmt.Sprintf(" %+v %x", p, ix.Keys(name))
					}
					return s
				}}
		},
		Message: func(t *rapid.T, _ machine.Time) kvindex.Message {
			switch rapid.IntRange(0, 8).Draw(t, "message") {
			case 0:
				return kvindex.Asked{Pod: pod.Draw(t, "pod"), Keys: keys(t),
					Found: rapid.IntRange(0, 4).Draw(t, "found")}
			case 1:
				return kvindex.Speculate{Pod: pod.Draw(t, "pod"), Keys: keys(t),
					TTL: rapid.SampledFrom([]machine.Time{0, 5 * machine.Second, 30 * machine.Second}).Draw(t,
						"speculation")}
			case 2:
				return kvindex.DropBlocks{Pod: pod.Draw(t, "pod")}
			case 3:
				return kvindex.DropPod{Pod: pod.Draw(t, "pod")}
			}
			return &kvindex.Events{From: kv.Topic{Pod: pod.Draw(t, "pod"), Model: "m"},
				List: rapid.SliceOfN(event, 0, 3).Draw(t, "events")}
		},
		Spans: []machine.Time{machine.Second, 5 * machine.Second, 30 * machine.Second},
		Rest:  machine.Time(3600) * machine.Second,
	}
}

func feeds(t *rapid.T) Kind[kvfeed.Message, *kvfeed.Effects] {
	cfg := kvfeed.Config{Gaps: rapid.SampledFrom(
		[]kvfeed.Gaps{kvfeed.GapsDrop, kvfeed.GapsReplay, kvfeed.GapsReplay, kvfeed.GapsIgnore}).Draw(t, "gaps"),
		Probe:        rapid.SampledFrom([]machine.Time{-1, 300 * machine.Millisecond}).Draw(t, "probe"),
		HoldMessages: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "hold")}
	return Kind[kvfeed.Message, *kvfeed.Effects]{
		Make: func() Instance[kvfeed.Message, *kvfeed.Effects] {
			return Instance[kvfeed.Message, *kvfeed.Effects]{Machine: kvfeed.New(cfg), Effects: new(kvfeed.Effects),
				Say: Plainly[kvfeed.Effect]}
		},
		Message: func(t *rapid.T, _ machine.Time) kvfeed.Message {
			m := kvfeed.Message{Kind: rapid.SampledFrom(
				[]kvfeed.MessageKind{kvfeed.Live, kvfeed.Live, kvfeed.Live, kvfeed.Connected, kvfeed.Replayed,
					kvfeed.Replayed, kvfeed.ReplayEnded}).Draw(t, "message"),
				Seq: rapid.Uint64Range(0, 9).Draw(t, "number"), Whole: rapid.Bool().Draw(t, "whole")}
			m.Payload = fmt.Appendf(nil, "life %d, message %d", rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "life"),
				m.Seq)
			return m
		},
		Spans: []machine.Time{machine.Millisecond, 50 * machine.Millisecond, 300 * machine.Millisecond,
			10 * machine.Second},
		Rest: machine.Time(600) * machine.Second,
	}
}
