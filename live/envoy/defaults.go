package envoy

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// WithDefaults is c with every default filled in. The copy shares nothing
// that is changed.
func (c Config) WithDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.Admin = cmp.Or(c.Admin, "127.0.0.1:0")
	c.Limits.InFlight = cmp.Or(c.Limits.InFlight, 100_000)
	c.Limits.BodyBytes = cmp.Or(c.Limits.BodyBytes, 4<<20)
	c.Limits.BodyTime = cmp.Or(c.Limits.BodyTime, 5*time.Minute)
	c.Limits.Hold = cmp.Or(c.Limits.Hold, 10*time.Minute)
	c.Pools = slices.Clone(c.Pools)
	for i := range c.Pools {
		c.Pools[i] = c.Pools[i].withDefaults()
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

func (p Pool) withDefaults() Pool {
	p.FailureMode = cmp.Or(p.FailureMode, FailClose)
	if p.Routing == "" {
		p.Routing = OriginalDst
		if p.FailureMode == FailOpen {
			p.Routing = OverrideHost
		}
	}
	p.Protocol = cmp.Or(p.Protocol, HTTP1)
	p.ConnectTimeout = cmp.Or(p.ConnectTimeout, 5*time.Second)
	p.Picker = p.Picker.withDefaults()
	if p.Retry != nil {
		r := *p.Retry
		if len(r.On) == 0 {
			r.On = []string{"connect-failure", "refused-stream", "reset", "retriable-status-codes"}
		}
		if len(r.StatusCodes) == 0 {
			r.StatusCodes = []uint32{503}
		}
		r.Attempts = cmp.Or(r.Attempts, 3)
		r.BackOff = cmp.Or(r.BackOff, 25*time.Millisecond)
		p.Retry = &r
	}
	return p
}

func (p Processor) withDefaults() Processor {
	p.Mode = cmp.Or(p.Mode, FullDuplex)
	p.MessageTimeout = cmp.Or(p.MessageTimeout, 1000*time.Second)
	p.HealthInterval = cmp.Or(p.HealthInterval, 500*time.Millisecond)
	p.HealthService = cmp.Or(p.HealthService, "envoy.service.ext_proc.v3.ExternalProcessor")
	return p
}

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Validate says what is wrong with c, which must have its defaults: the first
// trouble found, as a BadConfig error that names the field.
func (c Config) Validate() error {
	if _, err := netip.ParseAddrPort(c.Listen); err != nil {
		return fail(BadConfig, err, "listen: %q is not ip:port: %v", c.Listen, err)
	}
	if _, err := netip.ParseAddrPort(c.Admin); err != nil {
		return fail(BadConfig, err, "admin: %q is not ip:port: %v", c.Admin, err)
	}
	if c.Control != "" {
		if _, err := netip.ParseAddrPort(c.Control); err != nil {
			return fail(BadConfig, err, "control: %q is not ip:port: %v", c.Control, err)
		}
		return c.Limits.validate()
	}
	if len(c.Pools) == 0 {
		return fail(BadConfig, nil, "pools: there are none; a gateway needs at least one pool with a picker")
	}
	names := map[string]bool{}
	for i, p := range c.Pools {
		at := fmt.Sprintf("pools[%d]", i)
		if !dnsLabel.MatchString(p.Name) {
			return fail(BadConfig, nil,
				"%s.name: %q is not a DNS label (lower-case letters, digits and dashes, 63 at most)", at, p.Name)
		}
		if names[p.Name] {
			return fail(BadConfig, nil, "%s.name: %q is there twice", at, p.Name)
		}
		names[p.Name] = true
		if err := p.validate(at); err != nil {
			return err
		}
	}
	if c.BodyRouter != nil {
		if err := c.BodyRouter.validate("bodyRouter"); err != nil {
			return err
		}
	}
	for i, r := range c.Routes {
		if err := r.validate(fmt.Sprintf("routes[%d]", i), names); err != nil {
			return err
		}
	}
	return c.Limits.validate()
}

func (p Pool) validate(at string) error {
	if !slices.Contains([]FailureMode{FailOpen, FailClose}, p.FailureMode) {
		return fail(BadConfig, nil, "%s.failureMode: %q is neither FailOpen nor FailClose", at, p.FailureMode)
	}
	if all := []Routing{OriginalDst, OverrideHost, RoundRobin}; !slices.Contains(all, p.Routing) {
		return fail(BadConfig, nil, "%s.routing: %q is none of %v", at, p.Routing, all)
	}
	if !slices.Contains([]Protocol{HTTP1, HTTP2}, p.Protocol) {
		return fail(BadConfig, nil, "%s.protocol: %q is neither %s nor %s", at, p.Protocol, HTTP1, HTTP2)
	}
	if p.FailureMode == FailOpen && p.Routing == OriginalDst {
		return fail(BadConfig, nil,
			"%s: FailOpen with routing %s has nowhere to send a request that no picker has seen; use %s",
			at, OriginalDst, OverrideHost)
	}
	if p.Routing != OriginalDst && len(p.Endpoints) == 0 && p.EndpointsFile == "" {
		return fail(BadConfig, nil, "%s.endpoints: there are none, and routing %s chooses among them", at, p.Routing)
	}
	if f := p.EndpointsFile; f != "" && (!filepath.IsAbs(f) || filepath.Ext(f) != ".yaml") {
		return fail(BadConfig, nil, "%s.endpointsFile: %q is not an absolute path ending in .yaml", at, f)
	}
	for j, e := range p.Endpoints {
		if a, err := netip.ParseAddrPort(e); err != nil || a.Port() == 0 {
			return fail(BadConfig, err,
				"%s.endpoints[%d]: %q is not ip:port (a literal address: the picker's answer is one too)", at, j, e)
		}
	}
	if p.HealthPath != "" && !strings.HasPrefix(p.HealthPath, "/") {
		return fail(BadConfig, nil, "%s.healthPath: %q does not begin with /", at, p.HealthPath)
	}
	if p.ConnectTimeout < 0 {
		return fail(BadConfig, nil, "%s.connectTimeout: %v is negative", at, p.ConnectTimeout)
	}
	if r := p.Retry; r != nil && (r.Attempts < 1 || r.Attempts > 100 || r.BackOff < time.Millisecond) {
		return fail(BadConfig, nil,
			"%s.retry: %d attempts with %v back-off; expected 1 to 100 attempts and at least 1ms", at, r.Attempts,
			r.BackOff)
	}
	if p.Routing == RoundRobin {
		return nil
	}
	return p.Picker.validate(at + ".picker")
}

func (p Processor) validate(at string) error {
	if len(p.Addresses) == 0 {
		return fail(BadConfig, nil, "%s.addresses: there are none; expected host:port of its ext_proc service", at)
	}
	for i, a := range p.Addresses {
		if _, _, err := splitHostPort(a); err != nil {
			return fail(BadConfig, err, "%s.addresses[%d]: %v", at, i, err)
		}
	}
	if modes := []Mode{FullDuplex, Buffered, Streamed, HeadersOnly}; !slices.Contains(modes, p.Mode) {
		return fail(BadConfig, nil, "%s.mode: %q is none of %v", at, p.Mode, modes)
	} else if p.Responses != "" && !slices.Contains(modes, p.Responses) {
		return fail(BadConfig, nil, "%s.responses: %q is none of %v", at, p.Responses, modes)
	}
	if p.MessageTimeout < 0 || p.HealthInterval < 10*time.Millisecond {
		return fail(BadConfig, nil,
			"%s: messageTimeout %v, healthInterval %v; expected not negative, and at least 10ms", at, p.MessageTimeout,
			p.HealthInterval)
	}
	return nil
}

func (r Route) validate(at string, pools map[string]bool) error {
	switch {
	case r.Path != "" && r.Prefix != "":
		return fail(BadConfig, nil, "%s: both path and prefix are set; expected one", at)
	case r.Path != "" && r.Path[0] != '/', r.Prefix != "" && r.Prefix[0] != '/':
		return fail(BadConfig, nil, "%s: path %q does not begin with /", at, r.Path+r.Prefix)
	case r.Status == 0 && !pools[r.Pool]:
		return fail(BadConfig, nil, "%s.pool: there is no pool named %q", at, r.Pool)
	case r.Status != 0 && (r.Status < 200 || r.Status > 599):
		return fail(BadConfig, nil, "%s.status: %d is not between 200 and 599", at, r.Status)
	case r.Status != 0 && r.Pool != "":
		return fail(BadConfig, nil, "%s: both pool and status are set; expected one", at)
	case len(r.Body) > 4096:
		return fail(BadConfig, nil, "%s.body: %d bytes; Envoy takes 4096 at most", at, len(r.Body))
	}
	return nil
}

func (l Limits) validate() error {
	switch {
	case l.InFlight < 1 || l.InFlight > 1<<30:
		return fail(BadConfig, nil, "limits.inFlight: %d is not between 1 and %d", l.InFlight, 1<<30)
	case l.BodyBytes < 1 || l.BodyBytes > 1<<30:
		return fail(BadConfig, nil, "limits.bodyBytes: %d is not between 1 and %d", l.BodyBytes, 1<<30)
	case l.BodyTime < time.Millisecond || l.BodyTime > 30*24*time.Hour:
		return fail(BadConfig, nil, "limits.bodyTime: %v is not between 1ms and 30 days", l.BodyTime)
	case l.Hold < time.Millisecond || l.Hold > 30*24*time.Hour:
		return fail(BadConfig, nil, "limits.hold: %v is not between 1ms and 30 days", l.Hold)
	}
	return nil
}
