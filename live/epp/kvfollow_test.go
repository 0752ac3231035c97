package epp

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/internal/eventually"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

const precise = `
plugins:
- {type: endpoint-notification-source}
- {type: precise-prefix-cache-producer, parameters: {kvEventsConfig: {discoverPods: true}}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: prefix-cache-scorer}]}
dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}
`

// The index dials a new endpoint, drops an endpoint that leaves with its blocks, and begins without blocks for one that
// comes back. It warns once of blocks of another size than the picker's.
func TestIndexFollowsThePool(t *testing.T) {
	log := &lockedBuffer{}
	publishers := map[string]*kvevents.Publisher{}
	k := picking(t, precise, 0, func(o *PickingOptions) {
		o.Log = slog.New(slog.NewTextHandler(log, nil))
		o.KV.Publisher = func(e *picker.Endpoint) (string, string) { return publishers[e.Name].Endpoint(), "" }
	})
	endpoints := func(names ...string) {
		var list []*picker.Endpoint
		for i, name := range names {
			list = append(list, picker.NewEndpoint("default", name, "127.0.0.1", "800"+string(rune('0'+i)), nil))
		}
		k.SetEndpoints(list)
	}
	publisher := func(name, pod string) *kvevents.Publisher {
		p, err := kvevents.NewPublisher(
			kvevents.PublisherOptions{Bind: "tcp://127.0.0.1:0", Topic: kv.Topic{Pod: pod, Model: "m"}, Interval: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		publishers[name] = p
		return p
	}
	publisher("a", "127.0.0.1:8000")
	publisher("b", "127.0.0.1:8001")
	endpoints("a")
	store := func(p *kvevents.Publisher, hash kv.EngineHash) {
		waitUntil(t, "a subscriber", func() bool { return p.Stats().Subscribers > 0 })
		tokens := make([]uint32, 64)
		for i := range tokens {
			tokens[i] = uint32(hash) + uint32(i)
		}
		p.Publish(kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{hash}, Tokens: tokens, BlockTokens: 64,
			Medium: kv.MediumGPU, Group: kv.NoGroup})
	}
	held := func(pod string) int { return len(k.KVState()[0].Blocks[pod]) }

	store(publishers["a"], 1)
	store(publishers["a"], 1000)
	waitUntil(t, "the blocks of a", func() bool { return held("127.0.0.1:8000") == 8 })
	endpoints("a", "b")
	store(publishers["b"], 2000)
	waitUntil(t, "the blocks of b", func() bool { return held("127.0.0.1:8001") == 4 })

	endpoints("a")
	if n := held("127.0.0.1:8001"); n != 0 {
		t.Errorf("b has left, and %d of its blocks stay", n)
	}
	waitUntil(t, "b's line to be cut", func() bool { return publishers["b"].Stats().Subscribers == 0 })
	endpoints("a", "b")
	store(publishers["b"], 3000)
	waitUntil(t, "the new blocks of b", func() bool { return held("127.0.0.1:8001") == 4 })
	if n := held("127.0.0.1:8000"); n != 8 {
		t.Errorf("a holds %d blocks after all that, expected 8", n)
	}
	text := log.String()
	if strings.Count(text, "disagree") != 3 ||
		!strings.Contains(text, "picker_block_tokens=16 engine_block_tokens=64") ||
		!strings.Contains(text, "blockSizeTokens to 64") {
		t.Errorf("expected one warning for each pod's life about the size of blocks: %s", text)
	}
	d := k.testAsk(context.Background(), chat(1), hello)
	if d.answer != nil {
		t.Errorf("refused: %s", d.answer.Body)
	}
	d.leave()
}

func waitUntil(t *testing.T, what string, there func() bool) {
	t.Helper()
	eventually.Is(t, what, there)
}
