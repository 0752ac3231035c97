package modelserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/core/kv/link"
	"github.com/windtunnel/windtunnel/core/machine"
	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
)

// fields are all ways in which a request can name a server.
func fields(host string, port int) map[string]string {
	at := net.JoinHostPort(host, fmt.Sprint(port))
	peer := fmt.Sprintf(`{"kv_request_id":"r","remote_host":%q,"remote_port":%d}`, host, port)
	return map[string]string{
		"nixl": fmt.Sprintf(
			`"kv_transfer_params":{"do_remote_prefill":true,"remote_engine_id":"e","remote_block_ids":[1],`+
				`"remote_host":%q,"remote_port":%d}`, host, port),
		"mooncake": `"kv_transfer_params":{"do_remote_prefill":true,"transfer_id":"t",` +
			`"remote_bootstrap_addr":"http://` + at + `"}`,
		"MoRI-IO": fmt.Sprintf(
			`"kv_transfer_params":{"do_remote_prefill":true,"transfer_id":"t","remote_notify_port":1,`+
				`"remote_block_ids":[],"remote_host":%q,"remote_handshake_port":%d}`, host, port),
		"peer":     `"kv_transfer_params":{"remote_prefiller":` + peer + `}`,
		"source":   `"kv_transfer_params":{"remote_kv_source":` + peer + `}`,
		"document": `"kv_handle":"kv://` + at + `/e/1-1-4"`,
	}
}

// A server that is no peer is never dialled, whichever request names it, and however.
func TestOnlyPeersAreDialled(t *testing.T) {
	t.Parallel()
	port, asked := silence(t)
	o := batched()
	var err error
	if o.KVPeers, err = modelserver.ParsePeers([]string{"10.244.0.0/16"}); err != nil {
		t.Fatal(err)
	}
	b := start(t, o)
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
		for name, field := range fields(host, port) {
			if resp, body := b.post("/v1/completions",
				`{"prompt":"a b c d e f","max_tokens":1,`+field+`}`); resp.StatusCode != 403 ||
				!strings.Contains(body, "--kv-peers") {
				t.Errorf("%s at %s: %d %s", name, host, resp.StatusCode, body)
			}
		}
	}
	p := apart(t, connector.SGLang.Profile, func(o *ServerOptions) {
		o.KVRole = connector.RoleConsumer
		o.KVPeers, _ = modelserver.ParsePeers([]string{"10.244.0.0/16"})
	})
	if a := p.ask(p.decode, fmt.Sprintf(
		`{"prompt":"a","max_tokens":1,"bootstrap_host":"127.0.0.1","bootstrap_port":%d,"bootstrap_room":7}`,
		port)); a.status != 403 {
		t.Errorf("sglang: %d %s", a.status, a.body)
	}
	select {
	case <-asked:
		t.Error("somebody asked")
	default:
	}
}

// Requests that name a server which never answers hold no block for it, and end
// when its time for a first byte is up.
func TestSilentPeersHoldNoBlocks(t *testing.T) {
	t.Parallel()
	for name := range fields("", 0) {
		if name == "source" {
			continue // its requests compute what they do not get
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			port, asked := silence(t)
			o := batched()
			o.PeerTimeout = time.Second // within which all of them ask, on a busy machine, too
			b := start(t, o)
			field := fields("127.0.0.1", port)[name]
			prompt := strings.Repeat("word ", 25)
			var wg sync.WaitGroup
			for i := range 10 {
				field := strings.Replace(field, "/e/1-", fmt.Sprintf("/e/%d-", i), 1) // each handle is fetched once
				wg.Go(func() {
					if resp, body := b.post("/v1/completions",
						`{"prompt":"`+prompt+`","max_tokens":1,`+field+`}`); resp.StatusCode != 500 {
						t.Errorf("%d %s", resp.StatusCode, body)
					}
				})
			}
			over := make(chan struct{})
			go func() { wg.Wait(); close(over) }()
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for waiting := true; waiting; {
				select {
				case <-over:
					waiting = false
				case <-tick.C:
				}
				used := -1
				b.engine.With(func(machine.Time) { used = b.engine.Core.Engine().KVBlocksUsed() })
				if used > o.Engine.NumGPUBlocks/10 {
					t.Errorf("%d of %d blocks are held for a server that never answered", used, o.Engine.NumGPUBlocks)
				}
			}
			<-asked // once for all of them
			if used := b.gauge("vllm:kv_cache_usage_perc"); used != 0 {
				t.Errorf("%v of the blocks are still held", used)
			}
		})
	}
}

