package virtual

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/pickers"
	"github.com/windtunnel/windtunnel/internal/gate"
)

// at is the directory in which windtunnel is built, once.
var at string

func TestMain(m *testing.M) {
	var err error
	if at, err = os.MkdirTemp("", "windtunnel-bench-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(at)
	os.Exit(code)
}

// program returns the path of windtunnel, and builds it if necessary.
func program(b *testing.B) string {
	b.Helper()
	exe := filepath.Join(at, "windtunnel")
	if _, err := os.Stat(exe); err == nil {
		return exe
	}
	if out, err := exec.Command("go", "build", "-o", exe, "../../cmd/windtunnel").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return exe
}

// cost is the cost of a process: CPU seconds, wall seconds and peak memory in MB, with the number of completed
// requests.
type cost struct {
	cpu, wall, mb float64
	completed     int
}

// play runs windtunnel in a directory, with additional environment variables.
func play(b *testing.B, exe, dir string, env []string, args ...string) cost {
	b.Helper()
	cmd := exec.Command(exe, args...)
	var said, complained bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &said, &complained
	began := time.Now()
	if err := cmd.Run(); err != nil {
		b.Fatalf("windtunnel %v: %v\n%s", args, err, complained.Bytes())
	}
	c := cost{wall: time.Since(began).Seconds(),
		cpu: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.mb = float64(used.Maxrss) / 1000
	}
	for line := range strings.Lines(said.String()) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "outcomes" && f[1] == "completed" {
			c.completed, _ = strconv.Atoi(strings.ReplaceAll(f[2], ",", "")) // the caller notices 0
		}
	}
	return c
}

// pool describes a scenario's pool.
type pool struct {
	servers string // the lines of a pool that define its servers
	output  int
	scored  bool
}

