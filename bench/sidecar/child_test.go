package sidecar

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/live/sidecar"
)

// What is measured runs in processes of its own, so that its CPU time is not
// the load generator's: this test binary, started again with a role.
const roleVar, argVar = "WINDTUNNEL_BENCH_ROLE", "WINDTUNNEL_BENCH_ARG"

// chunks of an answer, one each pace: far enough apart that no reader sees two
// at once.
const (
	chunks = 100
	pace   = 8 * time.Millisecond
)

var chunk = []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n")

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		if err := play(role, os.Getenv(argVar)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// play serves a role, prints its address, and then answers every line on
// standard input with the CPU time used so far, in nanoseconds.
func play(role, upstream string) error {
	address := ""
	switch role {
	case "sidecar":
		s, err := sidecar.Start(sidecar.Options{Listen: "127.0.0.1:0", Decoder: upstream})
		if err != nil {
			return err
		}
		address = s.Addr()
	default:
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		address = l.Addr().String()
		handler := http.Handler(http.HandlerFunc(answer))
		if role == "plain" {
			p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
			p.FlushInterval = -1
			p.Transport = &http.Transport{MaxIdleConnsPerHost: 1024}
			handler = inMemory(p)
		}
		go func() { _ = http.Serve(l, handler) }()
	}
	fmt.Println(address)
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

// inMemory gives the plain proxy bodies that are read already: with others it
// breaks connections under this load (see live/sidecar), and there would be
// nothing to compare with.
func inMemory(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		next.ServeHTTP(w, r)
	})
}

// answer streams, or answers a prefill leg.
func answer(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if bytes.Contains(text, []byte(`"do_remote_decode":true`)) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":{"remote_engine_id":"e"}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for range chunks {
		if _, err := w.Write(chunk); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		<-tick.C
	}
}

// child is a process with a role.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	address string
}

func startChild(b *testing.B, role, arg string) *child {
	b.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), roleVar+"="+role, argVar+"="+arg)
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
	c.address = c.line(b)
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
