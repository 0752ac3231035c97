//go:build unix

package envoy

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
)

var update = flag.Bool("update", false, "write testdata/*.yaml anew")

// Users read the text of the default configuration, so each change to it needs a review.
func TestGolden(t *testing.T) {
	t.Parallel()
	all := everything()
	for name, c := range map[string]Config{"default": onePool(), "everything": all} {
		t.Run(name, func(t *testing.T) {
			got, err := c.YAML()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("run with -update if this is meant (-want +got):\n%s", d)
			}
		})
	}
}

// everything sets every field that changes the text.
func everything() Config {
	return Config{
		Listen: "0.0.0.0:8080", Admin: "127.0.0.1:19000",
		AccessLog:  "/dev/null",
		BodyRouter: &Processor{Addresses: []string{"127.0.0.1:9004"}},
		Limits:     proxy.Limits{InFlight: 5000, BodyBytes: 8 << 20, Hold: 30 * time.Second},
		Pools: []Pool{
			{
				Name: "base", HTTP2: true, HealthPath: "/health",
				Endpoints: []string{"127.0.0.1:8001", "[::1]:8002"},
				Picker: Processor{Addresses: []string{"localhost:9002", "127.0.0.1:9012"},
					Asking: gateway.Asking{FailOpen: true}},
				Retry: &gateway.Attempts{Retries: 1, On: []string{"connect-failure"}, Codes: []int{503},
					Base: 25 * time.Millisecond, Max: 250 * time.Millisecond},
			},
			{
				Name: "lora",
				Picker: Processor{Addresses: []string{"127.0.0.1:9022"},
					Asking: gateway.Asking{Request: gateway.BodyBuffered, Timeout: 100 * time.Millisecond}},
			},
			{Name: "service", Routing: RoundRobin, Endpoints: []string{"127.0.0.1:8003"}, HealthPath: "/health"},
		},
		Routes: []Route{
			{Headers: map[string]string{"x-gateway-model-name": "lora"}, Pool: "lora"},
			{Headers: map[string]string{"x-gateway-model-name": "plain"}, Pool: "service"},
			{Pool: "base"},
		},
	}
}

// Envoy itself accepts the text of every combination of options. All are
// pools of one gateway; the first one's picker is configured in another place
// than the others', so each kind has its turn at being first.
func TestEnvoyAccepts(t *testing.T) {
	t.Parallel()
	bin := envoyForTest(t)
	dir := t.TempDir()
	endpoints := filepath.Join(dir, "endpoints.yaml")
	if err := WriteEndpoints(endpoints, "base", nil); err != nil {
		t.Fatal(err)
	}
	var pools []Pool
	var routes []Route
	for _, open := range []bool{false, true} {
		for _, routing := range []Routing{OriginalDst, OverrideHost} {
			for _, http2 := range []bool{false, true} {
				for _, body := range []gateway.Body{gateway.BodyFullDuplex, gateway.BodyBuffered,
					gateway.BodyStreamed, gateway.BodyUnseen} {
					for extra := range 4 {
						if open && routing == OriginalDst {
							continue // refused by validate
						}
						p := Pool{Name: fmt.Sprintf("p%d", len(pools)), Routing: routing, HTTP2: http2,
							Picker: Processor{Addresses: []string{"127.0.0.1:9002"},
								Asking: gateway.Asking{Request: body, FailOpen: open}},
							Endpoints: []string{"127.0.0.1:8001"}}
						switch extra {
						case 1:
							p.Retry = &thrice
						case 2:
							p.EndpointsFile = endpoints
						case 3:
							p.HealthPath = "/health"
						}
						pools = append(pools, p)
						routes = append(routes, Route{Headers: map[string]string{"x-pool": p.Name}, Pool: p.Name})
					}
				}
			}
		}
	}
	service := Config{Pools: []Pool{{Name: "service", Routing: RoundRobin, Endpoints: []string{"127.0.0.1:8001"}}},
		Routes: []Route{{Pool: "service"}}}
	configs := map[string]Config{"everything": everything(), "least": onePool(), "without a picker": service}
	for i, p := range pools {
		if kind := fmt.Sprint(p.Picker.FailOpen, " ", p.Picker.Request); configs[kind].Pools == nil {
			turned := append(slices.Clone(pools[i:]), pools[:i]...)
			configs[kind] = Config{Pools: turned, Routes: routes, AccessLog: filepath.Join(dir, "access.log")}
		}
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			text, err := c.YAML()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "envoy.yaml")
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(bin.Path, "--mode", "validate", "--log-level", "warning", "-c",
				file).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if strings.Contains(strings.ToLower(string(out)), "deprecated") {
				t.Errorf("something in it is deprecated:\n%s", out)
			}
		})
	}
	t.Logf("%d pools, %d times", len(pools), len(configs))
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*Config){
		"pools: there are none":         func(c *Config) { c.Pools = nil },
		`listen: "8080" is not ip:port`: func(c *Config) { c.Listen = "8080" },
		`admin: "x:y" is not ip:port`:   func(c *Config) { c.Admin = "x:y" },
		"FailOpen with routing original-dst": func(c *Config) {
			c.Pools[0].Picker.FailOpen, c.Pools[0].Routing = true, OriginalDst
		},
		"pools[0].endpoints: there are none":     func(c *Config) { c.Pools[0].Routing = OverrideHost },
		"routing round-robin chooses among them": func(c *Config) { c.Pools[0].Routing = RoundRobin },
		`pools[0].endpoints[0]: "pod:80" is not`: func(c *Config) { c.Pools[0].Endpoints = []string{"pod:80"} },
		"pools[0].picker.addresses: there":       func(c *Config) { c.Pools[0].Picker.Addresses = nil },
		`"nine" is not host:port`:                func(c *Config) { c.Pools[0].Picker.Addresses = []string{"nine"} },
	} {
		c := onePool()
		spoil(&c)
		_, err := c.YAML()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want one with %q", err, want)
			continue
		}
		wantKind(t, err, BadConfig)
	}
}

// Envoy's own limits are above those of the picker, which has the better answers:
// a held prefill is never cut by them.
func TestBackstopsAreBehindThePicker(t *testing.T) {
	for _, hold := range []time.Duration{time.Millisecond, 30 * time.Second, 10 * time.Minute, 24 * time.Hour} {
		for _, body := range []time.Duration{time.Millisecond, 5 * time.Minute} {
			l := proxy.Limits{Hold: hold, BodyTime: body}
			if l.IdleTimeout() <= hold || l.RequestTimeout() <= hold+body {
				t.Errorf("%+v: idle %v, request %v", l, l.IdleTimeout(), l.RequestTimeout())
			}
		}
	}
}
