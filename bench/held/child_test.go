package held

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/bench/internal/child"
	core "github.com/windtunnel/windtunnel/core/epp"
	"github.com/windtunnel/windtunnel/core/epp/picker"
	"github.com/windtunnel/windtunnel/core/epp/stream"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver/engine"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/dist"
	"github.com/windtunnel/windtunnel/internal/gc"
	"github.com/windtunnel/windtunnel/live/cluster"
	"github.com/windtunnel/windtunnel/live/epp"
	"github.com/windtunnel/windtunnel/live/modelserver"
	"github.com/windtunnel/windtunnel/report"
	"github.com/windtunnel/windtunnel/report/recording"
)

func TestMain(m *testing.M) { child.Main(m, play) }

// play serves a role.
func play(role, arg string) ([]string, error) {
	gc.Serve() // the same for every role
	switch role {
	case "reference":
		return startReference()
	case "ours":
		prefill, err := dist.Parse(arg)
		if err != nil {
			return nil, err
		}
		servers, err := startServers(prefill, 4)
		if err != nil {
			return nil, err
		}
		picker, err := startPicker(servers)
		return append(picker, servers...), err
	case "servers":
		text, count, _ := strings.Cut(arg, " ")
		servers, err := strconv.Atoi(count)
		if err != nil {
			return nil, err
		}
		prefill, err := dist.Parse(text)
		if err != nil {
			return nil, err
		}
		return startServers(prefill, servers)
	case "canned":
		wait, err := time.ParseDuration(arg)
		if err != nil {
			return nil, err
		}
		return startCanned(64, wait)
	case "at-once":
		return startAtOnce(strings.Fields(arg))
	case "epp-alone":
		gc.Pick()
		return startStandalone(strings.Fields(arg), role)
	case "epp", "epp-recording", "epp-logging", "epp-inputs", "epp-unscraped":
		return startStandalone(strings.Fields(arg), role)
	case "picker":
		return startPicker(strings.Fields(arg))
	}
	return nil, fmt.Errorf("no such role: %s", role)
}

func startServers(prefill dist.Dist, n int) ([]string, error) {
	itl, err := dist.Parse("1ns")
	if err != nil {
		return nil, err
	}
	tokens, err := dist.ParseCount(strconv.Itoa(refTokens))
	if err != nil {
		return nil, err
	}
	o := modelserver.Options{Seed: 1}
	for range n {
		o.Servers = append(o.Servers,
			modelserver.ServerOptions{Models: []string{"m"},
				Engine:  engine.Config{Batching: engine.BatchingIndependent},
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
	var endpoints []*picker.Endpoint
	for _, at := range servers {
		e := cluster.NewEndpoint("default", at, at, nil)
		endpoints = append(endpoints, e)
	}
	w, page, err := newWatch()
	if err != nil {
		return nil, err
	}
	s, err := epp.StartStandalone(
		epp.StandaloneOptions{
			PickerOptions: epp.PickerOptions{ConfigName: "round robin",
				Config: []byte("plugins: [{type: round-robin-picker}]")},
			Fill:    func(k *epp.Picking) error { k.SetEndpoints(endpoints); return nil },
			Serving: epp.Serving{Address: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0", Wrap: w.over},
			Picking: epp.PickingOptions{Config: core.Config{Stream: stream.Config{Hold: true, MaxBodyBytes: 4 << 20,
				Deadline: 10 * machine.Second, HoldLimit: 600 * machine.Second, MetadataBytes: 32, Seed: 1}}}})
	if err != nil {
		return nil, err
	}
	return []string{s.Addr(), page}, nil
}

// startCanned serves a simulated model server's answers, including its whole metrics page, from memory. Beside a
// picker that is measured, model servers should cost little CPU, because they would run on other machines. Wait is
// the duration of an answer. The page's values change each time, as on a busy server.
func startCanned(n int, wait time.Duration) ([]string, error) {
	prefill, err := dist.Parse("1ns")
	if err != nil {
		return nil, err
	}
	real, err := startServers(prefill, 1)
	if err != nil {
		return nil, err
	}
	var answer []byte
	pages := make([][]byte, 8)
	for i := range pages {
		if answer, err = fetch(http.Post("http://"+real[0]+"/v1/chat/completions", "application/json",
			strings.NewReader(body))); err != nil {
			return nil, err
		}
		if pages[i], err = fetch(http.Get("http://" + real[0] + "/metrics")); err != nil {
			return nil, err
		}
	}
	var turn atomic.Uint64
	head := func(kind string, text []byte) []byte {
		return append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n", kind,
			len(text)), text...)
	}
	answer = head("text/event-stream", answer)
	for i, page := range pages {
		pages[i] = head("text/plain; version=0.0.4", page)
	}
	// net/http's server would cost several times as much.
	serve := func(c net.Conn) {
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			out := pages[turn.Add(1)%uint64(len(pages))]
			if r.Method == http.MethodPost {
				_, _ = io.Copy(io.Discard, r.Body)
				if out = answer; wait > 0 {
					time.Sleep(wait)
				}
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
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

// startStandalone starts windtunnel epp with these model servers and a scrape interval of 50 ms.
func startStandalone(servers []string, role string) ([]string, error) {
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
	w, page, err := newWatch()
	if err != nil {
		return nil, err
	}
	name := "-" // of the log of inputs
	o := epp.StandaloneOptions{
		PickerOptions: epp.PickerOptions{Config: fmt.Appendf(nil, standaloneConfig, f.Name()), ConfigName: "bench"},
		PoolOptions:   epp.PoolOptions{PoolName: "bench"},
		Serving:       epp.Serving{Address: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0", Wrap: w.over}}
	switch role {
	case "epp-alone":
		o.Wrap = nil // the watch keeps something of every stream
	case "epp-unscraped":
		o.RefreshMetrics = time.Hour
	case "epp-recording":
		o.History = 1000
	case "epp-logging":
		o.History = 1000
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	case "epp-inputs":
		dir, err := os.MkdirTemp("", "windtunnel-bench-")
		if err != nil {
			return nil, err
		}
		name = filepath.Join(dir, "inputs.ndjson")
		to, err := recording.CreateInputFiles(name, 1<<30, 1)
		if err != nil {
			return nil, err
		}
		o.Picking.Inputs = epp.NewInputLog(epp.InputLogOptions{Inputs: report.Inputs{To: to}})
	}
	p, err := epp.StartStandalone(o)
	if err != nil {
		return nil, err
	}
	return []string{p.Addr(), page, name}, nil
}
