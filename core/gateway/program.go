package gateway

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// Program holds what a Set's objects mean together.
type Program struct {
	// Gateways are those that are served, by namespace and name.
	Gateways []*Served
	// Backends hold what routes and mirrors lead to, each once, by their keys.
	Backends []*Backend
	// Routers are the body-based routers, by their keys.
	Routers []*BodyRouter
	// Mistakes are those that show only when objects are taken together; nothing is
	// brought up with them.
	Mistakes error
	// Status are the conditions of every object, as a controller reports them.
	Status []Status
	// Notes say what was taken to be meant, and what has no effect.
	Notes []string
}

// Served is a Gateway with what is attached to it.
type Served struct {
	*Gateway
	Ports []*Port
	// Router sees requests before the routes do; nil where there is none.
	Router *BodyRouter
}

// Port is one port of a Gateway. An HTTP port has one table for all of its
// listeners, since a request says by its host which it means; with HTTPS the name
// that the client sends in the TLS handshake does, and each listener has its own.
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
	// Certificates are the Secrets with certificate and key; without any the
	// listener serves a certificate made for the occasion.
	Certificates []*Secret
}

// Table is the routes of one port or listener by the host that is asked for.
type Table struct {
	// Name is <gateway's namespace>/<gateway>/<port>, with the listener's name for HTTPS.
	Name  string
	Hosts []*Host
}

// Host is the routes of one host: a name, *. and a suffix, or "" for every other.
type Host struct {
	Domain string
	// Routes are tried in this order.
	Routes []*Route
}

// Route is one match of one rule.
type Route struct {
	// Name reports the HTTPRoute, the rule and the match: namespace/name/rule/match.
	Name string
	From *HTTPRoute
	Rule *Rule
	// Domain is the host that the route is attached for at this listener.
	Domain string
	// Secure says that requests come over TLS.
	Secure bool
	Path   PathMatch
	Match  *Match

	// Of what follows Redirect is the answer, where it is given; otherwise one of
	// Shares gets the request, and without any the client a 500.
	Redirect        *Redirect
	Rewrite         *Rewrite
	RequestHeaders  *HeaderModifier
	ResponseHeaders *HeaderModifier
	Mirrors         []MirrorTo
	Shares          []Share
	// Timeout bounds the whole exchange, Try one attempt; nil is not said.
	Timeout, Try *Duration
	// Retrying is nil where nothing is tried again.
	Retrying *Retrying

	// Keys are those that requests need one of; nil where none is asked for.
	Keys *APIKeys
	// Asking is how the picker is asked, nil where no policy says that.
	Asking *Asking

	rule, match int
	picker      *PickerService // that a policy names
	policed     bool           // by a policy about the route
}

// Share is one backend of a rule.
type Share struct {
	// Backend is nil for one that cannot be used: its share of the requests gets
	// a 500.
	Backend *Backend
	Weight  int
	// RequestHeaders, ResponseHeaders and Hostname change what goes to this one.
	RequestHeaders, ResponseHeaders *HeaderModifier
	Hostname                        string
}

// MirrorTo is where copies of requests go, and of how many.
type MirrorTo struct {
	Backend                *Backend
	Numerator, Denominator int
}

// Backend holds what a route leads to: an InferencePool or a Service's port.
type Backend struct {
	// Key is pool/<namespace>/<name> or service/<namespace>/<name>/<port>.
	Key       string
	Namespace string
	Name      string
	Pool      *objects.Pool
	Service   *Service
	Port      ServicePort
	// FailOpen serves a pool's requests without its picker where that is gone.
	FailOpen bool
	// Picker is the Service of a pool's endpoint picker, nil where nothing names one.
	Picker *PickerService
	// HTTP2 holds what the pods speak (h2c), instead of HTTP/1.1.
	HTTP2 bool
	// Limits are those of a policy, nil where none says any.
	Limits *Limits
	// Health is how its endpoints are probed (document 003's healthCheck); nil is not.
	Health *objects.Health
	// MaxTimeout and MaxRetries bound what clients may ask for (x-request-timeout,
	// x-max-retries): the strictest that the routes which lead here have; 0 is no
	// limit, and no retry.
	MaxTimeout Duration
	MaxRetries int

	policy *TrafficPolicy // about the backend itself
}

// Ejects says whether a policy takes endpoints of pools out for a time.
func (p *Program) Ejects() bool {
	return slices.ContainsFunc(p.Backends, func(b *Backend) bool {
		return b.Pool != nil && (b.Health != nil || b.Limits != nil && b.Limits.Outlier != nil)
	})
}

// PickerService names the Service of an endpoint picker.
type PickerService struct{ Namespace, Name string }

// Options of Build.
type Options struct {
	// Controller is the name of the controller whose classes are served; "" serves
	// the Gateways of all classes, also of those that are not among the objects.
	Controller string
	// Supply makes up what a cluster's operators and controllers would have put
	// there: a picker for a pool whose picker's Service is missing, a certificate
	// for a listener whose Secret is. It is noted each time.
	Supply bool
	// Scenario says that a scenario, and not Deployments alone, says where servers are.
	Scenario bool
}

// builder makes a Program.
type builder struct {
	*Set
	o        Options
	p        *Program
	backends map[string]*Backend
	gateways map[string]*attachable
	noted    map[string]bool
	judged   map[*TrafficPolicy][]ParentStatus
}

// attachable is a Gateway while routes are attached to it.
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

// Build makes the Program of a Set that was read without mistakes.
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
	slices.SortFunc(b.p.Gateways, func(x, y *Served) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	for _, x := range b.backends {
		b.p.Backends = append(b.p.Backends, x)
	}
	slices.SortFunc(b.p.Backends, func(x, y *Backend) int { return strings.Compare(x.Key, y.Key) })
	b.pools()
	b.policies()
	b.bound()
	b.routers()
	b.unserved()
	b.unread()
	b.p.Status = b.unmade(b.p.Status)
	slices.SortStableFunc(b.p.Status, func(x, y Status) int {
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
	slices.SortFunc(out, func(a, b *HTTPRoute) int {
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

// mistake adds one that shows only when objects are taken together.
func (b *builder) mistake(err error) { b.p.Mistakes = errors.Join(b.p.Mistakes, err) }

// close makes a Gateway's tables of what is attached to its listeners.
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
