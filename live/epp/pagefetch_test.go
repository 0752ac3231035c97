package epp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/wire/metrics"
)

func fetches(t *testing.T, url string, timeout time.Duration) func() string {
	t.Helper()
	f := newPageFetch(&http.Client{Timeout: timeout}, timeout, url)
	t.Cleanup(f.close)
	return func() string {
		page, err := f.page(context.Background())
		defer f.done()
		switch {
		case err != nil:
			return "error: " + err.Error()
		case len(page) > 100:
			return fmt.Sprintf("%d bytes", len(page))
		}
		return string(page)
	}
}

// Pages come in every way that a server may send them, over one connection as
// long as it lasts.
func TestPagesAreFetched(t *testing.T) {
	t.Parallel()
	var turn, connections atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/whole", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page ", turn.Add(1)) })
	mux.HandleFunc("/pieces", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			fmt.Fprint(w, i, ";")
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/closes", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "bye")
	})
	mux.HandleFunc("/long", func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 200_000))
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for line := strings.Repeat("x", 1<<20); ; {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/moved",
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/pieces?a=b", http.StatusFound) })
	mux.HandleFunc("/gone", func(w http.ResponseWriter,
		_ *http.Request) {
		http.Error(w, "no", http.StatusServiceUnavailable)
	})
	s := httptest.NewUnstartedServer(mux)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	for _, c := range []struct {
		path, want  string
		connections int64 // for three fetches
	}{
		{"/pieces", "0;1;2;", 1},
		{"/closes", "bye", 3},
		{"/long", "200000 bytes", 1},
		{"/endless", fmt.Sprint(metrics.MaxPageBytes+1, " bytes"), 3},
		{"/moved", `error: status 302: it redirects to "/pieces?a=b", and redirects are not followed`, 1},
		{"/gone", "error: status 503", 1},
		{"/none", "error: status 404", 1},
	} {
		before := connections.Load()
		get := fetches(t, s.URL+c.path, time.Minute)
		for range 3 {
			if got := get(); got != c.want {
				t.Errorf("%s: got %q, want %q", c.path, got, c.want)
			}
		}
		if n := connections.Load() - before; n != c.connections {
			t.Errorf("%s: %d connections, want %d", c.path, n, c.connections)
		}
	}
	get := fetches(t, s.URL+"/whole", time.Minute)
	for i := range 3 {
		if i == 2 {
			s.CloseClientConnections() // the next page comes over another connection
		}
		if got, want := get(), fmt.Sprint("page ", i+1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func wantNoLatePage(t *testing.T, got string) {
	t.Helper()
	if got == "page 1" || !strings.HasPrefix(got, "page ") && !strings.Contains(got, "timeout") {
		t.Errorf("got %q, want a timeout or a page that is not the late page 1", got)
	}
}

// An answer that comes after its time is never taken for the next one's, and
// what is no HTTP is an error.
func TestLatePagesAreLost(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var turn atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := turn.Add(1)
		if n == 1 {
			<-release
		}
		fmt.Fprint(w, "page ", n)
	}))
	t.Cleanup(s.Close)
	get := fetches(t, s.URL, 50*time.Millisecond)
	// On a busy machine a fetch may time out before the server sees it, and the server may see it during the next one.
	for turn.Load() == 0 {
		wantNoLatePage(t, get())
	}
	close(release)
	wantNoLatePage(t, get())

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
			c.Close()
		}
	}()
	if got := fetches(t, "http://"+l.Addr().String(), 5*time.Second)(); !strings.HasPrefix(got, "error:") {
		t.Errorf("got %q", got)
	}
}

// A scrape that is called off ends at once.
func TestFetchIsCalledOff(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(context.Background())
	f := newPageFetch(http.DefaultClient, time.Hour, s.URL)
	defer f.close()
	go func() {
		<-asked
		cancel()
	}()
	if _, err := f.page(ctx); err == nil {
		t.Error("no error")
	}
}

// One page from a server that costs nearly nothing, beside http.Client.
func BenchmarkPageFetch(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 20000\r\n\r\n%020000d",
		0)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for buf := make([]byte, 4096); ; { // a request comes in one piece here
					if n, err := c.Read(buf); err != nil || n == 0 {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	for name, fetch := range map[string]func(*pageFetch, context.Context) ([]byte, error){"own": (*pageFetch).page,
		"net-http": (*pageFetch).byClient} {
		b.Run(name, func(b *testing.B) {
			client := &http.Client{Timeout: time.Minute}
			defer client.CloseIdleConnections()
			f := newPageFetch(client, time.Minute, "http://"+l.Addr().String()+"/metrics")
			defer f.close()
			if err := f.prepare(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				page, err := fetch(f, b.Context())
				if err != nil || len(page) != 20000 {
					b.Fatal(len(page), err)
				}
				f.done()
			}
		})
	}
}
