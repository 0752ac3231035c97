package gateway

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// TrafficPolicy is a BackendTrafficPolicy, in the forms of Envoy Gateway and of document 003
// (docs/documents.md#document-003). Where the document gives a field another name or place, the struct has both.
type TrafficPolicy struct {
	objects.Meta
	Targets
	Time    *timePolicy    `json:"timeout"`
	Retries *retryPolicy   `json:"retry"`
	Breaker *breakerPolicy `json:"circuitBreaker"`
	Health  *healthPolicy  `json:"healthCheck"`
	Balance *struct {
		Type    string `json:"type" oneof:"RoundRobin,LeastRequest,Random,ConsistentHash"`
		Hash    inert  `json:"consistentHash"`
		Slow    inert  `json:"slowStart"`
		Zone    inert  `json:"zoneAware"`
		Replace inert  `json:"endpointOverride"`
	} `json:"loadBalancer"`
	Rate *ratePolicy `json:"rateLimit"`

	At strictyaml.Value `json:"."`

	rate *RateLimit
}

// ratePolicy limits the rate of a route's requests, in each Envoy separately.
type ratePolicy struct {
	Type   string `json:"type" oneof:"Local,Global"`
	Global inert  `json:"global"`
	Local  *struct {
		Rules []struct {
			Limit     RateLimit        `json:"limit"`
			Selectors strictyaml.Value `json:"clientSelectors"`
			At        strictyaml.Value `json:"."`
		} `json:"rules" max:"16"`
	} `json:"local"`
}

// RateLimit lets this many requests of a route pass in a unit of time. It is a bucket of Requests tokens that fills at
// that rate. Envoy answers all other requests with 429.
type RateLimit struct {
	Requests int    `json:"requests" min:"1" max:"4294967295"`
	Unit     string `json:"unit" oneof:"Second,Minute,Hour,Day"`
}

// Every returns the time in which Requests may pass.
func (x *RateLimit) Every() time.Duration {
	return map[string]time.Duration{"Minute": time.Minute, "Hour": time.Hour, "Day": 24 * time.Hour,
		"Second": time.Second}[x.Unit]
}

// limit returns the rule for all clients, or nil where there is none, and warns about others.
func (x *ratePolicy) limit() (out *RateLimit) {
	if x.Local == nil {
		return nil
	}
	for i := range x.Local.Rules {
		switch r := &x.Local.Rules[i]; {
		case r.Selectors.Given():
			r.At.Warn("the rule is for some clients only", "",
				"it has no effect here: give a rule without clientSelectors")
		case out != nil:
			r.At.Warn("another rule is for all clients already", "", "this one has no effect")
		default:
			out = &r.Limit
		}
	}
	return out
}

type timePolicy struct {
	HTTP *struct {
		Request *Duration `json:"requestTimeout"`
		Idle    inert     `json:"connectionIdleTimeout"`
		Most    inert     `json:"maxConnectionDuration"`
		Stream  inert     `json:"streamTimeout"`
	} `json:"http"`
	TCP *struct {
		Connect *Duration `json:"connectTimeout"`
	} `json:"tcp"`
	// Request and Connect are document 003's fields.
	Request *Duration `json:"request"`
	Connect *Duration `json:"backend"`
}

type retryPolicy struct {
	Retries *int    `json:"numRetries" min:"0" max:"100"`
	On      retryOn `json:"retryOn"`
	Each    *struct {
		Timeout *Duration `json:"timeout"`
		BackOff *backOff  `json:"backOff"`
	} `json:"perRetry"`
	Attempts inert `json:"numAttemptsPerPriority"`
	// The other fields are document 003's.
	Try     *Duration `json:"perTryTimeout"`
	Codes   []int     `json:"retriableStatusCodes" max:"64"`
	BackOff *backOff  `json:"backoff"`
	Budget  *struct {
		Percent *float64 `json:"minRetriesPercent" min:"0" max:"100"`
		Ratio   inert    `json:"retryRatio"`
	} `json:"retryBudget"`
}

