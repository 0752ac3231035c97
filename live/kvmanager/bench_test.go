package kvmanager

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/live/kvevents"
)

// BenchmarkScore measures POST /api/v1/score for 100 blocks and 100 candidates over HTTP, on an idle manager and
// while a publisher sends events without a pause.
func BenchmarkScore(b *testing.B) {
	for _, c := range []struct {
		name  string
		burst bool
	}{{"quiet", false}, {"burst", true}} {
		b.Run(c.name, func(b *testing.B) {
			o := DefaultOptions()
			o.ZMQBind, o.HTTPAddress, o.Index.MaxBlocks = "tcp://127.0.0.1:0", "127.0.0.1:0", 0
			m, err := Start(o)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			ids := make([]uint32, 1600)
			hashes := make([]kv.EngineHash, 100)
			for i := range hashes {
				hashes[i] = kv.EngineHash(1<<40 + i)
			}
			var pods []string
			for i := range 100 {
				pods = append(pods, "10.0.0."+string(rune('0'+i/10))+string(rune('0'+i%10))+":8000")
			}
			pub := func(pod string) *kvevents.Publisher {
				p, err := kvevents.NewPublisher(
					kvevents.PublisherOptions{Topic: kv.Topic{Pod: pod, Model: "m"}, Connect: []string{m.ZMQEndpoint()},
						Interval: -1})
				if err != nil {
					b.Fatal(err)
				}
				for p.Stats().Subscribers == 0 {
					time.Sleep(time.Millisecond)
				}
				return p
			}
			for _, pod := range pods {
				p := pub(pod)
				p.Publish(kv.Event{Kind: kv.Stored, Hashes: hashes, Tokens: ids, BlockTokens: 16, Medium: kv.MediumGPU,
					Group: kv.NoGroup})
				p.Close()
			}
			for len(m.latest.Load().names) < len(pods) {
				time.Sleep(time.Millisecond)
			}
			stop := make(chan struct{})
			var done sync.WaitGroup
			if c.burst {
				done.Add(1)
				go func() {
					defer done.Done()
					p := pub("10.9.9.9:8000")
					defer p.Close()
					for i := uint32(1); ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						e := kv.Event{Kind: kv.Stored, Hashes: make([]kv.EngineHash, 256), Tokens: make([]uint32, 4096),
							BlockTokens: 16, Medium: kv.MediumGPU, Group: kv.NoGroup}
						for k := range e.Tokens {
							e.Tokens[k] = i*7919 + uint32(k)
						}
						for k := range e.Hashes {
							e.Hashes[k] = kv.EngineHash(uint64(i)<<32 + uint64(k) + 1<<60)
						}
						p.Publish(e)
						p.Publish(kv.Event{Kind: kv.Removed, Hashes: slices.Clone(e.Hashes), Medium: kv.MediumGPU,
							Group: kv.NoGroup})
					}
				}()
			}
			body, err := json.Marshal(map[string]any{"prompt": ids, "candidate_pods": pods})
			if err != nil {
				b.Fatal(err)
			}
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				at := time.Now()
				resp, err := http.Post("http://"+m.HTTPAddress()+"/api/v1/score", "application/json",
					strings.NewReader(string(body)))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				took = append(took, time.Since(at))
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			close(stop)
			done.Wait()
		})
	}
}
