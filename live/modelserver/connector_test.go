package modelserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/enginecore"
	"github.com/windtunnel/windtunnel/core/modelserver/latency"
	"github.com/windtunnel/windtunnel/core/modelserver/lifecycle"
	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// ethernet10 takes 50 ms and more for a cache of 512 tokens of 128 KiB.
var ethernet10 = func() link.Wire { w, _ := link.WireNamed("ethernet-10"); return w }()

// connected is a pair of batching servers that a connector joins by a wire.
func connected(t *testing.T, profile link.Profile, nic link.Wire) (*pair, func() []record.Event) {
	t.Helper()
	timer, err := latency.New(
		latency.Config{Kind: latency.KindConstant,
			Constant: latency.Constant{TimeToFirstToken: machine.Millisecond, InterTokenLatency: machine.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	o := ServerOptions{Models: []string{"m"}, Steps: lifecycle.WholeSteps,
		Engine: engine.Config{Timer: timer, ReportSteps: true}}
	var mu sync.Mutex
	var events []record.Event
	f, err := New(Options{Servers: []ServerOptions{o, o}, Seed: 1,
		Transfer: enginecore.NetworkConfig{Profile: profile, NIC: nic},
		Recorder: record.Func(func(e record.Event) { mu.Lock(); events = append(events, e); mu.Unlock() })})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		f.Stop(ctx)
	})
	return &pair{t, f, f.Servers()[0], f.Servers()[1]},
		func() []record.Event { mu.Lock(); defer mu.Unlock(); return append([]record.Event(nil), events...) }
}

// prompt is 512 tokens or a little more that no other prompt begins with.
func longPrompt(n int) string { return fmt.Sprintf("%d ", n) + strings.Repeat("wind ", 520) }

// longestPause is between a step's end and the next one's beginning, at one
// server.
func longestPause(events []record.Event, endpoint string) machine.Time {
	var last, longest machine.Time
	for _, e := range events {
		if e.Step != record.EngineStep || e.Endpoint != endpoint {
			continue
		}
		began := e.Time - machine.Time(e.Details.Get("took_us").(float64)*1e3)
		if last > 0 {
			longest = max(longest, began-last)
		}
		last = e.Time
	}
	return longest
}

// Each connector of document 003 takes the time that core/kv/link gives it, and
// only NIXL v1 keeps the prefill server's engine from its next step.
func TestConnectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile link.Profile
		blocks  bool
	}{{connector.NIXLv2.Profile, false}, {connector.NIXLv2.Profile.Compressed(), false},
		{connector.NIXLv2.Profile.Pipelined(), false}, {connector.NIXLv1.Profile, true}, {link.TCP, false},
		{connector.LMCache.Profile, false}} {
		name := fmt.Sprintf("%s-%d-bits-%d-permille", c.profile.Name, c.profile.CompressBits,
			c.profile.PipelinePermille)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, events := connected(t, c.profile, ethernet10)
			// Somebody decodes on the prefill server all the while.
			busy, stop := context.WithCancel(t.Context())
			defer stop()
			go func() {
				req, _ := http.NewRequestWithContext(busy, http.MethodPost, p.prefill.URL()+"/v1/completions",
					strings.NewReader(`{"prompt":"x","max_tokens":8000,"ignore_eos":true}`))
				if resp, err := http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}()
			p.waitFor("it decodes", func() (running bool) {
				p.prefill.engine.With(func(machine.Time) { running = p.prefill.engine.Core.Busy() > 0 })
				return running
			})
			prompts := 0
			transfer := func() {
				prompts++
				prompt := `{"prompt":` + strconvQuote(longPrompt(prompts)) + `,"max_tokens":`
				pre := p.ask(p.prefill, prompt+`1,`+remoteDecode+`}`)
				if pre.status != 200 {
					t.Fatal(pre.body)
				}
				if dec := p.ask(p.decode, prompt+`3,"kv_transfer_params":`+string(pre.KV)+`}`); dec.status != 200 {
					t.Fatal(dec.body)
				}
				p.waitFor("the prefill server's blocks are free", func() bool { return p.held() == 0 })
				p.ask(p.prefill, `{"prompt":"another","max_tokens":1}`) // ends the run of steps, so that it is recorded
			}
			transfer()
			if c.blocks { // an engine that hears late of a transfer hears of its end at once, and does not pause
				p.waitFor("a step begins after a pause", func() bool {
					if longestPause(events(), p.prefill.Address()) > 0 {
						return true
					}
					transfer()
					return false
				})
			}
			least := alone(t, c.profile, int64(said(t, p.decode, saidBytes)))
			if said(t, p.decode, saidSeconds) < least.Seconds() {
				t.Errorf("the transfer took %v s; alone on the wire it takes %v", said(t, p.decode, saidSeconds), least)
			}
			took := machine.Time(said(t, p.decode, saidSeconds) * float64(machine.Second))
			if pause := longestPause(events(), p.prefill.Address()); !c.blocks && pause > 0 || pause > took+
				machine.Microsecond {
				t.Errorf("the prefill server's engine paused for %v; the transfer took %v", pause, took)
			}
		})
	}
}