// scenario writes a scenario into a directory.
func scenario(b *testing.B, dir string, p pool, workload string) string {
	b.Helper()
	epp := ""
	if !strings.Contains(p.servers, "disaggregation") { // disaggregated servers have their own picker
		plugins := pickers.RoundRobin
		if p.scored {
			plugins = pickers.Scored
		}
		epp = `    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
` + plugins + "\n"
	}
	file := filepath.Join(dir, "scenario.yaml")
	text := fmt.Sprintf(`apiVersion: windtunnel/v1alpha1
kind: Scenario
name: measured
seed: 1
pools:
  - name: default
%s
    modelServer: {batching: continuous, accelerator: H100, outputTokens: %d, numGPUBlocks: 27000, maxModelLen: 131072}
%sworkload:
%s`, p.servers, p.output, epp, workload)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

const plain = "    flow: plain\n    replicas: %d"

// steady is a workload of so many requests of 512 tokens that arrive at a rate.
func steady(requests, rate, output int) string {
	return fmt.Sprintf("  requests: %d\n  rate: %d\n  maxTokens: %d\n  prompt: {characters: 2048}\n", requests, rate,
		output)
}

// size returns n, or a hundredth of it in a short run.
func size(n int) int {
	if testing.Short() {
		return n / 100
	}
	return n
}

// middleOf returns the run with the median CPU time.
func middleOf(list []cost) cost {
	slices.SortFunc(list, func(x, y cost) int {
		if x.cpu < y.cpu {
			return -1
		}
		return 1
	})
	return list[len(list)/2]
}

// BenchmarkMooncake plays 100,000 requests of the shape of Mooncake's conversation trace on 16 servers with the
// scorers of llm-d's guides. It checks that nothing of the trace was cut.
func BenchmarkMooncake(b *testing.B) {
	exe, dir, n := program(b), b.TempDir(), size(100_000)
	f, err := os.Create(filepath.Join(dir, "mooncake.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	if err := mooncake(f, n); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	file := scenario(b, dir, pool{fmt.Sprintf(plain, 16), 128, true},
		"  trace: {file: mooncake.jsonl, format: mooncake}\n")
	var list []cost
	for b.Loop() {
		list = append(list, play(b, exe, dir, nil, "sim", file))
	}
	c := middleOf(list)
	gate.AtMost(b, c.cpu, "CPU-s", 5)
	gate.AtMost(b, float64(n-c.completed), "requests-cut", 0)
	b.ReportMetric(c.mb, "MB")
	b.ReportMetric(0, "ns/op")
}

// simulated plays so many requests at a rate per second. It checks that all of them are answered, within 1 GB.
func simulated(b *testing.B, requests, servers, rate int, scored bool) cost {
	b.Helper()
	exe, dir := program(b), b.TempDir()
	file := scenario(b, dir, pool{fmt.Sprintf(plain, servers), 128, scored}, steady(requests, rate, 128))
	var list []cost
	for b.Loop() {
		list = append(list, play(b, exe, dir, nil, "sim", file))
	}
	c := middleOf(list)
	gate.AtMost(b, c.mb, "MB", 1000)
	gate.AtLeast(b, float64(c.completed), "completed", float64(requests))
	b.ReportMetric(0, "ns/op")
	return c
}

// BenchmarkPods plays 100,000 requests on 10,000 servers. The picker scrapes each of them 20 times per second.
func BenchmarkPods(b *testing.B) {
	gate.AtMost(b, simulated(b, size(100_000), 10_000, 50_000, true).cpu, "CPU-s", 20)
}

// ratio plays two scenarios in turns and returns the second one's CPU time divided by the first one's.
func ratio(b *testing.B, of [2]func(dir string) string) float64 {
	exe := program(b)
	var lists [2][]cost
	for b.Loop() {
		for range 5 {
			for i, f := range of {
				dir := b.TempDir()
				lists[i] = append(lists[i], play(b, exe, dir, nil, "sim", f(dir)))
			}
		}
	}
	first, second := middleOf(lists[0]), middleOf(lists[1])
	b.ReportMetric(first.cpu, "first-CPU-s")
	b.ReportMetric(second.cpu, "second-CPU-s")
	b.ReportMetric(0, "ns/op")
	return second.cpu / first.cpu
}

// BenchmarkOutputLength compares answers of 1,024 tokens with answers of 128, at the same rate.
func BenchmarkOutputLength(b *testing.B) {
	n := size(100_000)
	play := func(output int) func(dir string) string {
		return func(dir string) string {
			return scenario(b, dir, pool{fmt.Sprintf(plain, 64), output, false}, steady(n, 160, output))
		}
	}
	gate.AtMost(b, ratio(b, [2]func(string) string{play(128), play(1024)}), "ratio", 1.2)
}

// BenchmarkDisaggregated compares requests that are prefilled on one server and decoded on another with requests that
// stay on one server. The former are read and computed by two servers, and also send a sidecar's legs and a KV cache.
func BenchmarkDisaggregated(b *testing.B) {
	n := size(20_000)
	play := func(servers string) func(dir string) string {
		return func(dir string) string {
			return scenario(b, dir, pool{servers, 128, true}, steady(n, 160, 128))
		}
	}
	gate.AtMost(b, ratio(b, [2]func(string) string{play(fmt.Sprintf(plain, 64)),
		play("    replicas: 32\n    sidecar: routing\n    disaggregation: {prefillReplicas: 32, connector: nixlv2}")}),
		"ratio", 5)
}

// BenchmarkSweep plays 16 runs on one core and on two.
func BenchmarkSweep(b *testing.B) {
	exe, dir := program(b), b.TempDir()
	file := scenario(b, dir, pool{fmt.Sprintf(plain, 64), 128, true}, steady(size(50_000), 320, 128))
	var one, two float64
	for b.Loop() {
		for cores, wall := range map[int]*float64{1: &one, 2: &two} {
			*wall += play(b, exe, dir, []string{fmt.Sprintf("GOMAXPROCS=%d", cores)}, "sweep", file, "--vary",
				"workload.rate=20,40,60,80,100,120,140,160,180,200,220,240,260,280,300,320").wall
		}
	}
	gate.AtLeast(b, one/two, "times-one-core", 1.8)
	b.ReportMetric(one/float64(b.N), "one-core-s")
	b.ReportMetric(two/float64(b.N), "two-cores-s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLarge plays 10,000,000 requests on 64 servers. It takes minutes: make bench-large.
func BenchmarkLarge(b *testing.B) {
	if os.Getenv("WINDTUNNEL_BENCH_LARGE") == "" {
		b.Skip("it takes minutes: make bench-large")
	}
	b.ReportMetric(simulated(b, size(10_000_000), 64, 320, false).cpu, "CPU-s")
}
