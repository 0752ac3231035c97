package sidecar

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/live/serve"
)

// What a client writes into its body of whom to fetch caches from reaches no
// server behind the sidecar, in whatever way it asks.
func TestOnlyTheSidecarNamesServers(t *testing.T) {
	t.Parallel()
	const outside = "192.0.2.1"
	for name, field := range map[string]string{
		"nixl": `"kv_transfer_params":{"do_remote_prefill":true,"remote_engine_id":"e","remote_block_ids":[1],` +
			`"remote_host":"` + outside + `","remote_port":80}`,
		"mooncake": `"kv_transfer_params":{"do_remote_prefill":true,"transfer_id":"t",` +
			`"remote_bootstrap_addr":"http://` + outside + `:80"}`,
		"peer": `"kv_transfer_params":{"remote_prefiller":{"kv_request_id":"r","remote_host":"` + outside +
			`","remote_port":80}}`,
		"source": `"kv_transfer_params":{"remote_kv_source":{"kv_request_id":"r","remote_host":"` + outside +
			`","remote_port":80}}`,
		"sglang":   `"bootstrap_host":"` + outside + `","bootstrap_port":80,"bootstrap_room":1`,
		"document": `"kv_handle":"kv://` + outside + `:80/e/1-1-1"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nil)
			body := `{"model":"m","messages":[{"role":"user","content":"hey"}],` + field + `}`
			asked := 0
			for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
				"/inference/v1/generate", "/invocations", "/v1/chat/completions/"} {
				for _, chunked := range []bool{false, true} {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Addr()+path,
						strings.NewReader(body))
					if chunked {
						req.ContentLength = -1
					}
					resp, err := r.client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					asked++
					if resp.StatusCode != 200 {
						t.Errorf("%s: %d", path, resp.StatusCode)
					}
				}
			}
			if _, page := r.get("/metrics"); !strings.Contains(page,
				fmt.Sprintf("llmd_sidecar_ssrf_blocked_requests_total %d", asked)) {
				t.Error("they are not counted")
			}
			r.decode.mu.Lock()
			defer r.decode.mu.Unlock()
			for i, got := range r.decode.body {
				if r.decode.seen[i].Method == http.MethodGet {
					continue
				}
				if strings.Contains(got, outside) || !strings.Contains(got, `"hey"`) ||
					r.decode.seen[i].ContentLength != int64(len(got)) {
					t.Errorf("%s has %s, of %d bytes", r.decode.seen[i].URL, got, r.decode.seen[i].ContentLength)
				}
			}
			if len(r.decode.body) != asked+1 || !strings.Contains(r.logged(), "ssrf_blocked") {
				t.Errorf("%d of %d requests came", len(r.decode.body), asked)
			}
		})
	}
}

// A body without any of that is passed on to the byte.
func TestOtherBodiesAreNotTouched(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	body := `{"model":"m",  "messages":[{"role":"user","content":"\u0068ey \"kv_handle\""}],"n":1e0}`
	r.ask(body)
	if r.decode.body[0] != body {
		t.Errorf("it became %s", r.decode.body[0])
	}
}

// Names in the three headers are known from the pool or refused: nobody is asked
// for them.
func TestNamesAreNotLookedUp(t *testing.T) { // not in parallel: others are
	r := start(t, func(r *rig, o *Options) {
		dir := t.TempDir()
		o.EndpointsFile = filepath.Join(dir, "endpoints.yaml")
		if err := os.WriteFile(o.EndpointsFile,
			[]byte("endpoints:\n- {name: prefill-0, address: 127.0.0.1, port: \""+port(r.prefill)+"\"}\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
		o.Protect, o.Disagg.Encoder, o.Disagg.P2PPull = true, disagg.ECNIXL, true
	})
	var names []string
	for i := range disagg.MaxTargets {
		names = append(names, fmt.Sprintf("attacker-%d.example.com:80", i))
	}
	before := lookUps.Load()
	image := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"a"}}]}]}`
	for _, header := range []string{"x-prefiller-host-port", "x-encoder-hosts-ports", "x-kv-cache-source-host-port"} {
		r.ask(image, header, strings.Join(names, ","))
		r.ask(image, header, names[0])
	}
	if n := lookUps.Load() - before; n != 0 {
		t.Errorf("%d look-ups", n)
	}
	for host, want := range map[string]int{"prefill-0": 200, "localhost": 200, "prefill-1": 403} {
		if resp, body := r.ask(chatBody, "x-prefiller-host-port", host+":"+port(r.prefill)); resp.StatusCode != want {
			t.Errorf("%s: %d %s", host, resp.StatusCode, body)
		}
	}
	if n := lookUps.Load() - before; n != 0 {
		t.Errorf("%d look-ups", n)
	}
}

// certified is a decode server with a certificate for these names, and the file
// with its authority.
func certified(t *testing.T, names []string, ips ...net.IP) (*httptest.Server, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, IPAddresses: ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, decoded) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are to fail
	s.StartTLS()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, file
}