type backOff struct {
	Base       *Duration `json:"baseInterval"`
	Max        *Duration `json:"maxInterval"`
	Multiplier *float64  `json:"multiplier"`
}

// retryOn is one list in document 003 and two lists in Envoy Gateway.
type retryOn struct {
	Triggers []string `json:"triggers" max:"32"`
	Codes    []int    `json:"httpStatusCodes" max:"64"`
}

// ReadYAML reads either form.
func (x *retryOn) ReadYAML(v strictyaml.Value) strictyaml.Problems {
	if v.IsList() {
		return v.Decode(&x.Triggers)
	}
	type plain retryOn
	return v.Decode((*plain)(x))
}

type breakerPolicy struct {
	Connections *int `json:"maxConnections" min:"0"`
	Pending     *int `json:"maxPendingRequests" min:"0"`
	Requests    *int `json:"maxParallelRequests" min:"0"`
	Retries     *int `json:"maxParallelRetries" min:"0"`
	Budget      *struct {
		Percent *Fraction `json:"percent"`
		Least   *int      `json:"minRetryConcurrency" min:"0"`
	} `json:"retryBudget"`
	PerConnection inert `json:"maxRequestsPerConnection"`
	// The other fields are document 003's.
	AllRequests *int     `json:"maxRequests" min:"0"`
	AllRetries  *int     `json:"maxRetries" min:"0"`
	Outlier     *Outlier `json:"outlierDetection"`
}

type healthPolicy struct {
	Passive *Outlier `json:"passive"`
	Active  inert    `json:"active"`
	Panic   inert    `json:"panicThreshold"`
}

// Outlier says when Envoy ejects an endpoint, and for how long. A nil field has Envoy's or Envoy Gateway's default.
type Outlier struct {
	Consecutive5xx     *int      `json:"consecutive5XxErrors" min:"0"`
	Document5xx        *int      `json:"consecutive5xxErrors" min:"0"`
	Gateway            *int      `json:"consecutiveGatewayErrors" min:"0"`
	LocalOrigin        *int      `json:"consecutiveLocalOriginFailures" min:"0"`
	Split              bool      `json:"splitExternalLocalOriginErrors"`
	Interval           *Duration `json:"interval"`
	Base               *Duration `json:"baseEjectionTime"`
	MaxPercent         *int      `json:"maxEjectionPercent" min:"0" max:"100"`
	SuccessRate        *int      `json:"enforcingSuccessRate" min:"0" max:"100"`
	SuccessHosts       *int      `json:"successRateMinimumHosts" min:"0"`
	SuccessVolume      *int      `json:"successRateRequestVolume" min:"0"`
	FailurePercent     *int      `json:"failurePercentageThreshold" min:"0" max:"100"`
	AlwaysEjectOneHost bool      `json:"alwaysEjectOneEndpoint"`
}

// Retrying says when and how Envoy retries a route's requests.
type Retrying struct {
	// Retries is the number of retries after the first attempt.
	Retries int
	// On are Envoy's conditions. Codes are the statuses for retriable-status-codes.
	On    []string
	Codes []int
	// Try limits one attempt; 0 is no limit. Base and Max bound the wait before the next one; 0 is Envoy's default.
	Try, Base, Max Duration
}

// Limits are a backend's limits. A nil field is not set.
type Limits struct {
	Connections, Pending, Requests, Retries *int
	// Budget is the percentage of active requests that may be retries. Least is how many may be retries in any case.
	Budget *float64
	Least  *int
	// Connect limits the time to set up a connection.
	Connect *Duration
	Outlier *Outlier
	// Balancer says how Envoy chooses an endpoint where no picker does: LeastRequest, Random, or RoundRobin.
	Balancer *string
}

// Balances returns Balancer or its default.
func (l *Limits) Balances() string {
	if l == nil || l.Balancer == nil {
		return RoundRobin
	}
	return *l.Balancer
}

// The ways to choose an endpoint, as Envoy Gateway names them.
const (
	RoundRobin   = "RoundRobin"
	LeastRequest = "LeastRequest" // of two that are drawn, the one with fewer requests
	Random       = "Random"
)

