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
)

var update = flag.Bool("update", false, "write testdata/*.yaml anew")

// The text of the default configuration is what users read; a change to it
// is a change to be looked at.
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
		Limits:     Limits{InFlight: 5000, BodyBytes: 8 << 20, Hold: 30 * time.Second},
		Pools: []Pool{
			{
				Name: "base", FailureMode: FailOpen, Protocol: HTTP2, HealthPath: "/health",
				Endpoints: []string{"127.0.0.1:8001", "[::1]:8002"},
				Picker: Processor{Addresses: []string{"localhost:9002", "127.0.0.1:9012"},
					HealthInterval: time.Second},
				Retry: &Retry{Attempts: 2, On: []string{"connect-failure"}},
			},
			{
				Name: "lora",
				Picker: Processor{Addresses: []string{"127.0.0.1:9022"}, Mode: Buffered,
					MessageTimeout: 100 * time.Millisecond, TLS: &TLS{}},
			},
			{Name: "service", Routing: RoundRobin, Endpoints: []string{"127.0.0.1:8003"}, HealthPath: "/health"},
		},
		Routes: []Route{
			{Path: "/healthz", Status: 200, Body: "ok"},
			{Prefix: "/v1/", Headers: map[string]string{"x-gateway-model-name": "lora"}, Pool: "lora"},
			{Prefix: "/v1/", Headers: map[string]string{"x-gateway-model-name": "plain"}, Pool: "service"},
			{Pool: "base"},
			{Status: 404},
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
	for _, mode := range []FailureMode{FailClose, FailOpen} {
		for _, routing := range []Routing{OriginalDst, OverrideHost} {
			for _, protocol := range []Protocol{HTTP1, HTTP2} {
				for _, body := range []Mode{FullDuplex, Buffered, Streamed, HeadersOnly} {
					for extra := range 5 {
						if mode == FailOpen && routing == OriginalDst {
							continue // refused by Validate
						}
						p := Pool{Name: fmt.Sprintf("p%d", len(pools)), FailureMode: mode, Routing: routing,
							Protocol:  protocol,
							Picker:    Processor{Addresses: []string{"127.0.0.1:9002"}, Mode: body},
							Endpoints: []string{"127.0.0.1:8001"}}
						switch extra {
						case 1:
							p.Retry = &Retry{}
						case 2:
							p.Picker.TLS = &TLS{ServerName: "picker"}
						case 3:
							p.EndpointsFile = endpoints
						case 4:
							p.HealthPath = "/health"
						}
						pools = append(pools, p)
						routes = append(routes, Route{Prefix: "/" + p.Name, Pool: p.Name})
					}
				}
			}
		}
	}
	service := Config{Pools: []Pool{{Name: "service", Routing: RoundRobin, Endpoints: []string{"127.0.0.1:8001"}}},
		Routes: []Route{{Path: "/healthz", Status: 200}, {Pool: "service"}}}
	configs := map[string]Config{"everything": everything(), "least": onePool(), "without a picker": service}
	for i, p := range pools {
		if kind := fmt.Sprint(p.FailureMode, " ", p.Picker.Mode); configs[kind].Pools == nil {
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
		"pools: there are none":             func(c *Config) { c.Pools = nil },
		`listen: "8080" is not ip:port`:     func(c *Config) { c.Listen = "8080" },
		`admin: "x:y" is not ip:port`:       func(c *Config) { c.Admin = "x:y" },
		`pools[0].name: "A b" is not`:       func(c *Config) { c.Pools[0].Name = "A b" },
		`pools[1].name: "default" is there`: func(c *Config) { c.Pools = append(c.Pools, c.Pools[0]) },
		`pools[0].failureMode: "open"`:      func(c *Config) { c.Pools[0].FailureMode = "open" },
		`pools[0].routing: "x"`:             func(c *Config) { c.Pools[0].Routing = "x" },
		`pools[0].protocol: "h3"`:           func(c *Config) { c.Pools[0].Protocol = "h3" },
		"FailOpen with routing original-dst": func(c *Config) {
			c.Pools[0].FailureMode, c.Pools[0].Routing = FailOpen, OriginalDst
		},
		"pools[0].endpoints: there are none":      func(c *Config) { c.Pools[0].Routing = OverrideHost },
		"routing round-robin chooses among them":  func(c *Config) { c.Pools[0].Routing = RoundRobin },
		`pools[0].endpoints[0]: "pod:80" is not`:  func(c *Config) { c.Pools[0].Endpoints = []string{"pod:80"} },
		`pools[0].endpointsFile: "e.json" is not`: func(c *Config) { c.Pools[0].EndpointsFile = "e.json" },
		`pools[0].healthPath: "h"`:                func(c *Config) { c.Pools[0].HealthPath = "h" },
		"pools[0].retry: 1000 attempts":           func(c *Config) { c.Pools[0].Retry = &Retry{Attempts: 1000} },
		"pools[0].picker.addresses: there":        func(c *Config) { c.Pools[0].Picker.Addresses = nil },
		`pools[0].picker.addresses[0]: "nine"`:    func(c *Config) { c.Pools[0].Picker.Addresses = []string{"nine"} },
		`pools[0].picker.mode: "none"`:            func(c *Config) { c.Pools[0].Picker.Mode = "none" },
		"bodyRouter.addresses: there are":         func(c *Config) { c.BodyRouter = &Processor{} },
		`routes[0].pool: there is no pool`:        func(c *Config) { c.Routes = []Route{{Pool: "x"}} },
		`routes[0]: both path and prefix`:         func(c *Config) { c.Routes = []Route{{Path: "/a", Prefix: "/b"}} },
		`routes[0]: path "a" does not begin`:      func(c *Config) { c.Routes = []Route{{Path: "a", Pool: "default"}} },
		`routes[0].status: 99`:                    func(c *Config) { c.Routes = []Route{{Status: 99}} },
		"limits.inFlight: -1":                     func(c *Config) { c.Limits.InFlight = -1 },
		"limits.bodyBytes: -1":                    func(c *Config) { c.Limits.BodyBytes = -1 },
		"limits.hold: -1s":                        func(c *Config) { c.Limits.Hold = -time.Second },
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
			l := Limits{Hold: hold, BodyTime: body}
			if l.idleTimeout() <= hold || l.requestTimeout() <= hold+body {
				t.Errorf("%+v: idle %v, request %v", l, l.idleTimeout(), l.requestTimeout())
			}
		}
	}
}
