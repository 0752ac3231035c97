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

// Config describes the gateway in the terms of the llm-d flow. Zero fields mean the defaults named beside them. YAML
// translates it to Envoy's configuration.
type Config struct {
	// Listen is the address (ip:port) for clients. Default 127.0.0.1:0, a free port on loopback.
	Listen string
	// Admin is the address of Envoy's admin pages. Default 127.0.0.1:0. They can stop the process, so they should stay
	// on loopback.
	Admin string
	// Control is the address of a control plane that sends listeners, routes and clusters over delta ADS. Listen, Pools
	// and Routes are then empty. Default none.
	Control string
	// Pools are the groups of model servers, each with its endpoint picker. At least one, except with Control.
	Pools []Pool
	// Routes are tried in order. Default: every path leads to the first pool, whose picker answers unknown paths with
	// 404 itself.
	Routes []Route
	// BodyRouter is a payload processor (BBR) that sees every request before the picker does, and may set headers that
	// Routes match. Default none.
	BodyRouter *Processor
	Limits     proxy.Limits
	// AccessLog is the file that gets one JSON line per finished request, for AccessLogTail. Default: access.log in the
	// run's directory, and none in a text that is only printed.
	AccessLog string
	// Workers is the number of Envoy's worker threads (a flag, not part of the text). Default: the number of the
	// machine's processors.
	Workers int
}

// Pool is an InferencePool as the gateway sees it.
type Pool struct {
	// Name is a DNS label. The names of clusters and statistics contain it.
	Name string
	// Picker is the pool's endpoint picker (EPP). With RoundRobin there is none.
	Picker Processor
	// Routing selects how Envoy turns the picker's answer into a connection. Default OriginalDst, or OverrideHost if
	// the picker is FailOpen.
	Routing Routing
	// Endpoints are the pool's model servers, ip:port. OverrideHost and RoundRobin route only to these; OriginalDst
	// ignores them.
	Endpoints []string
	// EndpointsFile, without OriginalDst, is the file from which Envoy reads the endpoints (an absolute path ending in
	// .yaml). Envoy watches it for changes. Start writes Endpoints to it, and WriteEndpoints changes them. Default: the
	// endpoints are fixed in the text.
	EndpointsFile string
	// HealthPath, without OriginalDst, is a path of the model servers that Envoy itself checks, so that a request
	// without a picker's answer (FailOpen) goes to a ready server. Default: no checks.
	HealthPath string
	// HTTP2 means that the model servers speak HTTP/2 without TLS (h2c) instead of HTTP/1.1.
	HTTP2 bool
	// Retry configures Envoy's attempts for a request. Default: one attempt.
	Retry *gateway.Attempts
}

// Processor is an ext_proc server: an endpoint picker or a payload processor.
type Processor struct {
	// Addresses are the addresses of its gRPC service, host:port. At least one.
	Addresses []string
	// TLS makes Envoy speak TLS to the service, whose certificate it does not check.
	TLS bool
	// Asking sets the parts of messages that Envoy sends to the service (by default full-duplex bodies), how long Envoy
	// waits for an answer, and what happens if the service is gone.
	gateway.Asking
}

// Routing is a way to turn the picker's answer into a connection.
type Routing string

const (
	// OriginalDst connects to any address that the destination header names, as the llm-d charts do.
	OriginalDst Routing = "original-dst"
	// OverrideHost connects to that address if it is one of the pool's endpoints, otherwise round robin: the fallback
	// that FailOpen and retries on another endpoint need.
	OverrideHost Routing = "override-host"
	// RoundRobin is a pool without a picker, like a plain Service: its healthy endpoints in turn.
	RoundRobin Routing = "round-robin"
)

// Route leads requests to a pool.
type Route struct {
	// Headers must be present with exactly these values (keys in lower case).
	Headers map[string]string
	// Pool is the name of the pool.
	Pool string
}

// WithDefaults returns c with all defaults set. The copy shares no data that changes.
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

// validate returns a BadConfig error for the first mistake that otherwise only Envoy would find. The error names the
// field. Mistakes of a scenario are found where the scenario is read.
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