// triggers are Envoy's retry conditions.
var triggers = []string{"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "envoy-ratelimited",
	"retriable-4xx", "refused-stream",
	"retriable-status-codes", "retriable-headers", "http3-post-connect-failure", "cancelled", "deadline-exceeded",
	"internal", "resource-exhausted", "unavailable"}

func (x *TrafficPolicy) check(v strictyaml.Value) {
	if len(x.all()) == 0 {
		v.Get("targetRefs").Fail("there are none",
			"what the policy is about: an HTTPRoute, a Gateway, or an InferencePool as in document 003", "")
	}
	for _, t := range x.all() {
		if !slices.Contains([]string{"HTTPRoute", "Gateway", "InferencePool", "Service"}, t.Kind) {
			k := t.At.Get("kind")
			k.Fail(k.Found(), "HTTPRoute, Gateway, InferencePool or Service", "")
		}
	}
	if b := x.Balance; b != nil && b.Type == "ConsistentHash" {
		v.Get("loadBalancer").Get("type").Warn("found ConsistentHash", "",
			"it has no effect here: requests go round robin; RoundRobin, LeastRequest and Random act")
	}
	if x.Rate != nil {
		x.rate = x.Rate.limit()
	}
	r := x.Retries
	if r == nil {
		return
	}
	list := v.Get("retry").Get("retryOn")
	if list.IsMapping() {
		list = list.Get("triggers")
	}
	for _, e := range list.List() {
		if !slices.Contains(triggers, e.Scalar()) {
			e.Fail(e.Found(), "one of Envoy's conditions", strictyaml.DidYouMean(e.Scalar(), triggers))
		}
	}
	for _, codes := range []strictyaml.Value{v.Get("retry").Get("retriableStatusCodes"),
		v.Get("retry").Get("retryOn").Get("httpStatusCodes")} {
		if !codes.IsList() {
			continue
		}
		for _, e := range codes.List() {
			e.Int(100, 599, 0)
		}
	}
}

// retrying returns the policy's retries, with Envoy Gateway's defaults.
func (r *retryPolicy) retrying() *Retrying {
	out := &Retrying{Retries: Or(r.Retries, 2), On: slices.Clone(r.On.Triggers),
		Codes: slices.Concat(r.On.Codes, r.Codes)}
	if len(out.On) == 0 {
		out.On = []string{"connect-failure", "refused-stream", "unavailable", "cancelled", "retriable-status-codes"}
		if len(out.Codes) == 0 {
			out.Codes = []int{503}
		}
	}
	if len(out.Codes) > 0 && !slices.Contains(out.On, "retriable-status-codes") {
		out.On = append(out.On, "retriable-status-codes")
	}
	try, wait := r.Try, r.BackOff
	if r.Each != nil {
		try, wait = cmp.Or(r.Each.Timeout, try), cmp.Or(r.Each.BackOff, wait)
	}
	if try != nil {
		out.Try = *try
	}
	if wait != nil && wait.Base != nil {
		out.Base = *wait.Base
	}
	if wait != nil && wait.Max != nil {
		out.Max = *wait.Max
	}
	return out
}

// retrying returns the retries of a rule's own retry stanza. They include broken connections.
func (r *Retry) retrying() *Retrying {
	out := &Retrying{Retries: Or(r.Attempts, 1), On: []string{"connect-failure", "refused-stream", "reset"},
		Codes: r.Codes}
	if len(r.Codes) > 0 {
		out.On = append(out.On, "retriable-status-codes")
	}
	if r.Backoff != nil {
		out.Base = *r.Backoff
	}
	return out
}

