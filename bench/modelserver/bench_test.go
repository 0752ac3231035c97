// Package modelserver measures the simulated model server against a bare
// net/http loop that sends canned bytes on absolute deadlines: CPU per streamed
// token, memory per stream, CPU per request without streaming.
//
// The server under test is a process of its own, this test binary run again, so
// that the client's work is not counted:
//
//	go test -bench . -benchtime 1x ./bench/modelserver
package modelserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/engine"
	"github.com/windtunnel/windtunnel/core/latency"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/live/modelserver"
)

const (
	envServer = "WINDTUNNEL_BENCH_SERVER"
	perToken  = 50 * time.Millisecond
	tokens    = 60
)

func TestMain(m *testing.M) {
	switch os.Getenv(envServer) {
	case "bare":
		serveBare()
	case "ours":
		serveOurs()
	case "fleet":
		serveFleet()
	default:
		os.Exit(m.Run())
	}
}

// serveBare is the baseline: parse nothing, sleep until each absolute deadline,
// write, flush.
func serveBare() {
	chunk := []byte(`data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"windtunnel","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n")
	whole := []byte(`{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1700000000,"model":"windtunnel","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat(" token", 16) + `"},"finish_reason":"length"}],"usage":{"prompt_tokens":10,"total_tokens":26,"completion_tokens":16}}`)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flush := w.(http.Flusher).Flush
		due := time.Now()
		timer := time.NewTimer(time.Hour)
		for range tokens {
			due = due.Add(perToken)
			timer.Reset(time.Until(due))
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
			_, _ = w.Write(chunk)
			flush()
		}
	})
	panic(http.Serve(l, handler))
}

func serveOurs() {
	itl, zero := latency.Fixed(machine.FromDuration(perToken)), latency.Fixed(0)
	o := modelserver.ServerOptions{Prefill: &itl, TokenTime: &itl, Engine: engine.Config{Batching: engine.BatchingIndependent}}
	fast := o
	fast.Prefill, fast.TokenTime = &zero, &zero
	f, err := modelserver.New(modelserver.Options{Servers: []modelserver.ServerOptions{o, fast}, Seed: 1})
	if err != nil {
		panic(err)
	}
	if err := f.Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(f.Addresses()[0], f.Addresses()[1])
	select {}
}

// serveFleet is 64 servers that batch as vLLM does, 50 ms per step.
func serveFleet() {
	var o modelserver.Options
	step := machine.FromDuration(perToken)
	for range 64 {
		o.Servers = append(o.Servers, modelserver.ServerOptions{Engine: engine.Config{
			Timer: latency.Constant{TimeToFirstToken: step, InterTokenLatency: step}}})
	}
	f, err := modelserver.New(o)
	if err != nil {
		panic(err)
	}
	if err := f.Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(strings.Join(f.Addresses(), " "))
	select {}
}

// process is a server in a process of its own.
type process struct {
	streaming, whole string
	addresses        []string
	pid              int
}

func run(b *testing.B, kind string) *process {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envServer+"="+kind)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(line)
	return &process{addresses: fields, streaming: fields[0], whole: fields[len(fields)-1], pid: cmd.Process.Pid}
}

// cpu is the process's user and system time so far.
func (p *process) cpu(b *testing.B) time.Duration {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "stat"))
	if err != nil {
		b.Skip("needs /proc:", err)
	}
	fields := strings.Fields(string(raw)[strings.LastIndexByte(string(raw), ')')+1:])
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // clock ticks of 100 Hz
}

// rss is the process's resident memory in bytes.
func (p *process) rss(b *testing.B) int {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "statm"))
	if err != nil {
		b.Skip("needs /proc:", err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(raw))[1])
	return pages * os.Getpagesize()
}

func request(stream bool, max int) string {
	body := fmt.Sprintf(`{"model":"windtunnel","messages":[{"role":"user","content":"Say something about wind."}],"max_tokens":%d,"stream":%v}`, max, stream)
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// streams runs n streams at once over connections of their own and returns how
// many bytes came.
func streams(b *testing.B, addr string, n int, midway func()) {
	raw := request(true, tokens)
	var started, done sync.WaitGroup
	started.Add(n)
	for range n {
		done.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				started.Done()
				b.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, raw)
			r := bufio.NewReaderSize(conn, 512)
			resp, err := http.ReadResponse(r, nil)
			started.Done()
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
			}
		})
	}
	started.Wait()
	midway()
	done.Wait()
}

func BenchmarkStream(b *testing.B) {
	for _, kind := range []string{"bare", "ours"} {
		for _, n := range []int{1000} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				p := run(b, kind)
				streams(b, p.streaming, 10, func() {})
				idle, before := p.rss(b), p.cpu(b)
				var perStream float64
				for b.Loop() {
					streams(b, p.streaming, n, func() { perStream = float64(p.rss(b)-idle) / float64(n) / 1024 })
				}
				used := p.cpu(b) - before
				b.ReportMetric(float64(used.Microseconds())/float64(b.N*n*tokens), "µs-cpu/token")
				b.ReportMetric(perStream, "KiB/stream")
			})
		}
	}
}

var mark = []byte(`"content":" `)

