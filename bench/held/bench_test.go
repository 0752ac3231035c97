// Package held measures the held-open flow of document 000 through a real Envoy: windtunnel's EPP and model server
// compared with a minimal pair that only holds and injects, and the cost of thousands of held requests.
//
//	go test -run '^$' -bench . ./bench/held
package held

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
	"github.com/windtunnel/windtunnel/internal/gate"
	"github.com/windtunnel/windtunnel/live/envoy"
)

const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Why is the sky blue?"}]}`

func startEnvoy(b *testing.B, picker string, http2 bool) *envoy.Process {
	b.Helper()
	bin, err := envoy.Find(context.Background(), envoy.FindOptions{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := envoy.Start(context.Background(), bin, envoy.Config{Pools: []envoy.Pool{{Name: "default",
		Picker: envoy.Processor{Addresses: []string{picker}}, HTTP2: http2}}}, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Stop(context.Background()) })
	return p
}

// load sends n requests, at most c at once, and returns the time that they took.
func load(b *testing.B, client *http.Client, target string, n, c int) time.Duration {
	b.Helper()
	return rounds(b, n, c, func() func() error {
		return func() error { return post(client, target) }
	})
}

// rounds calls the functions that start returns n times in total, in c concurrent loops, and returns the time that
// they took.
func rounds(b *testing.B, n, c int, start func() func() error) time.Duration {
	b.Helper()
	var next atomic.Int64
	var failed atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range c {
		wg.Go(func() {
			once := start()
			for next.Add(1) <= int64(n) {
				if err := once(); err != nil {
					if failed.Add(1) == 1 {
						b.Log(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if f := failed.Load(); f > 0 {
		b.Fatalf("%d of %d requests failed", f, n)
	}
	return time.Since(began)
}

func post(client *http.Client, target string) error {
	resp, err := client.Post("http://"+target+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return whole(resp, text, `"metadata":`)
}

// whole checks an answer.
func whole(resp *http.Response, text []byte, has string) error {
	if resp.StatusCode != 200 || !bytes.Contains(text, []byte(has)) || !bytes.HasSuffix(text, []byte("[DONE]\n\n")) {
		return fmt.Errorf("%d %q", resp.StatusCode, text)
	}
	return nil
}

func client(c int, http2 bool) *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: c, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: t}
}

// BenchmarkAgainstReference sends 64 requests at once, without prefill time. Rounds of the two sides alternate, and
// the other side is paused. The figures are medians over rounds. The gates' aims are 1.15 and 0.95.
//
// Then each side gets the same number of requests per second, 40 % of the reference's maximum, and its picker is
// timed: from a request's last bytes at its socket to the answer's first bytes there. With 64 requests at once, all
// cores are busy and every picker's requests wait for a core, so the figure would describe the machine. At 40 %, the
// slower side has half of the cores. Late answers of the reference, which decides nothing, are also the machine's.
// The gate therefore allows one percent of late answers more than the reference has.
func BenchmarkAgainstReference(b *testing.B) {
	at, n, rounds := 64, 2000, 15
	if testing.Short() {
		n, rounds = 200, 1
	}
	type side struct {
		*child.Process
		gateway    *envoy.Process
		cpu, speed []float64
		took       times
	}
	var sides []*side
	cl := client(at, false)
	for _, role := range []string{"ours", "reference"} {
		c := child.Start(b, role, "1ns")
		s := &side{Process: c, gateway: startEnvoy(b, c.Addresses[0], false), took: times{}}
		sides = append(sides, s)
		load(b, cl, s.gateway.Addr, 500, at)
		s.Pause(b)
	}
	ours, ref := sides[0], sides[1]
	turns := func(count int, f func(*side)) {
		for range count {
			for _, s := range sides {
				s.Resume(b)
				load(b, cl, s.gateway.Addr, 100, at) // the first requests after a pause do not count
				f(s)
				s.Pause(b)
			}
		}
	}
	for b.Loop() {
		turns(rounds, func(s *side) {
			was := s.CPU(b)
			took := load(b, cl, s.gateway.Addr, n, at)
			s.cpu = append(s.cpu, float64((s.CPU(b)-was).Microseconds())/float64(n))
			s.speed = append(s.speed, float64(n)/took.Seconds())
		})
		rate := timedLoad * median(ref.speed)
		turns((rounds+2)/3, func(s *side) {
			was := processing(b, s.Addresses[1])
			paced(b, cl, s.gateway.Addr, n, at, rate)
			s.took.add(processing(b, s.Addresses[1]).less(was))
		})
	}
	for _, s := range sides {
		s.Resume(b)
	}
	b.Logf("CPU per request %.0f and %.0f µs, %.0f and %.0f requests/s; at %.0f requests/s p50 %.0f and %.0f µs, "+
		"within 1 ms %.2f and %.2f %%", median(ours.cpu), median(ref.cpu), median(ours.speed), median(ref.speed),
		timedLoad*median(ref.speed), 1e6*ours.took.quantile(.5), 1e6*ref.took.quantile(.5), ours.took.within(.001),
		ref.took.within(.001))
	b.ReportMetric(median(ours.cpu), "cpu-µs/req")
	b.ReportMetric(median(ref.cpu), "reference-cpu-µs/req")
	gate.AtMost(b, median(ratios(ours.cpu, ref.cpu)), "cpu-ratio", 1.5)
	b.ReportMetric(median(ours.speed), "req/s")
	gate.AtLeast(b, median(ratios(ours.speed, ref.speed)), "throughput-ratio", 0.8)
	gate.AtLeast(b, ours.took.within(0.001), "epp-within-1ms-%", ref.took.within(0.001)-1)
	b.ReportMetric(ref.took.within(0.001), "reference-within-1ms-%")
	b.ReportMetric(0, "ns/op")
}

// timedLoad is the fraction of the reference's maximum at which pickers are timed.
const timedLoad = 0.4

// paced sends n requests at a rate per second, at most c at once. A late answer does not delay the next request.
func paced(b *testing.B, client *http.Client, target string, n, c int, rate float64) {
	b.Helper()
	began := time.Now()
	var turn atomic.Int64
	rounds(b, n, c, func() func() error {
		return func() error {
			due := time.Duration(float64(turn.Add(1)) / rate * float64(time.Second))
			time.Sleep(due - time.Since(began))
			return post(client, target)
		}
	})
}

func ratios(a, c []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / c[i]
	}
	return out
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// BenchmarkHeldAtOnce holds thousands of requests at once on one Envoy, and reports the memory of each at every hop.
func BenchmarkHeldAtOnce(b *testing.B) {
	prefill := "30s"
	if testing.Short() {
		prefill = "3s"
	}
	for _, c := range []struct {
		n     int
		http2 bool
	}{{5000, false}, {10000, true}} {
		name := "http1"
		if c.http2 {
			name = "http2"
		}
		if testing.Short() {
			c.n = 160
		}
		b.Run(fmt.Sprintf("%d-%s", c.n, name), func(b *testing.B) {
			servers := child.Start(b, "servers", prefill+" 4")
			picker := child.Start(b, "picker", strings.Join(servers.Addresses, " "))
			gateway := startEnvoy(b, picker.Addresses[0], c.http2)
			cl := client(c.n, c.http2)
			if c.http2 {
				cl = nil // one connection carries too few streams; see clients
			}
			pids := map[string]int{"envoy": gateway.PID(), "epp": picker.PID(), "server": servers.PID()}
			before := map[string]int64{}
			for name, pid := range pids {
				before[name] = child.ResidentBytes(pid)
			}
			for b.Loop() {
				done := make(chan time.Duration, 1)
				go func() { done <- hold(b, cl, gateway.Addr, c.n) }()
				for deadline := time.Now().Add(25 * time.Second); ; {
					active, err := gateway.Active(context.Background())
					if err != nil {
						b.Fatal(err)
					}
					if active.Upstream == uint64(c.n) {
						break
					}
					if time.Now().After(deadline) {
						b.Fatalf("only %d requests were held at once", active.Upstream)
					}
				}
				for name, pid := range pids {
					b.ReportMetric(float64(child.ResidentBytes(pid)-before[name])/float64(c.n), name+"-B/held")
				}
				b.ReportMetric((<-done).Seconds(), "s/all")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// hold sends n requests at once, with one client or with one connection for every 80 requests.
func hold(b *testing.B, cl *http.Client, target string, n int) time.Duration {
	began := time.Now()
	if cl != nil {
		load(b, cl, target, n, n)
		return time.Since(began)
	}
	const perConnection = 80
	var wg sync.WaitGroup
	for range n / perConnection {
		wg.Go(func() { load(b, client(1, true), target, perConnection, perConnection) })
	}
	wg.Wait()
	return time.Since(began)
}
