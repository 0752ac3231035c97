// Package sidecar measures the routing sidecar compared with a minimal implementation of the same work, in front of
// the same server: Go's plain reverse proxy for forwarding, and for prefill and decode that proxy behind a handler
// that calls the prefill server first.
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
	"github.com/windtunnel/windtunnel/internal/gate"
)

const (
	streamBody = `{"model":"m","stream":true,"messages":[{"role":"user","content":"Why is the sky blue?"}]}`
	wholeBody  = `{"model":"m","messages":[{"role":"user","content":"Why is the sky blue?"}]}`
)

// load runs c clients at once with n consecutive requests each, and returns the times from each request to its first
// byte.
func load(b *testing.B, target, body string, n, c int, head ...string) []time.Duration {
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
				first, err := ask(client, target, body, head)
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

func ask(client *http.Client, target, body string, head []string) (time.Duration, error) {
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
	want := int64(len(answer))
	if body == streamBody {
		want = int64(chunks * len(chunk))
	}
	if err != nil || resp.StatusCode != 200 || n+1 < want { // the sidecar's answer contains the durations of its legs
		return 0, fmt.Errorf("%d, %d bytes: %w", resp.StatusCode, n+1, err)
	}
	return first, nil
}

// compare sends the same requests through the sidecar and through the baseline in alternating rounds. It reports the
// medians over rounds of the CPU time for each of per units of one round, their ratio, and the times to the first
// byte.
func compare(b *testing.B, baseline, body string, n, at, per int, unit string, limit float64, prefill bool) {
	b.Helper()
	rounds := 7
	if testing.Short() {
		rounds = 1
	}
	upstream := child.Start(b, "upstream", "")
	var head []string
	if prefill {
		head = []string{"x-prefiller-host-port", upstream.Addresses[0]} // the same server handles both legs
	}
	names := []string{"sidecar", baseline}
	sides, cpu, firsts := map[string]*child.Process{}, map[string][]float64{}, map[string][]time.Duration{}
	for _, name := range names {
		sides[name] = child.Start(b, name, upstream.Addresses[0])
		load(b, sides[name].Addresses[0], body, 1, at, head...)
	}
	for b.Loop() {
		for range rounds {
			for _, name := range names {
				s := sides[name]
				was := s.CPU(b)
				firsts[name] = append(firsts[name], load(b, s.Addresses[0], body, n, at, head...)...)
				cpu[name] = append(cpu[name], float64((s.CPU(b)-was).Nanoseconds())/float64(per))
			}
			if !prefill {
				firsts["direct"] = append(firsts["direct"], load(b, upstream.Addresses[0], body, n, at)...)
			}
		}
	}
	ratio := make([]float64, rounds)
	for i := range ratio {
		ratio[i] = cpu["sidecar"][i] / cpu[baseline][i]
	}
	b.ReportMetric(median(cpu["sidecar"]), "cpu-ns/"+unit)
	b.ReportMetric(median(cpu[baseline]), baseline+"-cpu-ns/"+unit)
	gate.AtMost(b, median(ratio), "cpu-ratio", limit)
	for name, list := range firsts {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds()), name+"-first-byte-p50-µs")
		b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), name+"-first-byte-p99-µs")
	}
	b.ReportMetric(0, "ns/op")
}

const at = 64 // requests at once

// BenchmarkStreaming measures the sidecar's CPU per streamed chunk.
func BenchmarkStreaming(b *testing.B) {
	compare(b, "plain", streamBody, 1, at, at*chunks, "chunk", 1.3, false)
}

// BenchmarkRequest measures the sidecar's CPU per forwarded request with an answer in one piece.
func BenchmarkRequest(b *testing.B) {
	n := 30
	if testing.Short() {
		n = 2
	}
	compare(b, "plain", wholeBody, n, at, n*at, "request", requestLimit, false)
}

// BenchmarkPrefillDecode measures the sidecar's CPU per request with a prefill leg and a decode leg (connector NIXL
// v2), compared with a handler that only does these two.
func BenchmarkPrefillDecode(b *testing.B) {
	n := 20
	if testing.Short() {
		n = 2
	}
	compare(b, "plain-pd", wholeBody, n, at, n*at, "request", requestLimit, true)
}

// requestLimit is the gate for whole requests. The work per request (bodies, headers, spans, log lines) weighs more
// in them than in chunks.
const requestLimit = 1.5

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
