package envoy

import (
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func (c Config) route(i int, r Route) (*routev3.Route, error) {
	route := &routev3.Route{Name: r.name(i), Match: r.match()}
	if r.Status != 0 {
		direct := &routev3.DirectResponseAction{Status: uint32(r.Status)}
		if r.Body != "" {
			direct.Body = &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: r.Body}}
		}
		route.Action = &routev3.Route_DirectResponse{DirectResponse: direct}
		return route, c.asks(route,
			&extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true}})
	}
	pool := c.pool(r.Pool)
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: PoolCluster(pool.Name)},
		// The default of 15 s would cut every long answer. It begins only when
		// the request has ended, so it never bounds a hold anyway.
		Timeout:     duration(0),
		IdleTimeout: duration(c.Limits.idleTimeout()),
	}
	route.Action = &routev3.Route_Route{Route: action}
	if pool.Retry != nil {
		retry, err := pool.retryPolicy()
		if err != nil {
			return nil, err
		}
		action.RetryPolicy = retry
		// A retry sends the body again, so all of it must fit. Part 1 of a
		// held request is somewhat longer than the client's body.
		route.RequestBodyBufferLimit = wrapperspb.UInt64(uint64(max(connectionBufferBytes, c.Limits.BodyBytes+64<<10)))
	}
	switch first := c.asked(); {
	case pool.Routing == RoundRobin:
		return route, c.asks(route,
			&extprocv3.ExtProcPerRoute{Override: &extprocv3.ExtProcPerRoute_Disabled{Disabled: true}})
	case pool.Name != first.Name:
		return route, c.asks(route, pickerOverride(pool))
	}
	return route, nil
}

// asks has a route ask another picker than the chain's, or none.
func (c Config) asks(route *routev3.Route, own *extprocv3.ExtProcPerRoute) error {
	if c.asked() == nil { // there is no filter that it could say anything of
		return nil
	}
	config, err := pack(own)
	route.TypedPerFilterConfig = map[string]*anypb.Any{pickerFilter: config}
	return err
}

func (c Config) pool(name string) Pool {
	for _, p := range c.Pools {
		if p.Name == name {
			return p
		}
	}
	return Pool{} // Validate has made sure that there is one
}

// name is what the access log calls the route.
func (r Route) name(i int) string {
	to := r.Pool
	if to == "" {
		to = fmt.Sprint(r.Status)
	}
	return fmt.Sprintf("%d-%s", i, to)
}

func (r Route) match() *routev3.RouteMatch {
	m := &routev3.RouteMatch{}
	switch {
	case r.Path != "":
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: r.Path}
	case r.Prefix != "":
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: r.Prefix}
	default:
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	}
	for _, key := range sortedKeys(r.Headers) {
		m.Headers = append(m.Headers, &routev3.HeaderMatcher{
			Name: key,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Exact{Exact: r.Headers[key]},
			}},
		})
	}
	return m
}

// retryPolicy tries another endpoint where there is a choice: with
// OverrideHost the next that the picker named, then round robin among those
// not tried yet. ORIGINAL_DST knows one address and tries it again.
func (p Pool) retryPolicy() (*routev3.RetryPolicy, error) {
	r := p.Retry
	policy := &routev3.RetryPolicy{
		RetryOn:              strings.Join(r.On, ","),
		NumRetries:           count(r.Attempts - 1),
		RetriableStatusCodes: r.StatusCodes,
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: duration(r.BackOff),
			MaxInterval:  duration(min(10*r.BackOff, max(r.BackOff, time.Second))),
		},
	}
	if p.Routing == OriginalDst {
		return policy, nil
	}
	previous, err := pack(&previousv3.PreviousHostsPredicate{})
	if err != nil {
		return nil, err
	}
	policy.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{
		Name:       "envoy.retry_host_predicates.previous_hosts",
		ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: previous},
	}}
	policy.HostSelectionRetryMaxAttempts = 5
	return policy, nil
}
