package gateway

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/machine"
)

// Program holds the combined meaning of a Set's objects.
type Program struct {
	// Gateways are the Gateways that are served, sorted by namespace and name.
	Gateways []*Served
	// Backends are the targets of routes and mirrors, without duplicates, sorted by key.
	Backends []*Backend
	// Routers are the body-based routers, sorted by key.
	Routers []*BodyRouter
	// Mistakes are those that only show when objects are combined. Nothing starts where there are any.
	Mistakes error
	// Status has the conditions of every object, as a controller reports them.
	Status []Status
	// Notes say what Build assumed, and which fields have no effect.
	Notes []string
}

// Served is a Gateway with its attached routes.
type Served struct {
	*Gateway
	Ports []*Port
	// Router gets requests before the routes do. It is nil where there is none.
	Router *BodyRouter
}

// Port is one port of a Gateway. An HTTP port has one table for all of its listeners, since a request selects a
// listener by its host. With HTTPS, the server name in the client's TLS handshake selects it, and each listener has its
// own table.
type Port struct {
	Number int
	// Table is nil for HTTPS.
	Table *Table
	// Secure are the listeners of an HTTPS port.
	Secure []*Secure
}

// Secure is an HTTPS listener.
type Secure struct {
	*Listener
	Table *Table
	// Certificates are the Secrets with certificate and key. Without any, the listener serves a certificate generated
	// for it.
	Certificates []*Secret
}

// Table maps the requested hosts to the routes of one port or listener.
type Table struct {
	// Name is <gateway's namespace>/<gateway>/<port>, with the listener's name for HTTPS.
	Name  string
	Hosts []*Host
}

// Host holds the routes of one host: a name, *. and a suffix, or "" for every other one.
type Host struct {
	Domain string
	// Routes are in the order of matching.
	Routes []*Route
}

// Route is one match of one rule.
type Route struct {
	// Name identifies the HTTPRoute, the rule and the match: namespace/name/rule/match.
	Name string
	From *HTTPRoute
	Rule *Rule
	// Domain is the host for which the route is attached at this listener.
	Domain string
	// Secure says that requests come over TLS.
	Secure bool
	Path   PathMatch
	Match  *Match

	// Redirect, where not nil, is the answer. Otherwise one of Shares gets the request. Without any, the client gets a
	// 500.
	Redirect        *Redirect
	Rewrite         *Rewrite
	RequestHeaders  *HeaderModifier
	ResponseHeaders *HeaderModifier
	Mirrors         []MirrorTo
	Shares          []Share
	// Timeout limits the whole exchange, and Try one attempt. Nil is not set.
	Timeout, Try *Duration
	// Retrying is nil where Envoy retries nothing.
	Retrying *Retrying

	// RateLimit is nil where the rate of requests has no limit.
	RateLimit *RateLimit
	// Keys are the API keys. Every request needs one of them. It is nil where requests need none.
	Keys *APIKeys
	// Asking says how Envoy asks the picker. It is nil where no policy sets that.
	Asking *Asking

	rule, match int
	picker      *PickerService // that a policy names
	policed     bool           // set by a policy for the route
}

// Share is one backend of a rule.
type Share struct {
	// Backend is nil where it cannot be used. Its share of the requests gets a 500.
	Backend *Backend
	Weight  int
	// RequestHeaders, ResponseHeaders and Hostname change the requests to this backend only.
	RequestHeaders, ResponseHeaders *HeaderModifier
	Hostname                        string
}

// MirrorTo is the target of copied requests, with the fraction to copy.
type MirrorTo struct {
	Backend                *Backend
	Numerator, Denominator int
}

// Backend is the target of a route: an InferencePool or a Service's port.
type Backend struct {
	// Key is pool/<namespace>/<name> or service/<namespace>/<name>/<port>.
	Key       string
	Namespace string
	Name      string
	Pool      *objects.Pool
	Service   *Service
	Port      ServicePort
	// FailOpen makes Envoy serve a pool's requests without the picker when the picker is gone.
	FailOpen bool
	// Picker is the Service of a pool's endpoint picker. It is nil where nothing names one.
	Picker *PickerService
	// Supplied says that windtunnel's own picker stands in where Picker has no pods. Without Supplied and without pods,
	// nothing picks: Envoy then answers 503, or with FailOpen takes the endpoints in turn.
	Supplied bool
	// HTTP2 says that the pods speak HTTP/2 (h2c) instead of HTTP/1.1.
	HTTP2 bool
	// Limits are a policy's limits, or nil.
	Limits *Limits
	// Health configures the health checks of its endpoints (document 003's healthCheck); nil turns them off.
	Health *objects.Health
	// MaxTimeout and MaxRetries limit what clients may request (x-request-timeout, x-max-retries). They are the
	// strictest values of the routes that lead here. 0 is no limit, and no retry.
	MaxTimeout Duration
	MaxRetries int

	policy *TrafficPolicy // for the backend itself
}