// limits returns the policy's limits for a backend, or nil where it has none.
func (x *TrafficPolicy) limits() *Limits {
	l := &Limits{}
	if b := x.Breaker; b != nil {
		l.Connections, l.Pending, l.Outlier = b.Connections, b.Pending, b.Outlier
		l.Requests, l.Retries = cmp.Or(b.Requests, b.AllRequests), cmp.Or(b.Retries, b.AllRetries)
		if b.Budget != nil {
			l.Least = b.Budget.Least
			if p := b.Budget.Percent; p != nil {
				share := 100 * float64(p.Numerator) / math.Max(1, float64(p.denominator()))
				l.Budget = &share
			}
		}
	}
	if h := x.Health; h != nil && h.Passive != nil {
		l.Outlier = h.Passive
	}
	if o := l.Outlier; o != nil {
		o.Consecutive5xx = cmp.Or(o.Consecutive5xx, o.Document5xx)
	}
	if r := x.Retries; r != nil && r.Budget != nil {
		l.Budget = r.Budget.Percent
	}
	if t := x.Time; t != nil {
		l.Connect = t.Connect
		if t.TCP != nil {
			l.Connect = cmp.Or(t.TCP.Connect, l.Connect)
		}
	}
	if b := x.Balance; b != nil && b.Type != "ConsistentHash" && b.Type != "" {
		l.Balancer = &b.Type
	}
	if *l == (Limits{}) {
		return nil
	}
	return l
}

