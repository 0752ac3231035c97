package envoy

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/proxy"
)

// Config says what the gateway should do, in the words of the llm-d flow. Its zero fields mean the defaults named
// beside them. YAML turns it into Envoy's.
type Config struct {
	// Listen is the address (ip:port) that clients come to. Default 127.0.0.1:0, a free port on loopback.
	Listen string
	// Admin is the address of Envoy's own pages. Default 127.0.0.1:0. They can stop the process, so they belong on
	// loopback.
	Admin string
	// Control is the address of a control plane that gives listeners, routes and clusters over delta ADS; Listen,
	// Pools and Routes are then empty. Default none.
	Control string
	// Pools are the groups of model servers, each with its endpoint picker. At least one, except with Control.
	Pools []Pool
	// Routes are tried in order. Default: every path leads to the first pool, whose picker answers unknown paths with
	// 404 itself.
	Routes []Route
	// BodyRouter is a payload processor (BBR) that sees every request before the picker does and may set headers for
	// Routes to match. Default none.
	BodyRouter *Processor
	Limits     proxy.Limits
	// AccessLog is the file that gets one JSON line per finished request, for AccessLogTail. Default: access.log in
	// the run's directory, and none in a text that is only printed.
	AccessLog string
	// Workers is the number of Envoy's worker threads (a flag, not part of the text). Default: as many as the machine
	// has processors.
	Workers int
}

// Pool is an InferencePool as the gateway sees it.
type Pool struct {
	// Name is a DNS label; clusters and statistics are named after it.
	Name string
	// Picker is the pool's endpoint picker (EPP); with RoundRobin there is none.
	Picker Processor
	// Routing is how Envoy gets from the picker's answer to a connection. Default OriginalDst, or OverrideHost where
	// the picker is FailOpen.
	Routing Routing
	// Endpoints are the pool's model servers, ip:port. OverrideHost and RoundRobin route to these only; OriginalDst
	// does not read them.
	Endpoints []string
	// EndpointsFile, without OriginalDst, is where Envoy reads the endpoints from (an absolute path ending in .yaml)
	// and watches for changes; Start writes Endpoints there, and WriteEndpoints changes them. Default: the endpoints
	// are fixed in the text.
	EndpointsFile string
	// HealthPath, without OriginalDst, is a path of the model servers that Envoy itself checks, so that a plain
	// request (FailOpen) goes to a ready one. Default: not checked.
	HealthPath string
	// HTTP2 is what the model servers speak (h2c), instead of HTTP/1.1.
	HTTP2 bool
	// Retry is how Envoy attempts requests. Default: once.
	Retry *gateway.Attempts
}

// Processor is an ext_proc server: an endpoint picker or a payload processor.
type Processor struct {
	// Addresses are where its gRPC service listens, host:port. At least one.
	Addresses []string
	// Asking is what the service is shown, by default full-duplex bodies, for how long Envoy waits for an answer, and
	// what happens when the service is gone.
	gateway.Asking
}

// Routing is a way from the picker's answer to a connection.
type Routing string

const (
	// OriginalDst connects to whatever address the destination header names, as the llm-d charts do.
	OriginalDst Routing = "original-dst"
	// OverrideHost connects to that address if it is one of the pool's endpoints, else round robin: the fallback that
	// FailOpen and retries on another endpoint need.
	OverrideHost Routing = "override-host"
	// RoundRobin is a pool without a picker, as a plain Service is one: its healthy endpoints in turn.
	RoundRobin Routing = "round-robin"
)

// Route leads requests to a pool.
type Route struct {
	// Headers must be there with exactly these values (keys in lower case).
	Headers map[string]string
	// Pool is the name of the pool.
	Pool string
}

// WithDefaults returns c with every default filled in. The copy shares nothing that is changed.
func (c Config) WithDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.Admin = cmp.Or(c.Admin, "127.0.0.1:0")
	c.Limits = c.Limits.WithDefaults()
	c.Pools = slices.Clone(c.Pools)
	for i := range c.Pools {
		p := &c.Pools[i]
		if p.Routing == "" {
			p.Routing = OriginalDst
			if p.Picker.FailOpen {
				p.Routing = OverrideHost
			}
		}
		p.Picker = p.Picker.withDefaults()
	}
	if len(c.Routes) == 0 && len(c.Pools) > 0 {
		c.Routes = []Route{{Pool: c.Pools[0].Name}}
	}
	if c.BodyRouter != nil {
		p := c.BodyRouter.withDefaults()
		c.BodyRouter = &p
	}
	return c
}

func (p Processor) withDefaults() Processor {
	p.Request = cmp.Or(p.Request, gateway.BodyFullDuplex)
	p.Timeout = cmp.Or(p.Timeout, proxy.AnswerTimeout)
	return p
}

// validate reports the first mistake that only Envoy would find, as a BadConfig error that names the field. What a
// scenario says is checked where the scenario is read.
func (c Config) validate() error {
	for what, at := range map[string]string{"listen": c.Listen, "admin": c.Admin, "control": c.Control} {
		if _, err := netip.ParseAddrPort(at); err != nil && (at != "" || what != "control") {
			return fail(BadConfig, err, "%s: %q is not ip:port: %v", what, at, err)
		}
	}
	if c.Control == "" && len(c.Pools) == 0 {
		return fail(BadConfig, nil, "pools: there are none; a gateway needs at least one pool with a picker")
	}
	for i, p := range c.Pools {
		at := "pools[" + strconv.Itoa(i) + "]"
		if p.Routing == OriginalDst && p.Picker.FailOpen {
			return fail(BadConfig, nil,
				"%s: FailOpen with routing %s has nowhere to send a request that no picker has seen; use %s", at,
				OriginalDst, OverrideHost)
		}
		if p.Routing != OriginalDst && len(p.Endpoints) == 0 && p.EndpointsFile == "" {
			return fail(BadConfig, nil, "%s.endpoints: there are none, and routing %s chooses among them", at,
				p.Routing)
		}
		for j, e := range p.Endpoints {
			if a, err := netip.ParseAddrPort(e); err != nil || a.Port() == 0 {
				return fail(BadConfig, err,
					"%s.endpoints[%d]: %q is not ip:port (a literal address: the picker's answer is one too)", at, j, e)
			}
		}
		if p.Routing != RoundRobin && len(p.Picker.Addresses) == 0 {
			return fail(BadConfig, nil,
				"%s.picker.addresses: there are none; expected host:port of its ext_proc service",
				at)
		}
	}
	return nil
}

func splitHostPort(hostport string) (string, uint32, error) {
	host, p, err := net.SplitHostPort(hostport)
	if err != nil {
		return "", 0, fail(BadConfig, err, "%q is not host:port", hostport)
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil || host == "" {
		return "", 0, fail(BadConfig, err, "%q is not host:port with a port of 0 to 65535", hostport)
	}
	return host, uint32(port), nil
}
