package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/windtunnel/windtunnel/internal/exit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A port in use is an environment error, in any part.
func TestListen(t *testing.T) {
	t.Parallel()
	l, err := Listen("anything", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if port := l.Addr().(*net.TCPAddr).Port; port < firstPort || port >= firstPort+numPorts {
		t.Errorf("port %d may be taken while a part restarts", port)
	}
	_, err = Listen("metrics", l.Addr().String())
	if exit.Of(err) != exit.Environment || exit.HintOf(err) == "" || !strings.Contains(err.Error(), "metrics") ||
		!strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("%v, code %d, hint %q", err, exit.Of(err), exit.HintOf(err))
	}
}

// A part listens again at its own address even if its closed listener takes a moment to disappear.
func TestListenAgain(t *testing.T) {
	t.Parallel()
	old, err := Listen("a part", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := time.AfterFunc(50*time.Millisecond, func() { _ = old.Close() })
	defer closed.Stop()
	l, err := Listen("the part again", old.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// A failed listener stops the part and sets the process's exit code. A part that was asked to stop ends without one.
func TestUntil(t *testing.T) {
	t.Parallel()
	var g Group
	l, err := Listen("pages", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	g.Go("pages", func() error { return s.Serve(l) })
	stopped := 0
	stop := func(context.Context) error { stopped++; defer g.Wait(); return s.Close() }
	l.Close() // as if the system had closed it
	err = Until(t.Context(), time.Minute, g.Failed(), stop)
	if exit.Of(err) != exit.Broken || stopped != 1 || !strings.Contains(err.Error(), "pages") {
		t.Errorf("%v, code %d, stopped %d times", err, exit.Of(err), stopped)
	}

	var other Group
	if l, err = Listen("pages", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s2 := &http.Server{Handler: http.NotFoundHandler()}
	other.Go("pages", func() error { return s2.Serve(l) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = Until(ctx, time.Minute, other.Failed(), func(ctx context.Context) error {
		if ctx.Err() != nil {
			t.Error("no time was left to stop in")
		}
		defer other.Wait()
		return s2.Shutdown(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAdvertised(t *testing.T) {
	t.Parallel()
	env := func(ip string) func(string) (string, bool) {
		return func(name string) (string, bool) { return ip, name == "POD_IP" && ip != "" }
	}
	own := "127.0.0.1"
	for _, a := range OwnAddresses() {
		if a.IsGlobalUnicast() {
			own = a.String()
			break
		}
	}
	for _, c := range []struct{ listen, given, env, want string }{
		{"127.0.0.1", "", "", "127.0.0.1"}, {"10.0.0.7", "", "10.0.0.8", "10.0.0.7"},
		{"0.0.0.0", "", "10.0.0.8", "10.0.0.8"}, {"::", "", "fd00::1", "fd00::1"}, {"", "", "10.0.0.8", "10.0.0.8"},
		{"0.0.0.0", "decode-0.pods", "10.0.0.8", "decode-0.pods"}, {"127.0.0.1", "10.0.0.9", "", "10.0.0.9"},
		{"0.0.0.0", "", "", own}, {"::", "", "", own}, {"*", "", "", own},
	} {
		if got, err := Advertised(c.listen, c.given, env(c.env)); err != nil || got != c.want {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
	for _, bad := range []string{"10.0.0.1:80", "a/b", "a b", "http://a"} {
		if got, err := Advertised("0.0.0.0", bad, env("")); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
	if _, err := Advertised("0.0.0.0", "", env("nonsense")); err == nil {
		t.Error("POD_IP that is no address was taken")
	}
}

func TestLocalOnly(t *testing.T) {
	t.Parallel()
	tokens := NewTokens([]string{"one", "two"})
	h := LocalOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }),
		func(r *http.Request) bool { return tokens.Allow(r.Header.Get("Authorization")) }, "show a token")
	for _, c := range []struct {
		from string
		head []string
		want int
	}{
		{"127.0.0.1:1", nil, 200}, {"127.8.9.1:1", nil, 200}, {"[::1]:1", nil, 200}, {"[::ffff:127.0.0.1]:1", nil, 200},
		{"10.0.0.1:1", nil, 403}, {"[2001:db8::1]:1", nil, 403}, {"nonsense", nil, 403},
		{"127.0.0.1:1", []string{"X-Forwarded-For", "127.0.0.1, 127.0.0.2"}, 200},
		// a proxy on this machine, for a client elsewhere
		{"127.0.0.1:1", []string{"X-Forwarded-For", "127.0.0.1, 203.0.113.5"}, 403},
		{"127.0.0.1:1", []string{"X-Forwarded-For", "203.0.113.5", "X-Forwarded-For", "127.0.0.1"}, 403},
		{"127.0.0.1:1", []string{"X-Forwarded-For", "unknown"}, 403},
		{"127.0.0.1:1", []string{"Forwarded", "for=127.0.0.1"}, 403},
		{"10.0.0.1:1", []string{"X-Forwarded-For", "127.0.0.1"}, 403},
		{"127.0.0.1:1", []string{"Host", "rebound.example:8000"}, 403}, // its DNS name resolves to this machine
		{"127.0.0.1:1", []string{"Host", "127.0.0.1.rebound.example"}, 403},
		{"127.0.0.1:1", []string{"Host", "10.0.0.1"}, 403},
		{"127.0.0.1:1", []string{"Host", ""}, 403}, {"127.0.0.1:1", []string{"Host", "localhost.:1"}, 403},
		{"127.0.0.1:1", []string{"Host", "LOCALHOST"}, 200}, {"127.0.0.1:1", []string{"Host", "[::1]"}, 200},
		{"127.0.0.1:1", []string{"Host", "[::1]:8000"}, 200}, {"127.0.0.1:1", []string{"Host", "127.20.0.3:8000"}, 200},
		{"127.0.0.1:1", []string{"Origin", "https://elsewhere.example", "Sec-Fetch-Site", "cross-site"}, 403},
		{"10.0.0.1:1", []string{"Authorization", "Bearer two"}, 200},
		{"10.0.0.1:1", []string{"Authorization", "two"}, 403},
		{"10.0.0.1:1", []string{"Authorization", "Bearer "}, 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "/admin", nil)
		r.RemoteAddr, r.Host = c.from, "localhost:8000"
		for i := 0; i < len(c.head); i += 2 {
			if r.Header.Add(c.head[i], c.head[i+1]); c.head[i] == "Host" {
				r.Host = c.head[i+1]
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want || c.want == 403 && !strings.Contains(w.Body.String(), "show a token") {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
	if Tokens(nil).Allow("Bearer ") || NewTokens(nil).Allow("") {
		t.Error("no tokens allow somebody")
	}
}

func TestReadTokens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	if _, err := ReadTokens(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for text, ok := range map[string]bool{"": false, " \n": false, "one\n\ntwo\n": true,
		strings.Repeat("x", maxTokenFile+1): false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		tokens, err := ReadTokens(path)
		if (err == nil) != ok || ok &&
			(!tokens.Allow("Bearer one") || !tokens.Allow("Bearer two") || tokens.Allow("Bearer three")) {
			t.Errorf("%.10q: %v", text, err)
		}
	}
}

// echo reads a request's body and answers 408 if it is too slow. It keeps requests that are marked as whole open.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/held" {
		if r.ProtoMajor == 1 {
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
		first := make([]byte, 5)
		if _, err := io.ReadFull(r.Body, first); err != nil {
			http.Error(w, err.Error(), http.StatusRequestTimeout)
			return
		}
		BodyWhole(r)
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
	}
	all, err := io.ReadAll(r.Body)
	var slow *SlowBodyError
	if errors.As(err, &slow) {
		http.Error(w, err.Error(), http.StatusRequestTimeout)
		return
	}
	fmt.Fprintf(w, "%s %v", all, err)
}

// Slow or stopped bodies are cut, and the error names the limit. A body marked as whole may take any time, and so may
// the answer.
func TestBodyLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		limits BodyLimits
		path   string
		want   string
	}{
		{"trickles", BodyLimits{Idle: time.Hour, Total: 100 * time.Millisecond}, "/", "not whole after 100ms"},
		{"trickles below the pause", BodyLimits{Idle: 2 * time.Second, Total: 2200 * time.Millisecond}, "/",
			"not whole after 2.2s"},
		{"stops", BodyLimits{Idle: 50 * time.Millisecond, Total: time.Hour}, "/stops", "nothing came for 50ms"},
		{"never begins", BodyLimits{Idle: 50 * time.Millisecond, Total: time.Hour}, "/never", "nothing came for 50ms"},
		{"has no limits", BodyLimits{Idle: -1, Total: -1}, "/ends", "xxxxx"},
	} {
		for _, proto := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s over HTTP/%d", c.name, proto), func(t *testing.T) {
				t.Parallel()
				client, url := serveEcho(t, c.limits, proto)
				r, p := io.Pipe() // the client sees the pipe's end as soon as the answer is there
				done := make(chan struct{})
				go func() {
					defer close(done)
					tick := time.NewTicker(20 * time.Millisecond)
					defer tick.Stop()
					for i := 0; c.path != "/never" && (c.path != "/stops" || i < 1) &&
						(c.path != "/ends" || i < 5); i++ {
						if _, err := p.Write([]byte("x")); err != nil {
							return
						}
						<-tick.C
					}
					if c.path == "/ends" {
						p.Close()
					}
				}()
				resp, err := client.Post(url+c.path, "text/plain", r)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				r.Close()
				<-done
				if !strings.Contains(string(text), c.want) || (resp.StatusCode == 408) != (c.path != "/ends") {
					t.Errorf("%d %s", resp.StatusCode, text)
				}
			})
		}
	}
}

// A held request outlasts both limits once its first part has arrived. The default limit of thirty seconds works the
// same.
func TestHeldBodiesHaveNoLimit(t *testing.T) {
	t.Parallel()
	limits := BodyLimits{Idle: 2 * time.Second, Total: 2400 * time.Millisecond} // the first part arrives in time
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			t.Parallel()
			client, url := serveEcho(t, limits, proto)
			r, p := io.Pipe()
			go func() { _, _ = p.Write([]byte("first")) }()
			resp, err := client.Post(url+"/held", "text/plain", r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			// the limits pass for bodies that begin now
			for _, every := range []time.Duration{10 * time.Millisecond, time.Hour} {
				slow, pieces := io.Pipe()
				go func() {
					tick := time.NewTicker(every)
					defer tick.Stop()
					for _, err := pieces.Write([]byte("x")); err == nil; _, err = pieces.Write([]byte("x")) {
						select {
						case <-tick.C:
						case <-t.Context().Done():
							return
						}
					}
				}()
				cut, err := client.Post(url, "text/plain", slow)
				if err != nil || cut.StatusCode != http.StatusRequestTimeout {
					t.Fatal(cut, err)
				}
				cut.Body.Close()
				slow.Close()
			}
			go func() {
				_, _ = p.Write([]byte("second"))
				p.Close()
			}()
			if text, err := io.ReadAll(resp.Body); err != nil || !strings.HasPrefix(string(text), "second") {
				t.Errorf("%d %q %v", resp.StatusCode, text, err)
			}
		})
	}
	if d := (BodyLimits{}).withDefaults(); d.Idle != DefaultBodyIdle || d.Total != DefaultBodyTotal ||
		d.Idle >= d.Total || d.Idle < 10*time.Second {
		t.Errorf("%+v", d)
	}
}

// After a body was cut, its connection serves no further request, because the next bytes could be the rest of the
// body.
func TestCutBodyEndsItsConnection(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(BodyLimits{Idle: 30 * time.Millisecond}.Handler(http.HandlerFunc(echo)))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 408 {
		t.Fatal(resp, err)
	}
	if rest, err := io.ReadAll(r); err != nil || strings.Contains(string(rest), "HTTP/1.1") {
		t.Errorf("%q %v", rest, err)
	}
}

func serveEcho(t *testing.T, limits BodyLimits, proto int) (*http.Client, string) {
	t.Helper()
	s := httptest.NewUnstartedServer(limits.Handler(http.HandlerFunc(echo)))
	var p http.Protocols
	p.SetHTTP1(proto == 1)
	p.SetUnencryptedHTTP2(proto == 2)
	s.Config.Protocols = &p
	s.Start()
	t.Cleanup(s.Close)
	transport := &http.Transport{Protocols: &p}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, s.URL
}