// A peer that has answered before and then falls silent holds blocks for its time for a first byte. After that it must
// be greeted again.
func TestPeerFallsSilent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ops := make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				line, _ := r.ReadString('\n')
				switch {
				case strings.Contains(line, `"hello"`):
					ops <- "hello"
					_, _ = io.WriteString(c, `{"ok":true,"engine_id":"e"}`+"\n")
				case line != "":
					ops <- "get"
				}
				_, _ = r.ReadString('\n') // until the asker hangs up
			}()
		}
	}()
	o := batched()
	o.PeerTimeout = time.Second
	b := start(t, o)
	body := `{"prompt":"a b c d e f","max_tokens":1,` + fields("127.0.0.1", l.Addr().(*net.TCPAddr).Port)["nixl"] + `}`
	for range 2 {
		if resp, text := b.post("/v1/completions", body); resp.StatusCode != 500 {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
		if first, second := <-ops, <-ops; first != "hello" || second != "get" {
			t.Errorf("%s, %s", first, second)
		}
		b.until("the blocks are free", func() bool { return b.gauge("vllm:kv_cache_usage_perc") == 0 })
	}
}

// The time for a first byte is no time for a prefill: a peer that is asked for a
// cache which is still to be computed says so, and is waited for.
func TestPeersMayTakeTheirTimeToPrefill(t *testing.T) {
	t.Parallel()
	for _, profile := range []link.Profile{connector.SGLang.Profile, connector.Mooncake.Profile,
		connector.Offloading.Profile} {
		t.Run(profile.Name, func(t *testing.T) {
			t.Parallel()
			p := apart(t, profile, func(o *ServerOptions) { o.PeerTimeout = time.Second })
			first, second := legs(p, profile, longPrompt(1), "17")
			var wg sync.WaitGroup
			var dec answered
			wg.Go(func() { dec = p.ask(p.decode, second) })
			p.waitFor("the decode server asks", func() bool {
				return p.awaited() == 1
			})
			// The time for a first byte passes, for a peer that is asked now.
			port, _ := silence(t)
			names := map[string]string{connector.Mooncake.Name: fields("127.0.0.1", port)["mooncake"],
				connector.Offloading.Name: fields("127.0.0.1", port)["peer"],
				connector.SGLang.Name: fmt.Sprintf(
					`"bootstrap_host":"127.0.0.1","bootstrap_port":%d,"bootstrap_room":7`, port)}
			if a := p.ask(p.decode, `{"prompt":"a b c","max_tokens":1,`+names[profile.Name]+`}`); a.status != 500 {
				t.Errorf("a silent peer: %d %s", a.status, a.body)
			}
			if pre := p.ask(p.prefill, first); pre.status != 200 {
				t.Fatal(pre.body)
			}
			wg.Wait()
			if dec.status != 200 || cached(t, dec.body) < 512 {
				t.Errorf("%d %s", dec.status, dec.body)
			}
			p.idle()
		})
	}
}

// A side channel takes no key that nobody can have.
func TestSideChannelKeysAreBounded(t *testing.T) {
	t.Parallel()
	o := fast()
	o.SideChannel = "127.0.0.1:0"
	b := start(t, o)
	host, port, err := b.kv.Address()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, `{"op":"await","key":"%s"}`+"\n", strings.Repeat("x", 1<<20))
	answer, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(answer), "at most 1024") {
		t.Errorf("%.100s %v", answer, err)
	}
}

// A handle cannot name more blocks than its tokens can fill. No handle is made for a cache that does not fit.
func TestHandlesAreBounded(t *testing.T) {
	t.Parallel()
	b := start(t, batched())
	for _, handle := range []string{"kv://h:1/e/0-1048576-1", "kv://h:1/e/0-900000-900000",
		"kv://h:1/" + strings.Repeat("e", 1024) + "/0-1-1"} {
		if resp, body := b.post("/v1/completions",
			`{"prompt":"a","max_tokens":1,"kv_handle":"`+handle+`"}`); resp.StatusCode != 400 {
			t.Errorf("%.40s: %d %s", handle, resp.StatusCode, body)
		}
	}
	used := -1
	b.engine.With(func(machine.Time) { used = b.engine.Core.Engine().KVBlocksUsed() })
	if used != 0 {
		t.Errorf("%d blocks are used", used)
	}
}
