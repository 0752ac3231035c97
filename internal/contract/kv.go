package contract

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/machine"
)

func indexes(t *rapid.T) Kind[kv.Message, *kv.Effects] {
	span := func(label string) machine.Time {
		return machine.Time(rapid.SampledFrom([]int{0, 5, 30, 90}).Draw(t, label)) * machine.Second
	}
	cfg := kv.Config{Hasher: kv.Hasher{BlockTokens: 1}, TTL: span("TTL"), CleanupInterval: span("cleanup"), StaleAfter: span("stale"), ForgetAfter: span("forget"),
		MaxBlocks: rapid.SampledFrom([]int{0, 5}).Draw(t, "blocks"), MaxPods: rapid.SampledFrom([]int{0, 2}).Draw(t, "pods"), Orphans: 4}
	pod := rapid.SampledFrom([]string{"a", "b", "c"})
	keys := func(t *rapid.T) (keys []kv.Key) {
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			keys = append(keys, kv.Key(rapid.IntRange(1, 8).Draw(t, "key")))
		}
		return keys
	}
	event := rapid.Custom(func(t *rapid.T) kv.Event {
		e := kv.Event{Kind: rapid.SampledFrom([]kv.Kind{kv.Stored, kv.Stored, kv.Stored, kv.Removed, kv.Cleared, kv.Heartbeat, kv.Updated}).Draw(t, "kind"),
			Medium: rapid.SampledFrom([]string{kv.MediumGPU, kv.MediumCPU}).Draw(t, "medium"), Group: kv.NoGroup, BlockTokens: 1,
			Parent: kv.EngineHash(rapid.IntRange(0, 8).Draw(t, "parent")), ByName: rapid.IntRange(0, 5).Draw(t, "by name") == 0}
		for range rapid.IntRange(1, 3).Draw(t, "blocks") {
			e.Hashes = append(e.Hashes, kv.EngineHash(rapid.IntRange(1, 8).Draw(t, "hash")))
			e.Tokens = append(e.Tokens, rapid.Uint32Range(1, 2).Draw(t, "token"))
		}
		return e
	})
	return Kind[kv.Message, *kv.Effects]{
		Make: func() Instance[kv.Message, *kv.Effects] {
			ix := kv.NewIndex(cfg)
			return Instance[kv.Message, *kv.Effects]{Machine: ix, Effects: new(kv.Effects), Say: Plainly[kv.Effect], State: func() string {
				s := fmt.Sprintf("%+v %+v", ix.State(), ix.Stats())
				for _, name := range ix.PodNames() {
					p, _ := ix.Pod(name)
					s += fmt.Sprintf(" %+v %x", p, ix.Keys(name))
				}
				return s
			}}
		},
		Message: func(t *rapid.T, _ machine.Time) kv.Message {
			switch rapid.IntRange(0, 8).Draw(t, "message") {
			case 0:
				return kv.Asked{Pod: pod.Draw(t, "pod"), Keys: keys(t), Found: rapid.IntRange(0, 4).Draw(t, "found")}
			case 1:
				return kv.Speculate{Pod: pod.Draw(t, "pod"), Keys: keys(t), TTL: rapid.SampledFrom([]machine.Time{0, 5 * machine.Second, 30 * machine.Second}).Draw(t, "speculation")}
			case 2:
				return kv.DropBlocks{Pod: pod.Draw(t, "pod")}
			case 3:
				return kv.DropPod{Pod: pod.Draw(t, "pod")}
			}
			return &kv.Events{From: kv.Topic{Pod: pod.Draw(t, "pod"), Model: "m"}, List: rapid.SliceOfN(event, 0, 3).Draw(t, "events")}
		},
		Spans: []machine.Time{machine.Second, 5 * machine.Second, 30 * machine.Second},
		Rest:  machine.Time(3600) * machine.Second,
	}
}

func feeds(t *rapid.T) Kind[kv.FeedMessage, *kv.FeedEffects] {
	cfg := kv.FeedConfig{Gaps: rapid.SampledFrom([]kv.Gaps{kv.GapsDrop, kv.GapsReplay, kv.GapsReplay, kv.GapsIgnore}).Draw(t, "gaps"),
		Probe:        rapid.SampledFrom([]machine.Time{-1, 300 * machine.Millisecond}).Draw(t, "probe"),
		HoldMessages: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "hold")}
	return Kind[kv.FeedMessage, *kv.FeedEffects]{
		Make: func() Instance[kv.FeedMessage, *kv.FeedEffects] {
			return Instance[kv.FeedMessage, *kv.FeedEffects]{Machine: kv.NewFeed(cfg), Effects: new(kv.FeedEffects), Say: Plainly[kv.FeedEffect]}
		},
		Message: func(t *rapid.T, _ machine.Time) kv.FeedMessage {
			m := kv.FeedMessage{Kind: rapid.SampledFrom([]kv.FeedMessageKind{kv.Live, kv.Live, kv.Live, kv.Connected, kv.Replayed, kv.Replayed, kv.ReplayEnded}).Draw(t, "message"),
				Seq: rapid.Uint64Range(0, 9).Draw(t, "number"), Whole: rapid.Bool().Draw(t, "whole")}
			m.Payload = fmt.Appendf(nil, "life %d, message %d", rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "life"), m.Seq)
			return m
		},
		Spans: []machine.Time{machine.Millisecond, 50 * machine.Millisecond, 300 * machine.Millisecond, 10 * machine.Second},
		Rest:  machine.Time(600) * machine.Second,
	}
}
