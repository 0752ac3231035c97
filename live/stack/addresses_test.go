package stack

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/internal/freeport"
	"github.com/windtunnel/windtunnel/scenario"
)

// A scenario fixes the ports of every part, and every target for a Prometheus has metrics; also with sidecars.
func TestPortsAndAddresses(t *testing.T) {
	t.Parallel()
	for name, sidecars := range map[string]bool{"alone": false, "prefill and decode": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := freeport.Row(t, 10)
			at := func(k int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(first+k)) }
			s := quick(func(s *scenario.Scenario) {
				s.Pools[0].Flow = scenario.Plain
				s.Ports = scenario.Ports{Gateway: first, EnvoyAdmin: first + 1, ExtProc: first + 2, Health: first + 3,
					Metrics: first + 4, Servers: first + 5}
			})
			if sidecars {
				s = withTokenizer(t, tokenizerPools["prefill and decode"])
				s.Ports = scenario.Ports{Gateway: first, EnvoyAdmin: first + 1, ExtProc: first + 2, Health: first + 3,
					Metrics: first + 4, Servers: first + 5, Sidecars: first + 8}
			}
			r := start(t, s, nil)
			a := r.Addresses()
			if a.Gateway != "http://"+at(0) || a.EnvoyAdmin != "http://"+at(1) || a.Picker.ExtProc != at(2) ||
				a.Picker.Health != at(3) || a.Picker.Metrics != at(4) {
				t.Errorf("%+v", a)
			}
			if want := 2; sidecars && (len(a.Servers) != 3 || !a.Servers[2].Prefill || a.Servers[1].Sidecar != at(9)) ||
				!sidecars && len(a.Servers) != want {
				t.Errorf("%+v", a.Servers)
			}
			for i, server := range a.Servers {
				if server.Address != at(5+i) {
					t.Errorf("%s listens on %s, expected %s", server.Name, server.Address, at(5+i))
				}
			}
			if len(a.Targets) != 2+len(a.Servers) {
				t.Errorf("%d targets", len(a.Targets))
			}
			for _, target := range a.Targets {
				page := get(t, "http://"+target.Targets[0]+target.Labels["__metrics_path__"])
				if !strings.Contains(page, "# TYPE ") {
					t.Errorf("%v: %.100s", target, page)
				}
			}
			if got := r.post("/v1/chat/completions",
				strings.Replace(`{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":2}`, `"m"`,
					`"`+s.Pools[0].Model+`"`, 1)); got.status != 200 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A port that is asked for counts, 0 on a command line is any free one, and with
// Keep the well-known one is only what nobody asked otherwise.
func TestPortAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keep           bool
		asked, number  int
		kept, expected string
	}{
		{false, 0, 0, KeptGateway, anyPort},
		{true, 0, 0, KeptGateway, KeptGateway},
		{true, 0, 1, KeptExtProc, anyPort},
		{true, AnyPort, 0, KeptGateway, anyPort},
		{false, AnyPort, 0, KeptGateway, anyPort},
		{true, 8099, 2, KeptGateway, "127.0.0.1:8101"},
	} {
		o := Options{Keep: c.keep}
		if got := o.at(c.asked, 0, c.number, c.kept); got != c.expected {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
