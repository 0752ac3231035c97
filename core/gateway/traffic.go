package gateway

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/windtunnel/windtunnel/core/epp/picker/objects"
	"github.com/windtunnel/windtunnel/core/wire/strictyaml"
)

// TrafficPolicy is a BackendTrafficPolicy, as Envoy Gateway and document 003
// (docs/documents.md#document-003) write it. Where the document gives a field
// another name or place, both stand side by side.
type TrafficPolicy struct {
	objects.Meta
	Targets
	Time    *timePolicy    `json:"timeout"`
	Retries *retryPolicy   `json:"retry"`
	Breaker *breakerPolicy `json:"circuitBreaker"`
	Health  *healthPolicy  `json:"healthCheck"`

	At strictyaml.Value `json:"."`
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
	// Request and Connect are document 003's.
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
	// The rest is document 003's.
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

// retryOn is a list in document 003, and two of them in Envoy Gateway.
type retryOn struct {
	Triggers []string `json:"triggers" max:"32"`
	Codes    []int    `json:"httpStatusCodes" max:"64"`
}

// ReadYAML reads either.
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
	// The rest is document 003's.
	AllRequests *int     `json:"maxRequests" min:"0"`
	AllRetries  *int     `json:"maxRetries" min:"0"`
	Outlier     *Outlier `json:"outlierDetection"`
}

type healthPolicy struct {
	Passive *Outlier `json:"passive"`
	Active  inert    `json:"active"`
	Panic   inert    `json:"panicThreshold"`
}

// Outlier is when an endpoint is ejected, and for how long. A nil field is Envoy's
// own default, or Envoy Gateway's.
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

// Retrying is when a route's requests are tried again, and how.
type Retrying struct {
	// Retries is how often, beside the first attempt.
	Retries int
	// On are Envoy's conditions, Codes those of retriable-status-codes.
	On    []string
	Codes []int
	// Try bounds one attempt; 0 does not. Base and Max are the time before the
	// next one; 0 is Envoy's own.
	Try, Base, Max Duration
}

// Limits are a backend's, nil where nothing is said.
type Limits struct {
	Connections, Pending, Requests, Retries *int
	// Budget is the share of active requests that may be retries, in percent, and
	// Least how many always may.
	Budget *float64
	Least  *int
	// Connect bounds how long a connection may take.
	Connect *Duration
	Outlier *Outlier
}

// triggers are the conditions that Envoy knows.
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

// retrying returns what the policy says of retries, with Envoy Gateway's defaults.
func (r *retryPolicy) retrying() *Retrying {
	out := &Retrying{Retries: 2, On: slices.Clone(r.On.Triggers), Codes: slices.Concat(r.On.Codes, r.Codes)}
	if r.Retries != nil {
		out.Retries = *r.Retries
	}
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

// retrying returns what a rule's own retry stanza says: broken connections are retried,
// too.
func (r *Retry) retrying() *Retrying {
	out := &Retrying{Retries: 1, On: []string{"connect-failure", "refused-stream", "reset"}, Codes: r.Codes}
	if r.Attempts != nil {
		out.Retries = *r.Attempts
	}
	if len(r.Codes) > 0 {
		out.On = append(out.On, "retriable-status-codes")
	}
	if r.Backoff != nil {
		out.Base = *r.Backoff
	}
	return out
}

// limits are those of a backend, nil where the policy says nothing of them.
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
	if *l == (Limits{}) {
		return nil
	}
	return l
}

// policy is the policy about an object. Of several the oldest counts; the others are Conflicted.
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

// judgePolicy says what became of a policy at a target.
func (b *builder) judgePolicy(x *TrafficPolicy, target string, c Condition) {
	if !slices.ContainsFunc(b.judged[x], func(p ParentStatus) bool { return p.Target == target }) {
		b.judged[x] = append(b.judged[x], ParentStatus{Target: target, Conditions: []Condition{c}})
	}
}

// policies reports of BackendTrafficPolicies at their targets.
func (b *builder) policies() {
	for i := range b.TrafficPolicies {
		x := &b.TrafficPolicies[i]
		if at := b.judged[x]; at != nil {
			b.p.Status = append(b.p.Status, Status{Kind: "BackendTrafficPolicy", Meta: x.Meta, Parents: at})
		}
	}
}

// traffic puts a policy about a route into force; what the rule itself says comes
// before it. Its breakers are the backends', which all routes to them share.
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

// limit adds what a policy says of a backend to what others have said of it, which counts.
func (b *builder) limit(x *TrafficPolicy, to *Backend) {
	more := x.limits()
	if more == nil {
		return
	}
	if to.Limits == nil {
		to.Limits = &Limits{}
	}
	have := to.Limits
	add(b, x, to, "circuitBreaker.maxConnections", &have.Connections, more.Connections)
	add(b, x, to, "circuitBreaker.maxPendingRequests", &have.Pending, more.Pending)
	add(b, x, to, "circuitBreaker.maxParallelRequests", &have.Requests, more.Requests)
	add(b, x, to, "circuitBreaker.maxParallelRetries", &have.Retries, more.Retries)
	add(b, x, to, "retryBudget", &have.Budget, more.Budget)
	add(b, x, to, "retryBudget.minRetryConcurrency", &have.Least, more.Least)
	add(b, x, to, "the timeout of connections", &have.Connect, more.Connect)
	add(b, x, to, "outlier detection", &have.Outlier, more.Outlier)
	if have.Retries != nil && have.Budget != nil {
		found := fmt.Sprintf("%s has a retryBudget", to.Key)
		b.note(x.At.Problem(found, "", "maxParallelRetries has no effect beside it").Error())
	}
}

// add adds one of a policy's limits, unless the backend has another one already.
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

// bound finds the strictest limits of the routes that lead to each backend.
func (b *builder) bound() {
	seen := map[*Backend]bool{}
	for _, g := range b.p.Gateways {
		for _, t := range g.Tables() {
			for _, h := range t.Hosts {
				for _, r := range h.Routes {
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
	}
}

// unheld takes out of a route what would cut or repeat requests that its pool's picker
// holds open: a limit of one attempt, and retries of more than connections, since part
// 1 has been sent by then.
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

// ofBackends puts the policies about pools and Services into force, which come
// before those about routes.
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