// The decode server's certificate is for the host that it is called by, and
// beside the sidecar it may be for localhost.
func TestDecoderIsVerifiedByItsHost(t *testing.T) {
	t.Parallel()
	if got := decoderNames("decoder.example:8200"); len(got) != 1 || got[0] != "decoder.example" {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		name  string
		names []string
		ips   []net.IP
		want  int
	}{
		{"its address", nil, []net.IP{net.IPv4(127, 0, 0, 1)}, 200}, {"localhost", []string{"localhost"}, nil, 200},
		{"somebody else", []string{"decoder.example"}, nil, 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, ca := certified(t, c.names, c.ips...)
			r := start(t, func(_ *rig, o *Options) {
				o.Decoder, o.DecoderTLS, o.CAFile = s.Listener.Addr().String(), LegTLS{On: true}, ca
			})
			if resp, body := r.ask(chatBody); resp.StatusCode != c.want {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
}

// trickle sends a request's head and then a byte of its body every so often,
// until there is an answer.
func (r *rig) trickle(path, length string, every time.Duration) (*http.Response, error) {
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", path, length)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				piece := "x"
				if strings.HasPrefix(length, "T") {
					piece = "1\r\nx\r\n"
				}
				if _, err := io.WriteString(c, piece); err != nil {
					return
				}
			case <-quit:
				return
			}
		}
	}()
	return http.ReadResponse(bufio.NewReader(c), nil)
}

// A body that trickles is cut, wherever its request goes; a decode server that
// thinks for longer than the limits is waited for.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	r := start(t, func(_ *rig, o *Options) {
		o.Body = serve.BodyLimits{Idle: 2 * time.Second, Total: 2400 * time.Millisecond} // a whole body comes in time
	})
	var all sync.WaitGroup
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		for _, every := range []time.Duration{20 * time.Millisecond, time.Hour} {
			for _, length := range []string{"Content-Length: 1000", "Content-Length: 100000000",
				"Transfer-Encoding: chunked"} {
				all.Go(func() {
					resp, err := r.trickle(path, length, every)
					if want := map[bool]int{true: 413, false: 408}[strings.Contains(length, "100000000")]; err != nil ||
						resp.StatusCode != want {
						t.Errorf("%s, %s every %v: %v %v", path, length, every, resp, err)
					}
				})
			}
		}
	}
	all.Wait()
	r.decode.then = func(w http.ResponseWriter, _ *http.Request) {
		// A prefill that is longer than both limits: those of bodies that begin now.
		for _, every := range []time.Duration{20 * time.Millisecond, time.Hour} {
			if resp, err := r.trickle("/v1/chat/completions", "Content-Length: 1000", every); err != nil ||
				resp.StatusCode != 408 {
				t.Errorf("beside a slow decode server: %v %v", resp, err)
			}
		}
		_, _ = io.WriteString(w, decoded)
	}
	if resp, body := r.ask(chatBody); resp.StatusCode != 200 {
		t.Errorf("a slow decode server: %d %s", resp.StatusCode, body)
	}
}

// A sidecar that listens on all addresses has one of them in the record, or the pod's address if an option sets it.
func TestWildcardIsNoIdentity(t *testing.T) {
	t.Parallel()
	own, err := serve.Advertised("0.0.0.0", "", func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ advertise, podIP, want string }{{"", "", own}, {"", "10.0.0.5", "10.0.0.5"},
		{"decode-0", "10.0.0.5", "decode-0"}} {
		r := start(t, func(_ *rig, o *Options) {
			o.Listen, o.Advertise, o.Disagg.PodIP = "[::]:0", c.advertise,
				c.podIP
		})
		_, port, _ := net.SplitHostPort(r.ranks[0].listener.Addr().String())
		if got := r.Addr(); got != net.JoinHostPort(c.want, port) {
			t.Errorf("%+v: %s", c, got)
		}
		resp, err := r.client.Post("http://127.0.0.1:"+port+"/v1/chat/completions", "application/json",
			strings.NewReader(chatBody))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		until(t, "the end", func() bool { return r.count(record.ResponseEndSeen) == 1 })
		for _, e := range r.events {
			if e.Endpoint != net.JoinHostPort(c.want, port) {
				t.Errorf("%+v: %s of %s", c, e.Step, e.Endpoint)
			}
		}
	}
}

// A listener that dies is reported. A listener whose port is taken and a missing file have their exit codes.
func TestListeners(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]func(*Sidecar) error{
		"requests": func(s *Sidecar) error { return s.ranks[1].listener.Close() },
		"metrics":  func(s *Sidecar) error { return s.ownAt.Close() },
	} {
		s, err := Start(Options{Listen: "127.0.0.1:0", Decoder: "127.0.0.1:1000", Ranks: 2,
			MetricsListen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		if err := dies(s); err != nil {
			t.Fatal(err)
		}
		if err := serve.Until(t.Context(), patience, s.Failed(),
			func(ctx context.Context) error { _ = s.Stop(ctx); return nil }); exit.Of(err) != exit.Broken {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := start(t, nil)
	missing := filepath.Join(t.TempDir(), "missing")
	for want, o := range map[exit.Code][]Options{
		exit.Environment: {{Listen: r.Addr(), Decoder: "127.0.0.1:1"},
			{Listen: "127.0.0.1:0", Decoder: "127.0.0.1:1", MetricsListen: r.Addr()}},
		exit.Input: {{EndpointsFile: missing, Protect: true},
			{EndpointsFile: filepath.Join(missing, "deeper"), Protect: true}, {TLS: TLS{CAFile: missing}},
			{TLS: TLS{Serve: ServeTLS{On: true, CertPath: missing}}}},
		exit.Usage: {{Prefillers: []string{"ftp://x"}}},
	} {
		for _, x := range o {
			if x.Listen == "" {
				x.Listen, x.Decoder = "127.0.0.1:0", "127.0.0.1:1"
			}
			if _, err := Start(x); exit.Of(err) != want {
				t.Errorf("%+v: code %d, want %d: %v", x, exit.Of(err), want, err)
			}
		}
	}
}
