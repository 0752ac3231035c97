package sidecar

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/record"
	"github.com/windtunnel/windtunnel/core/sidecar/connector"
	"github.com/windtunnel/windtunnel/core/sidecar/disagg"
)

// outside is a server that is not in the pool, and must never hear anything.
func outside(t *testing.T) *worker { return startWorker(t, false, prefilled) }

func port(k *worker) string {
	_, p, _ := net.SplitHostPort(k.addr())
	return p
}

func endpoint(k *worker) netip.AddrPort { return netip.MustParseAddrPort(k.addr()) }

// A fake prefiller outside the pool is never contacted, whatever else happens:
// the allowed one fails, is tried again or answers with a redirect, the
// decode server does it all, several hosts or names are given, or it is named
// as encode server or source of cached blocks.
func TestNobodyOutsideThePoolIsContacted(t *testing.T) {
	t.Parallel()
	name := func(k *worker) string { return "localhost:" + port(k) }
	for _, c := range []struct {
		name   string
		change func(*disagg.Config)
		// head are the request's headers; fake and good are the servers.
		head   func(good, fake *worker) []string
		broken bool // the allowed prefiller answers 503
		status int
	}{
		{name: "alone", head: func(_, fake *worker) []string { return []string{"x-prefiller-host-port", fake.addr()} },
			status: 403},
		{name: "by name", head: func(_, fake *worker) []string { return []string{"x-prefiller-host-port", name(fake)} },
			status: 403},
		{name: "by URL", head: func(_, fake *worker) []string {
			return []string{"x-prefiller-host-port", "http://" + fake.addr() + "/"}
		}, status: 403},
		{name: "in IPv6", head: func(_, fake *worker) []string {
			return []string{"x-prefiller-host-port", "[::ffff:127.0.0.1]:" + port(fake)}
		}, status: 403},
		{name: "a name that does not exist", head: func(_, fake *worker) []string {
			return []string{"x-prefiller-host-port", "nowhere.invalid:" + port(fake)}
		}, status: 403},
		{name: "a user before the host", head: func(good, fake *worker) []string {
			return []string{"x-prefiller-host-port", good.addr() + "@" + fake.addr()}
		}, status: 403},
		{name: "first of several", head: func(good, fake *worker) []string {
			return []string{"x-prefiller-host-port", fake.addr() + "," + good.addr()}
		}, status: 403},
		{name: "second after a failure", broken: true, head: func(good, fake *worker) []string {
			return []string{"x-prefiller-host-port", good.addr() + "," + fake.addr() + "," + name(fake)}
		}, status: 503},
		{name: "second after tries", broken: true,
			change: func(c *disagg.Config) { c.Retries, c.RetryBackoff = 2, 1e6 },
			head: func(good, fake *worker) []string {
				return []string{"x-prefiller-host-port", good.addr() + "," + fake.addr()}
			}, status: 503},
		{name: "before a fall back", broken: true, change: func(c *disagg.Config) { c.FallBack = true },
			head: func(good, fake *worker) []string {
				return []string{"x-prefiller-host-port", good.addr() + "," + fake.addr()}
			}, status: 200},
		{name: "in any order", change: func(c *disagg.Config) { c.Sample = true },
			head: func(good, fake *worker) []string {
				return []string{"x-prefiller-host-port", good.addr() + "," + fake.addr()}
			}},
		{name: "as encode server", change: func(c *disagg.Config) { c.Encoder = disagg.ECNIXL },
			head: func(_, fake *worker) []string {
				return []string{"x-encoder-hosts-ports", fake.addr() + ", " + name(fake)}
			}, status: 200},
		{name: "beside an encode server", change: func(c *disagg.Config) { c.Encoder = disagg.ECExample },
			head: func(good, fake *worker) []string {
				return []string{"x-encoder-hosts-ports", good.addr() + "," + fake.addr(), "x-prefiller-host-port",
					good.addr()}
			}, status: 200},
		{name: "as source of blocks", change: func(c *disagg.Config) { c.P2PPull = true },
			head: func(_, fake *worker) []string {
				return []string{"x-kv-cache-source-host-port", fake.addr()}
			}, status: 200},
		{name: "mooncake", change: func(c *disagg.Config) { c.Connector = connector.Mooncake },
			head: func(_, fake *worker) []string {
				return []string{"x-prefiller-host-port", fake.addr()}
			}, status: 403},
		{name: "sglang", change: func(c *disagg.Config) { c.Connector = connector.SGLang },
			head: func(_, fake *worker) []string {
				return []string{"x-prefiller-host-port", fake.addr()}
			}, status: 403},
		{name: "MoRI-IO", change: func(c *disagg.Config) { c.MoRIIO = connector.MoRIIO{Write: true, Parallel: true} },
			head: func(_, fake *worker) []string {
				return []string{"x-prefiller-host-port", fake.addr()}
			}, status: 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fake := outside(t)
			r := start(t, func(r *rig, o *Options) {
				o.Protect, o.Allow = true, []netip.AddrPort{endpoint(r.prefill)}
				if c.change != nil {
					c.change(&o.Disagg)
				}
			})
			if c.broken {
				r.prefill.then = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }
			}
			image := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url",` +
				`"image_url":{"url":"a"}},{"type":"image_url","image_url":{"url":"b"}}]}]}`
			resp, body := r.ask(image, c.head(r.prefill, fake)...)
			if c.status > 0 && resp.StatusCode != c.status {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if fake.calls() != 0 || r.count(record.PrefillerBlocked) == 0 {
				t.Errorf("contacted %d times, %d events", fake.calls(), r.count(record.PrefillerBlocked))
			}
			r.decode.mu.Lock()
			defer r.decode.mu.Unlock()
			if len(r.decode.body) > 0 && strings.Contains(r.decode.body[0], "remote_kv_source") {
				t.Error("the decode server was told to pull from outside: ", r.decode.body[0])
			}
		})
	}
}

