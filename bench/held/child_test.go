package held

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/roundrobin"
	"github.com/windtunnel/windtunnel/core/stream"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

// What is measured runs in processes of its own, so that its CPU time and
// memory are not the load generator's: this test binary, started again with a
// role.
const roleVar = "WINDTUNNEL_BENCH_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role, os.Getenv("WINDTUNNEL_BENCH_ARG")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// play serves a role, prints its addresses on one line, and then answers every
// line on standard input with the CPU time used so far, in nanoseconds.
func play(role, arg string) error {
	gc.Serve() // every role alike
	var addresses []string
	switch role {
	case "reference":
		p, u, err := startReference()
		if err != nil {
			return err
		}
		addresses = []string{p, u}
	case "ours":
		prefill, err := latency.ParseDist(arg)
		if err != nil {
			return err
		}
		servers, err := startServers(prefill, 4)
		if err != nil {
			return err
		}
		picker, err := startPicker(servers)
		if err != nil {
			return err
		}
		addresses = append(picker, servers...)
	case "servers":
		text, count, _ := strings.Cut(arg, " ")
		servers, err := strconv.Atoi(count)
		if err != nil {
			return err
		}
		prefill, err := latency.ParseDist(text)
		if err != nil {
			return err
		}
		if addresses, err = startServers(prefill, servers); err != nil {
			return err
		}
	case "canned":
		wait, err := time.ParseDuration(arg)
		if err != nil {
			return err
		}
		if addresses, err = startCanned(64, wait); err != nil {
			return err
		}
	case "standalone":
		s, err := startStandalone(strings.Fields(arg))
		if err != nil {
			return err
		}
		addresses = []string{s.Addr(), s.MetricsAddr()}
	case "picker":
		var err error
		if addresses, err = startPicker(strings.Fields(arg)); err != nil {
			return err
		}
	}
	fmt.Println(strings.Join(addresses, " "))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(time.Duration(u.Utime.Nano() + u.Stime.Nano()).Nanoseconds())
	}
	return in.Err()
}

func startServers(prefill latency.Dist, n int) ([]string, error) {
	itl, err := latency.ParseDist("1ns")
	if err != nil {
		return nil, err
	}
	tokens, err := latency.ParseCount(strconv.Itoa(refTokens))
	if err != nil {
		return nil, err
	}
	o := modelserver.Options{Seed: 1}
	for range n {
		o.Servers = append(o.Servers, modelserver.ServerOptions{Models: []string{"m"}, Engine: engine.Config{Batching: engine.BatchingIndependent},
			Prefill: &prefill, TokenTime: &itl, OutputTokens: &tokens})
	}
	f, err := modelserver.New(o)
	if err != nil {
		return nil, err
	}
	if err := f.Start(context.Background()); err != nil {
		return nil, err
	}
	return f.Addresses(), nil
}

func startPicker(servers []string) ([]string, error) {
	began := time.Now()
	picker := roundrobin.New(stream.OpenAIErrors, servers, servers)
	turn := make(chan struct{}, 1)
	s, err := epp.Start(epp.Options{Address: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0",
		Stream: stream.Config{Hold: true, MaxBodyBytes: 4 << 20, Deadline: 10 * machine.Second, HoldLimit: 600 * machine.Second, MetadataBytes: 32, Seed: 1},
		Now:    func() machine.Time { return machine.FromDuration(time.Since(began)) },
		Director: epp.DirectorFunc(func(_ context.Context, r *epp.Request) stream.Decision {
			turn <- struct{}{}
			defer func() { <-turn }()
			return picker.Pick(r.Head, r.Body)
		})})
	if err != nil {
		return nil, err
	}
	return []string{s.Addr(), s.MetricsAddr()}, nil
}

// startCanned serves what a simulated model server answers, its whole metrics
// page included, from memory: beside a picker that is measured, model servers
// should cost as little as on machines of their own. wait is how long an
// answer takes.
func startCanned(n int, wait time.Duration) ([]string, error) {
	prefill, err := latency.ParseDist("1ns")
	if err != nil {
		return nil, err
	}
	real, err := startServers(prefill, 1)
	if err != nil {
		return nil, err
	}
	page, err := fetch(http.Get("http://" + real[0] + "/metrics"))
	if err != nil {
		return nil, err
	}
	answer, err := fetch(http.Post("http://"+real[0]+"/v1/chat/completions", "application/json", strings.NewReader(body)))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/plain; version=0.0.4")
		_, _ = w.Write(page)
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-time.After(wait)
		w.Header().Set("content-type", "text/event-stream")
		_, _ = w.Write(answer)
	})
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		go func() { _ = http.Serve(l, mux) }()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

func fetch(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// standaloneConfig is the real EPP's default: three scorers.
const standaloneConfig = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {name: disc, type: file-discovery, parameters: {path: %q}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
dataLayer: {discovery: {pluginRef: disc}}
`

// startStandalone is windtunnel epp over these model servers, each of which it
// scrapes every 50 ms.
func startStandalone(servers []string) (*epp.Standalone, error) {
	var file strings.Builder
	file.WriteString("endpoints:\n")
	for i, s := range servers {
		host, port, _ := strings.Cut(s, ":")
		fmt.Fprintf(&file, "- {name: s%d, address: %s, port: %q}\n", i, host, port)
	}
	f, err := os.CreateTemp("", "endpoints-*.yaml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(file.String()); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return epp.StartStandalone(epp.StandaloneOptions{Config: fmt.Appendf(nil, standaloneConfig, f.Name()), ConfigName: "bench", PoolName: "bench",
		Address: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0"})
}

// child is a process with a role.
type child struct {
	cmd       *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Scanner
	addresses []string
}

func startChild(b *testing.B, role, arg string) *child {
	b.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, "WINDTUNNEL_BENCH_ARG="+arg)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.in.Close()
		_ = c.cmd.Wait() // it ends with its input
	})
	c.addresses = strings.Fields(c.line(b))
	return c
}

func (c *child) line(b *testing.B) string {
	b.Helper()
	if !c.out.Scan() {
		b.Fatalf("the process ended: %v", c.out.Err())
	}
	return c.out.Text()
}

// cpu is the CPU time that the process has used.
func (c *child) cpu(b *testing.B) time.Duration {
	b.Helper()
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		b.Fatal(err)
	}
	n, err := strconv.ParseInt(c.line(b), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n)
}

// residentBytes is a process's memory, from /proc; 0 where there is none.
func residentBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err == nil {
				return kb << 10
			}
		}
	}
	return 0
}
