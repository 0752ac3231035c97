// Command peers plays the same work in windtunnel's virtual time and in DynoSim 1.4.2, the fastest of the other
// simulators, alternating and several times. It prints the cost of each: the CPU seconds and the peak memory of the
// whole process, including start-up, which is also measured alone.
//
//	go run ./bench/peers                              # 50,000 requests, 64 and 1,024 pods
//	go run ./bench/peers -requests 500000 -rounds 3
//	go run ./bench/peers -requests 500000 -rounds 1 -alone
//
// DynoSim is a Python package. The first run installs a pinned version into windtunnel's cache. Without Python 3 the
// program reports an error and exits with 1. It is not part of make test. DynoSim's log level is set to warnings:
// otherwise its kv_router writes a line of 500 bytes for each request, which would count against it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/windtunnel/windtunnel/bench/internal/pickers"
)

// packages are DynoSim, and dependencies of its replay that it does not declare.
var packages = []string{"ai-dynamo==1.4.2", "ai-dynamo-runtime==1.4.2", "msgspec", "numpy", "pydantic", "pyyaml"}

// work is one row of the comparison. Both sides get requests of 512 input tokens and 128 output tokens, and 5
// arrivals per second for each pod.
type work struct {
	name    string
	pods    int
	router  string // DynoSim's
	plugins string // windtunnel's
	shared  bool   // prompts share beginnings, see shares
}

// shares gives 80 % of the prompts one of 100 beginnings of 256 tokens. DynoSim cannot mix prompts with and without
// shared beginnings: all of its prompts have one.
const shares = `
  classes:
    - {name: shared, share: 80%, prompt: {characters: 1024, shared: {groups: 100, characters: 1024}}}
    - {name: own, share: 20%, prompt: {characters: 2048}}
`

var works = []work{
	{"round robin", 64, "round_robin", pickers.RoundRobin, false},
	{"prefix + queue + KV", 64, "kv_router", pickers.Scored, false},
	{"round robin", 1024, "round_robin", pickers.RoundRobin, false},
	{"prefix + queue + KV", 1024, "kv_router", pickers.Scored, false},
	{"round robin, shared", 64, "round_robin", pickers.RoundRobin, true},
	{"scorers, shared", 64, "kv_router", pickers.Scored, true},
	{"round robin, shared", 1024, "round_robin", pickers.RoundRobin, true},
	{"scorers, shared", 1024, "kv_router", pickers.Scored, true},
}

// scenario returns the work as a scenario.
func (w *work) scenario(requests int) string {
	prompts := "\n  prompt: {characters: 2048}\n"
	if w.shared {
		prompts = shares
	}
	return fmt.Sprintf(`apiVersion: windtunnel/v1alpha1
kind: Scenario
name: %s, %d pods
seed: 1
pools:
  - name: default
    flow: plain
    replicas: %[2]d
    modelServer: {batching: continuous, accelerator: H100, outputTokens: 128, numGPUBlocks: 27000}
    epp:
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
%[3]s
workload:
  requests: %[4]d
  rate: %[5]d
  maxTokens: 128%[6]s`, w.name, w.pods, w.plugins, requests, 5*w.pods, prompts)
}

// dynosim returns the work as DynoSim's arguments.
func (w *work) dynosim(requests int) []string {
	args := []string{"-m", "dynamo.replay", "--replay-mode", "offline", "--router-mode", w.router,
		"--num-workers", strconv.Itoa(w.pods), "--input-tokens", "512", "--output-tokens", "128", "--request-count",
		strconv.Itoa(requests),
		"--request-rate", strconv.Itoa(5 * w.pods), "--extra-engine-args", `{"block_size":16,"num_gpu_blocks":27000}`}
	if w.shared {
		args = append(args, "--shared-prefix-ratio", "0.5", "--num-prefix-groups", "100")
	}
	return args
}

// cost is the cost of a process.
type cost struct {
	seconds float64 // of CPU
	mib     float64 // peak memory
}

func measure(ctx context.Context, dir, name string, args ...string) (cost, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), "DYN_LOG=warn"), &said, &said
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", name, err, said.Bytes()[max(0, said.Len()-2000):])
	}
	used := cmd.ProcessState
	rusage, ok := used.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, errors.New("this system does not report the cost of a process")
	}
	return cost{(used.UserTime() + used.SystemTime()).Seconds(), float64(rusage.Maxrss) / 1024}, nil
}

// median returns the median of the CPU times and the largest peak memory.
func median(list []cost) cost {
	slices.SortFunc(list, func(a, b cost) int { return cmp.Compare(a.seconds, b.seconds) })
	out := list[len(list)/2]
	for _, c := range list {
		out.mib = max(out.mib, c.mib)
	}
	return out
}

// install installs DynoSim if necessary, and returns the path of its Python.
func install(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "windtunnel", "dynosim-1.4.2")
	python, done := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return python, nil
	}
	fmt.Fprintln(os.Stderr, "installing DynoSim 1.4.2 into", dir)
	for _, line := range [][]string{
		{"python3", "-m", "venv", dir},
		append([]string{python, "-m", "pip", "install", "--quiet"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("%s: %w; Python 3 with venv and pip is needed", line[0], err)
		}
	}
	return python, os.WriteFile(done, nil, 0o600)
}

func run(ctx context.Context) error {
	requests := flag.Int("requests", 50_000, "number of requests per run")
	rounds := flag.Int("rounds", 3, "number of alternating runs of each side; the median is printed")
	pods := flag.Int("pods", 0, "only the rows with this many pods")
	alone := flag.Bool("alone", false, "measure only windtunnel")
	flag.Parse()
	if *requests < 1 || *rounds < 1 {
		return errors.New("-requests and -rounds must be 1 or more")
	}
	python, err := "", error(nil)
	if !*alone {
		if python, err = install(ctx); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "windtunnel-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	own := filepath.Join(dir, "windtunnel")
	if _, err := measure(ctx, ".", "go", "build", "-o", own,
		"github.com/windtunnel/windtunnel/cmd/windtunnel"); err != nil {
		return err
	}
	fmt.Printf("%-20s %5s  %22s", "", "pods", "windtunnel")
	if !*alone {
		fmt.Printf("  %22s  %8s", "DynoSim 1.4.2", "ratio")
	}
	fmt.Println()
	for i := range works {
		w := &works[i]
		if *pods != 0 && w.pods != *pods {
			continue
		}
		for _, n := range []int{1, *requests} {
			file := filepath.Join(dir, "scenario.yaml")
			if err := os.WriteFile(file, []byte(w.scenario(n)), 0o600); err != nil {
				return err
			}
			var ours, theirs []cost
			for range *rounds {
				a, err := measure(ctx, dir, own, "sim", file)
				if err != nil {
					return err
				}
				b := cost{}
				if python != "" {
					b, err = measure(ctx, dir, python, w.dynosim(n)...)
				}
				if err != nil {
					return err
				}
				ours, theirs = append(ours, a), append(theirs, b)
			}
			a, b := median(ours), median(theirs)
			name := w.name
			if n == 1 {
				name = "start-up alone"
			}
			fmt.Printf("%-20s %5d  %9.2f s %6.0f MiB", name, w.pods, a.seconds, a.mib)
			if !*alone {
				fmt.Printf("  %9.2f s %6.0f MiB  %7.1f×", b.seconds, b.mib, b.seconds/a.seconds)
			}
			fmt.Println()
		}
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}