// policy returns the policy for an object. Of several, the oldest counts, and the others are Conflicted.
func (b *builder) policy(kind string, m *objects.Meta, many int) *TrafficPolicy {
	var found []*TrafficPolicy
	for i := range b.TrafficPolicies {
		if x := &b.TrafficPolicies[i]; x.about(x.Namespace, kind, m, many) {
			found = append(found, x)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(x, y *TrafficPolicy) int { return objects.Older(x.Meta, y.Meta) })
	target := fmt.Sprintf("%s %s/%s", kind, m.Namespace, m.Name)
	b.judgePolicy(found[0], target, yes("Accepted", "Accepted", "it is in force"))
	for _, x := range found[1:] {
		why := fmt.Sprintf("%s has the policy %s already", target, found[0].Name)
		b.judgePolicy(x, target, no("Accepted", "Conflicted", why))
		b.note(x.At.Problem(why, "", "this one has no effect on it (Conflicted)").Error())
	}
	return found[0]
}

// judgePolicy sets the condition of a policy at a target.
func (b *builder) judgePolicy(x *TrafficPolicy, target string, c Condition) {
	if !slices.ContainsFunc(b.judged[x], func(p ParentStatus) bool { return p.Target == target }) {
		b.judged[x] = append(b.judged[x], ParentStatus{Target: target, Conditions: []Condition{c}})
	}
}

// policies reports the status of BackendTrafficPolicies at their targets.
func (b *builder) policies() {
	for i := range b.TrafficPolicies {
		x := &b.TrafficPolicies[i]
		if at := b.judged[x]; at != nil {
			b.p.Status = append(b.p.Status, Status{Kind: "BackendTrafficPolicy", Meta: x.Meta, Parents: at})
		}
	}
}

// traffic applies a policy to a route. The rule's own settings take precedence. Its breakers apply to the backends,
// which all their routes share.
func (b *builder) traffic(x *TrafficPolicy, to *Route) {
	if x == nil {
		return
	}
	if t := x.Time; t != nil && to.Timeout == nil {
		to.Timeout = t.Request
		if t.HTTP != nil {
			to.Timeout = cmp.Or(t.HTTP.Request, to.Timeout)
		}
	}
	to.RateLimit = cmp.Or(to.RateLimit, x.rate)
	if x.Retries != nil && to.Retrying == nil {
		to.Retrying = x.Retries.retrying()
		if w := cmp.Or(x.Retries.BackOff, &backOff{}); w.Multiplier != nil && *w.Multiplier != 2 {
			b.note(x.At.Get("retry").Problem(fmt.Sprintf("backoff.multiplier %v", *w.Multiplier), "",
				"Envoy always doubles").Error())
		}
	}
	for i := range to.Shares {
		if s := to.Shares[i].Backend; s != nil {
			b.limit(x, s)
		}
	}
}

// limit adds a policy's limits to a backend. Limits that other policies have set take precedence.
func (b *builder) limit(x *TrafficPolicy, to *Backend) {
	more := x.limits()
	if more == nil {
		return
	}
	to.Limits = cmp.Or(to.Limits, &Limits{})
	have := to.Limits
	add(b, x, to, "circuitBreaker.maxConnections", &have.Connections, more.Connections)
	add(b, x, to, "circuitBreaker.maxPendingRequests", &have.Pending, more.Pending)
	add(b, x, to, "circuitBreaker.maxParallelRequests", &have.Requests, more.Requests)
	add(b, x, to, "circuitBreaker.maxParallelRetries", &have.Retries, more.Retries)
	add(b, x, to, "retryBudget", &have.Budget, more.Budget)
	add(b, x, to, "retryBudget.minRetryConcurrency", &have.Least, more.Least)
	add(b, x, to, "the timeout of connections", &have.Connect, more.Connect)
	add(b, x, to, "outlier detection", &have.Outlier, more.Outlier)
	add(b, x, to, "loadBalancer", &have.Balancer, more.Balancer)
	if have.Retries != nil && have.Budget != nil {
		found := fmt.Sprintf("%s has a retryBudget", to.Key)
		b.note(x.At.Problem(found, "", "maxParallelRetries has no effect beside it").Error())
	}
}

// add sets one of a backend's limits from a policy, unless the backend already has another one.
func add[T any](b *builder, x *TrafficPolicy, to *Backend, what string, have **T, more *T) {
	switch {
	case more == nil:
	case *have == nil:
		*have = more
	case !reflect.DeepEqual(*have, more):
		found := fmt.Sprintf("%s: %s has another policy's already", what, to.Key)
		b.note(x.At.Problem(found, "", "this one has no effect on it").Error())
	}
}

// bound computes the strictest limits of the routes that lead to each backend.
func (b *builder) bound() {
	seen := map[*Backend]bool{}
	for _, g := range b.p.Gateways {
		for r := range g.routes {
			for i := range r.Shares {
				x := r.Shares[i].Backend
				if x == nil {
					continue
				}
				if r.Timeout != nil && *r.Timeout > 0 && (x.MaxTimeout == 0 || *r.Timeout < x.MaxTimeout) {
					x.MaxTimeout = *r.Timeout
				}
				b.unheld(r, x)
				retries := 0
				if r.Retrying != nil {
					retries = r.Retrying.Retries
				}
				if !seen[x] || retries < x.MaxRetries {
					x.MaxRetries = retries
				}
				seen[x] = true
			}
		}
	}
}

// unheld removes settings of a route that would cut or repeat requests that its pool's picker holds open: a limit for
// one attempt, and retries for other reasons than connection failures, since part 1 has been sent by then.
func (b *builder) unheld(r *Route, x *Backend) {
	if x.Pool == nil || r.Retrying == nil || !b.holds(x) {
		return
	}
	own := *r.Retrying
	own.Try, own.Codes = 0, nil
	own.On = slices.DeleteFunc(slices.Clone(own.On),
		func(on string) bool { return on != "connect-failure" && on != "refused-stream" })
	if own.Try != r.Retrying.Try || len(own.On) != len(r.Retrying.On) {
		b.note(r.Rule.At.Problem(fmt.Sprintf("the endpoint picker of %s holds requests open", x.Key), "",
			"no attempt has a limit of its own, and only connections are tried again: later part 1 has been sent").
			Error())
	}
	if r.Try != nil {
		b.note(r.Rule.At.Problem(fmt.Sprintf("the endpoint picker of %s holds requests open", x.Key), "",
			"timeouts.backendRequest has no effect").Error())
		r.Try = nil
	}
	r.Retrying = &own
}

// ofBackends applies the policies for pools and Services. They take precedence over those for routes.
func (b *builder) ofBackends(x *Backend) {
	kind, m := "Service", (*objects.Meta)(nil)
	if x.Pool != nil {
		kind, m = "InferencePool", &x.Pool.Meta
	} else {
		m = &x.Service.Meta
	}
	many := 0
	for i := range b.Pools {
		if x.Pool != nil && b.Pools[i].Name == m.Name {
			many++
		}
	}
	if p := b.policy(kind, m, many); p != nil {
		x.policy = p
		b.limit(p, x)
	}
}