// A redirect is an answer like any other: nobody follows it, on any leg.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, way := range []*connector.Connector{connector.NIXLv2, connector.SharedStorage, connector.SGLang,
			connector.Offloading, connector.Mooncake} {
			t.Run(strconv.Itoa(status)+" "+way.Name, func(t *testing.T) {
				t.Parallel()
				fake := outside(t)
				bootstrap := httptest.NewServer(http.RedirectHandler(fake.URL+"/query", status))
				t.Cleanup(bootstrap.Close)
				u, _ := url.Parse(bootstrap.URL)
				r := start(t, func(_ *rig, o *Options) {
					o.Disagg.Connector = way
					o.Disagg.MeetingPort, _ = strconv.Atoi(u.Port())
					o.Disagg.FallBack = true
				})
				r.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				away := http.RedirectHandler(fake.URL+"/v1/chat/completions", status)
				r.prefill.then = away.ServeHTTP
				resp, body := r.ask(chatBody, "x-prefiller-host-port", r.prefill.addr())
				switch way {
				case connector.NIXLv2, connector.SharedStorage: // as the prefiller's error
					if resp.StatusCode != status {
						t.Errorf("%d %s", resp.StatusCode, body)
					}
				default:
					if resp.StatusCode != 200 {
						t.Errorf("%d %s", resp.StatusCode, body)
					}
				}
				r.decode.then = away.ServeHTTP
				if resp, _ := r.ask(chatBody); resp.StatusCode != status {
					t.Errorf("the decode server's redirect: %d", resp.StatusCode)
				}
				until(t, "detached legs end", func() bool { return r.InFlight() == 0 })
				if fake.calls() != 0 {
					t.Errorf("a redirect was followed %d times", fake.calls())
				}
			})
		}
	}
}

// A name that changes its meaning between check and call leads nowhere else:
// the checked address is the one that is dialled.
func TestTheCheckedAddressIsDialled(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig, o *Options) { o.Protect, o.Allow = true, []netip.AddrPort{endpoint(r.prefill)} })
	target, err := disagg.ParseTarget("rebound.invalid:" + port(r.prefill))
	if err != nil {
		t.Fatal(err)
	}
	target.Addr = endpoint(r.prefill).Addr()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+target.String()+"/v1/chat/completions",
		strings.NewReader(chatBody))
	resp, err := r.proxies.to(&target, new(url.URL)).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if r.prefill.calls() != 1 {
		t.Error("the allowed server was not called")
	}
}