// Ejects reports whether a policy may eject endpoints of pools.
func (p *Program) Ejects() bool {
	return slices.ContainsFunc(p.Backends, func(b *Backend) bool {
		return b.Pool != nil && (b.Health != nil || b.Limits != nil && b.Limits.Outlier != nil)
	})
}

// PickerService names the Service of an endpoint picker, and the Service's port; 0 is any.
type PickerService struct {
	Namespace, Name string
	Port            int
}

// Options configure Build.
type Options struct {
	// Controller is the name of the controller whose classes are served. "" serves the Gateways of all classes,
	// including classes that are not among the objects.
	Controller string
	// Supply adds what a cluster's operators and controllers would have provided: a picker for a pool whose picker's
	// Service is missing, and a certificate for a listener whose Secret is missing. A note reports each addition.
	Supply bool
	// Scenario says that a scenario places the servers, and not Deployments alone.
	Scenario bool
}

// builder holds the state of one Build.
type builder struct {
	*Set
	o        Options
	p        *Program
	backends map[string]*Backend
	gateways map[string]*attachable
	noted    map[string]bool
	judged   map[*TrafficPolicy][]ParentStatus
}

// attachable is a Gateway to which routes are being attached.
type attachable struct {
	*Gateway
	listeners []*listener
}

type listener struct {
	*Listener
	secrets  []*Secret
	entries  []*Route
	attached int
	kinds    bool // HTTPRoutes may attach
	status   ListenerStatus
	good     bool
}

// Build returns the Program of a Set. The Set must have been read without mistakes.
func Build(s *Set, o Options) *Program {
	b := &builder{Set: s, o: o, p: &Program{}, backends: map[string]*Backend{}, gateways: map[string]*attachable{},
		noted: map[string]bool{}, judged: map[*TrafficPolicy][]ParentStatus{}}
	b.expand()
	b.classes()
	for i := range s.Gateways {
		if g := &s.Gateways[i]; b.serves(g.Class) {
			b.gateways[g.Namespace+"/"+g.Name] = b.open(g)
		}
	}
	for _, r := range byAge(s.Routes) {
		b.attach(r)
	}
	for i := range s.Gateways {
		if a := b.gateways[s.Gateways[i].Namespace+"/"+s.Gateways[i].Name]; a != nil {
			b.close(a)
		}
	}
	machine.SortFunc(b.p.Gateways, func(x, y *Served) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	for _, x := range b.backends {
		b.p.Backends = append(b.p.Backends, x)
	}
	machine.SortFunc(b.p.Backends, func(x, y *Backend) int { return strings.Compare(x.Key, y.Key) })
	b.pools()
	b.policies()
	b.bound()
	b.routers()
	b.unserved()
	b.unread()
	b.p.Status = b.unmade(b.p.Status)
	machine.SortStableFunc(b.p.Status, func(x, y Status) int {
		return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Namespace, y.Namespace),
			strings.Compare(x.Name, y.Name))
	})
	return b.p
}

// byAge returns the routes, oldest first; routes of one age are in the order of their names.
func byAge(routes []HTTPRoute) []*HTTPRoute {
	out := make([]*HTTPRoute, len(routes))
	for i := range routes {
		out[i] = &routes[i]
	}
	machine.SortFunc(out, func(a, b *HTTPRoute) int {
		if a.Created != "" && b.Created != "" && a.Created != b.Created {
			return strings.Compare(a.Created, b.Created)
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return out
}

func (b *builder) note(text string) {
	if !b.noted[text] {
		b.noted[text] = true
		b.p.Notes = append(b.p.Notes, text)
	}
}

// mistake adds a mistake that only shows when objects are combined.
func (b *builder) mistake(err error) { b.p.Mistakes = errors.Join(b.p.Mistakes, err) }

// close makes a Gateway's tables from the routes attached to its listeners.
func (b *builder) close(a *attachable) {
	served := &Served{Gateway: a.Gateway}
	var numbers []int
	for _, l := range a.listeners {
		if l.good && !slices.Contains(numbers, l.Port) {
			numbers = append(numbers, l.Port)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		var on []*listener
		for _, l := range a.listeners {
			if l.good && l.Port == n {
				on = append(on, l)
			}
		}
		port := &Port{Number: n}
		name := served.Namespace + "/" + served.Name + "/" + itoa(n)
		if on[0].Protocol == "HTTPS" {
			for _, l := range on {
				port.Secure = append(port.Secure,
					&Secure{Listener: l.Listener, Certificates: l.secrets,
						Table: table(name+"/"+l.Name, []*listener{l})})
			}
		} else {
			port.Table = table(name, on)
		}
		served.Ports = append(served.Ports, port)
	}
	b.gatewayStatus(a, len(served.Ports) > 0)
	if len(served.Ports) > 0 {
		b.p.Gateways = append(b.p.Gateways, served)
	}
}