// alone is how long so many bytes on the wire take until decoding may begin.
func alone(t *testing.T, profile link.Profile, bytes int64) machine.Time {
	t.Helper()
	topology, err := link.NewTopology(link.TopologyConfig{Nodes: 2, NIC: ethernet10, Store: ethernet10})
	if err != nil {
		t.Fatal(err)
	}
	n, err := link.New(topology.Links())
	if err != nil {
		t.Fatal(err)
	}
	profile.CompressBits = 0 // these are bytes on the wire
	start, err := profile.Transfer(topology, 1, 0, 1, bytes)
	if err != nil {
		t.Fatal(err)
	}
	var fx link.Effects
	n.Input(0, start, &fx)
	n.Advance(machine.Never-1, &fx)
	for _, f := range fx.List {
		if f.Kind == link.Usable || f.Kind == link.Arrived {
			return f.At
		}
	}
	t.Fatal("nothing arrived")
	return 0
}

// Transfers that cross one wire share it: four caches at once are there when
// all their bytes fit through it, and not before.
func TestContention(t *testing.T) {
	t.Parallel()
	p, _ := connected(t, connector.NIXLv2.Profile, ethernet10)
	var handed []json.RawMessage
	for i := range 4 {
		pre := p.ask(p.prefill, `{"prompt":`+strconvQuote(longPrompt(i))+`,"max_tokens":1,`+remoteDecode+`}`)
		if pre.status != 200 {
			t.Fatal(pre.body)
		}
		handed = append(handed, pre.KV)
	}
	began := time.Now()
	var all sync.WaitGroup
	for i, kv := range handed {
		all.Go(func() {
			if dec := p.ask(p.decode,
				`{"prompt":`+strconvQuote(longPrompt(i))+`,"max_tokens":1,"kv_transfer_params":`+
					string(kv)+`}`); dec.status != 200 {
				t.Error(dec.body)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if least := said(t, p.decode, saidBytes) / float64(ethernet10.BytesPerSecond); took.Seconds() < least {
		t.Fatalf("%.0f bytes in %v; the wire alone takes %v s", said(t, p.decode, saidBytes), took, least)
	}
}

// A decode server that crashes while a cache is on its way hangs up: nothing moves
// any more, it waits for nothing, and the prefill server's blocks are free when
// their time is up.
func TestCrashDuringTransfer(t *testing.T) {
	t.Parallel()
	// A cache of 512 tokens takes 4 s and more over this wire.
	p, _ := connected(t, connector.NIXLv1.Profile, link.Wire{BytesPerSecond: 2 * link.MinBandwidth})
	pre := p.ask(p.prefill, `{"prompt":`+strconvQuote(longPrompt(1))+`,"max_tokens":1,`+remoteDecode+`}`)
	if pre.status != 200 {
		t.Fatal(pre.body)
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		if dec := p.ask(p.decode,
			`{"prompt":`+strconvQuote(longPrompt(1))+`,"max_tokens":3,"kv_transfer_params":`+
				string(pre.KV)+`}`); dec.status != 500 {
			t.Errorf("%d %s", dec.status, dec.body)
		}
	})
	moves := p.fleet.network.InFlight
	p.waitFor("the cache is on its way", func() bool { return moves() == 1 })
	if err := p.decode.Fail(engine.Control{Op: engine.OpCrash}); err != nil {
		t.Fatal(err)
	}
	p.waitFor("nothing moves, and the decode server waits for nothing", func() bool {
		busy := 0
		p.decode.engine.With(func(machine.Time) { busy = p.decode.engine.Core.Busy() })
		return moves() == 0 && busy == 0
	})
	answers.Wait()
	if p.held() != 1 {
		t.Errorf("%d caches are held", p.held())
	}
}
