// Package dynamo measures what a request costs with each way of placing Dynamo's router behind the gateway (document
// 001, docs/dynamo.md), compared with a plain Service of the same model servers. Sockets and Envoy are real.
//
//	go test -run '^$' -bench . ./bench/dynamo
package dynamo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
	"github.com/windtunnel/windtunnel/internal/gate"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/live/stack"
	"github.com/windtunnel/windtunnel/scenario"
)

func TestMain(m *testing.M) { child.Main(m, play) }

// arrangement is one way from a client to a model server.
type arrangement struct {
	name string
	text string // of the scenario
}

const plain = `apiVersion: windtunnel/v1alpha1
kind: Scenario
pools:
  - name: dynamo
    model: llama-3.1-8b
    replicas: 4
    modelServer: {batching: continuous, accelerator: H100, numGPUBlocks: 8000, maxModelLen: 8192}
    epp: {replicas: %d}
`

// arrangements are a plain Service, an endpoint picker without remote questions, and the examples.
func arrangements() ([]arrangement, error) {
	out := []arrangement{{"service", fmt.Sprintf(plain, 0)}, {"picker", fmt.Sprintf(plain, 1)}}
	for _, name := range []string{"plugin", "sidecar", "callout", "direct", "graph", "service"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "examples", "dynamo-"+name+".yaml"))
		if err != nil {
			return nil, err
		}
		out = append(out, arrangement{"dynamo-" + name, string(text)})
	}
	return out, nil
}

// play starts the stack of an arrangement, given its directory and its scenario, with model servers that compute in
// no time. It returns the gateway's address and the id of Envoy's process.
func play(_, arg string) ([]string, error) {
	gc.Serve()
	dir, text, _ := strings.Cut(arg, "\n")
	const computes = "accelerator: H100"
	if !strings.Contains(text, computes) {
		return nil, fmt.Errorf("the scenario has no %q to replace", computes)
	}
	s, err := scenario.Parse("bench.yaml",
		[]byte(strings.ReplaceAll(text, computes, "prefill: 1ns, interTokenLatency: 1ns")))
	if err != nil {
		return nil, err
	}
	st, err := stack.Start(context.Background(), stack.Options{Scenario: s, Dir: dir})
	if err != nil {
		return nil, err
	}
	return []string{st.Gateway.Addr, strconv.Itoa(st.Gateway.PID())}, nil
}

// prompts returns prompts of 1,600 tokens. As in the examples, most of each prompt is one of 100 shared beginnings.
func prompts(n int) (out []string) {
	rng := rand.New(rand.NewPCG(1, 1))
	letters := func(n int) string {
		text := make([]byte, n)
		for i := range text {
			text[i] = "abcdefghijklmnopqrstuvwxyz     "[rng.IntN(31)]
		}
		return string(text)
	}
	var beginnings []string
	for range 100 {
		beginnings = append(beginnings, letters(6000))
	}
	for range n {
		out = append(out, fmt.Sprintf(
			`{"model":"llama-3.1-8b","stream":true,"max_tokens":16,"messages":[{"role":"user","content":%q}]}`,
			beginnings[rng.IntN(100)]+letters(400)))
	}
	return out
}

// side is one arrangement being measured.
type side struct {
	arrangement
	*child.Process
	took []float64     // of each request, in microseconds
	cpu  time.Duration // of all requests, of Envoy and the stack
}

func start(b *testing.B, a arrangement) *side {
	return &side{arrangement: a, Process: child.Start(b, a.name, b.TempDir()+"\n"+a.text)}
}

func (s *side) used(b *testing.B) time.Duration {
	pid, err := strconv.Atoi(s.Addresses[1])
	if err != nil {
		b.Fatal(err)
	}
	return s.CPU(b) + child.CPUOf(pid)
}

func (s *side) ask(b *testing.B, client *http.Client, body string) {
	began := time.Now()
	resp, err := client.Post("http://"+s.Addresses[0]+"/v1/chat/completions", "application/json",
		strings.NewReader(body))
	if err != nil {
		b.Fatalf("%s: %v", s.name, err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !bytes.HasSuffix(text, []byte("[DONE]\n\n")) {
		b.Fatalf("%s: %d %.300q (%v)", s.name, resp.StatusCode, text, err)
	}
	s.took = append(s.took, float64(time.Since(began).Microseconds()))
}

// The benchmark sends one request after the other, alternating between the arrangements, so that other load on the
// machine affects all of them.
func BenchmarkArrangements(b *testing.B) {
	n, rounds := 200, 10
	if testing.Short() {
		n, rounds = 10, 1
	}
	list, err := arrangements()
	if err != nil {
		b.Fatal(err)
	}
	var sides []*side
	for _, a := range list {
		sides = append(sides, start(b, a))
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	bodies := prompts(n)
	for b.Loop() {
		for round := range rounds + 1 {
			for _, s := range sides {
				was := s.used(b)
				for _, body := range bodies {
					s.ask(b, client, body)
				}
				if round > 0 { // connections are open and caches are warm
					s.cpu += s.used(b) - was
				} else {
					s.took = nil
				}
			}
		}
	}
	base := sides[0]
	perRequest := func(s *side) float64 { return float64(s.cpu.Microseconds()) / float64(len(s.took)) }
	median := func(s *side) float64 { slices.Sort(s.took); return s.took[len(s.took)/2] }
	for _, s := range sides {
		b.Logf("%-15s %5.0f µs (%+5.0f), CPU %5.0f µs, %.2f × the plain Service's", s.name, median(s),
			median(s)-median(base), perRequest(s), perRequest(s)/perRequest(base))
		b.ReportMetric(median(s)/median(base), "x-plain/"+s.name)
		b.ReportMetric(perRequest(s)/perRequest(base), "x-cpu/"+s.name)
	}
	at := func(name string) float64 {
		return perRequest(sides[slices.IndexFunc(sides, func(s *side) bool { return s.name == name })])
	}
	if !testing.Short() { // Envoy's CPU time has a resolution of 10 ms
		gate.AtMost(b, at("dynamo-plugin")/at("dynamo-sidecar"), "plugin-cpu-of-sidecar's", 1)
	}
	b.ReportMetric(0, "ns/op")
}
