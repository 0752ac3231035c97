package epp

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// The ranks of a data-parallel server share an address; each publishes, and
// replays, as many ports further as it is ranks.
func TestRanksAreDialledAtTheirPorts(t *testing.T) {
	t.Parallel()
	pubs, socket, replay := rankPublishers(t)
	k := picking(t, strings.Replace(precise, "discoverPods: true",
		fmt.Sprintf("discoverPods: true, podDiscoveryConfig: {socketPort: %d, replaySocketPort: %d}", socket, replay),
		1), 0)
	var list []*picker.Endpoint
	for rank := range pubs {
		e := picker.NewEndpoint("default", fmt.Sprintf("pod-rank-%d", rank), "127.0.0.1", strconv.Itoa(8000+rank), nil)
		e.Rank = rank
		list = append(list, e)
	}
	tokens := make([]uint32, 64)
	for rank, p := range pubs { // before any subscriber listens: only a replay brings it
		p.Publish(kv.Event{Kind: kv.Stored, Hashes: []kv.EngineHash{7, 8}[:rank+1], Tokens: tokens[:16*(rank+1)],
			BlockTokens: 16, Medium: kv.MediumGPU, Group: kv.NoGroup})
	}
	k.SetEndpoints(list)
	waitUntil(t, "one block of rank 0 and two of rank 1", func() bool {
		held := k.KVState()[0].Blocks
		return len(held["127.0.0.1:8000"]) == 1 && len(held["127.0.0.1:8001"]) == 2
	})
}

// rankPublishers are two publishers on ports that follow one another, and so do
// those of their replays.
func rankPublishers(t *testing.T) (pubs []*kvevents.Publisher, socket, replay int) {
	open := func(events, replays string) *kvevents.Publisher {
		p, err := kvevents.NewPublisher(
			kvevents.PublisherOptions{Bind: "tcp://127.0.0.1:" + events, Replay: "tcp://127.0.0.1:" + replays,
				Topic: kv.Topic{Pod: "any", Model: "m"}, Interval: -1})
		if err != nil {
			return nil
		}
		t.Cleanup(p.Close)
		return p
	}
	port := func(endpoint string) int {
		_, p, _ := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
		n, _ := strconv.Atoi(p)
		return n
	}
	for range 100 {
		a := open("0", "0")
		socket, replay = port(a.Endpoint()), port(a.ReplayEndpoint())
		if b := open(strconv.Itoa(socket+1), strconv.Itoa(replay+1)); b != nil {
			return []*kvevents.Publisher{a, b}, socket, replay
		}
	}
	t.Fatal("no two ports in a row are free")
	return nil, 0, 0
}