// gaps runs n streams over all servers and returns the times from each token
// to the next, as the client sees them.
func gaps(b *testing.B, addresses []string, n int) []time.Duration {
	raw := request(true, tokens)
	var mu sync.Mutex
	var all []time.Duration
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			conn, err := net.Dial("tcp", addresses[i%len(addresses)])
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, raw)
			// As cheap a client as can be: it shares the processors with the server.
			own := make([]time.Duration, 0, tokens)
			last, seen := time.Time{}, 0
			buf := make([]byte, 4<<10)
			kept := 0 // the end of what was read, shorter than what is looked for
			for {
				k, err := conn.Read(buf[kept:])
				if err != nil {
					b.Error(err)
					return
				}
				k += kept
				now := time.Now()
				for range bytes.Count(buf[:k], mark) {
					if seen++; seen > 1 {
						own = append(own, now.Sub(last))
					}
					last = now
				}
				if bytes.Contains(buf[:k], []byte("[DONE]")) {
					break
				}
				kept = copy(buf, buf[max(0, k-len(mark)+1):k])
			}
			if len(own) != tokens-1 {
				b.Errorf("a stream of %d tokens", len(own)+1)
			}
			mu.Lock()
			all = append(all, own...)
			mu.Unlock()
		})
	}
	done.Wait()
	slices.Sort(all)
	return all
}

// BenchmarkFleet is many streams over 64 servers in one process.
func BenchmarkFleet(b *testing.B) {
	for _, n := range []int{2000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p := run(b, "fleet")
			for b.Loop() {
				all := gaps(b, p.addresses, n)
				if len(all) == 0 {
					b.Fatal("no tokens")
				}
				p50, p99 := all[len(all)/2], all[len(all)*99/100]
				b.ReportMetric(float64(p50.Microseconds())/1000, "ms-p50")
				b.ReportMetric(float64(p99.Microseconds())/1000, "ms-p99")
				b.ReportMetric(float64(p99)/float64(max(p50, time.Millisecond)), "p99/p50")
			}
		})
	}
}

func BenchmarkWhole(b *testing.B) {
	const workers, each = 64, 300
	raw := request(false, 16)
	for _, kind := range []string{"bare", "ours"} {
		b.Run(kind, func(b *testing.B) {
			p := run(b, kind)
			before := p.cpu(b)
			for b.Loop() {
				var wg sync.WaitGroup
				for range workers {
					wg.Go(func() {
						conn, err := net.Dial("tcp", p.whole)
						if err != nil {
							b.Error(err)
							return
						}
						defer conn.Close()
						r := bufio.NewReader(conn)
						for range each {
							_, _ = io.WriteString(conn, raw)
							resp, err := http.ReadResponse(r, nil)
							if err != nil {
								b.Error(err)
								return
							}
							_, _ = io.Copy(io.Discard, resp.Body)
						}
					})
				}
				wg.Wait()
			}
			used := p.cpu(b) - before
			b.ReportMetric(float64(used.Microseconds())/float64(b.N*workers*each), "µs-cpu/request")
		})
	}
}
