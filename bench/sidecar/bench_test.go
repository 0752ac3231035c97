// Package sidecar measures the routing sidecar against Go's plain reverse
// proxy, both before the same streaming server and in one run.
//
//	go test -run '^$' -bench . ./bench/sidecar
package sidecar

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
)

const body = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Why is the sky blue?"}]}`

// load is c streams at once, n of them after one another, and the times from
// each request to its first byte.
func load(b *testing.B, target string, n, c int, head ...string) []time.Duration {
	b.Helper()
	way := &http.Transport{MaxIdleConnsPerHost: c}
	defer way.CloseIdleConnections()
	client := &http.Client{Transport: way}
	var mu sync.Mutex
	var firsts []time.Duration
	var failed error
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for range n {
				first, err := stream(client, target, head)
				mu.Lock()
				firsts = append(firsts, first)
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		b.Fatal(failed)
	}
	slices.Sort(firsts)
	return firsts
}

func stream(client *http.Client, target string, head []string) (time.Duration, error) {
	req, err := http.NewRequest(http.MethodPost, "http://"+target+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var one [1]byte
	if _, err := io.ReadFull(resp.Body, one[:]); err != nil {
		return 0, err
	}
	first := time.Since(began)
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != 200 || n+1 != int64(chunks*len(chunk)) {
		return 0, fmt.Errorf("%d, %d bytes: %w", resp.StatusCode, n+1, err)
	}
	return first, nil
}

// BenchmarkStreaming: 64 streams at once through either proxy, rounds taking
// turns. The figures are medians over rounds.
//
// Gate: cpu-ratio, the sidecar's CPU per streamed chunk over that of
// httputil.ReverseProxy, at most 1.3.
func BenchmarkStreaming(b *testing.B) {
	const at, rounds = 64, 7
	upstream := child.Start(b, "upstream", "")
	sides := map[string]*child.Process{"sidecar": child.Start(b, "sidecar", upstream.Addresses[0]), "plain": child.Start(b, "plain", upstream.Addresses[0])}
	cpu := map[string][]float64{}
	firsts := map[string][]time.Duration{}
	for _, s := range sides {
		load(b, s.Addresses[0], 1, at)
	}
	for b.Loop() {
		for range rounds {
			for _, name := range []string{"sidecar", "plain"} {
				s := sides[name]
				was := s.CPU(b)
				firsts[name] = append(firsts[name], load(b, s.Addresses[0], 1, at)...)
				cpu[name] = append(cpu[name], float64((s.CPU(b)-was).Nanoseconds())/(at*chunks))
			}
			firsts["direct"] = append(firsts["direct"], load(b, upstream.Addresses[0], 1, at)...)
			// A prefill leg goes before: the same server answers it.
			firsts["prefill"] = append(firsts["prefill"], load(b, sides["sidecar"].Addresses[0], 1, at, "x-prefiller-host-port", upstream.Addresses[0])...)
		}
	}
	ratio := make([]float64, len(cpu["plain"]))
	for i := range ratio {
		ratio[i] = cpu["sidecar"][i] / cpu["plain"][i]
	}
	b.ReportMetric(median(cpu["sidecar"]), "cpu-ns/chunk")
	b.ReportMetric(median(cpu["plain"]), "plain-cpu-ns/chunk")
	b.ReportMetric(median(ratio), "cpu-ratio")
	for name, list := range firsts {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds()), name+"-first-byte-p50-µs")
		b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), name+"-first-byte-p99-µs")
	}
	b.ReportMetric(0, "ns/op")
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
