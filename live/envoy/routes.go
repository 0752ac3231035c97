package envoy

import (
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/core/gateway/upstream"
)

// action routes requests to clusters. It replaces the default timeout of 15 s, which would cut every long answer. The
// timeout begins only when the request has ended, so it never limits a hold anyway.
func (w *writer) action(out *routev3.Route) *routev3.RouteAction {
	a := &routev3.RouteAction{Timeout: duration(0), IdleTimeout: duration(w.limits.IdleTimeout())}
	out.Action = &routev3.Route_Route{Route: a}
	return a
}

// retries makes Envoy retry a route's requests. With choice, it tries another endpoint: the next one that the picker
// named, then round robin among the others. ORIGINAL_DST knows only one address and tries it again.
func (w *writer) retries(out *routev3.Route, a *gateway.Attempts, choice bool) {
	policy := &routev3.RetryPolicy{
		RetryOn:    strings.Join(a.On, ","),
		NumRetries: count(a.Retries),
		RetryBackOff: &routev3.RetryPolicy_RetryBackOff{
			BaseInterval: duration(a.Base), MaxInterval: duration(a.Max)},
	}
	for _, code := range a.Codes {
		policy.RetriableStatusCodes = append(policy.RetriableStatusCodes, uint32(code))
	}
	if a.Try > 0 {
		policy.PerTryTimeout = duration(a.Try)
	}
	if choice {
		policy.RetryHostPredicate = []*routev3.RetryPolicy_RetryHostPredicate{{
			Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
				TypedConfig: w.pack(&previousv3.PreviousHostsPredicate{})},
		}}
		policy.HostSelectionRetryMaxAttempts = upstream.Reselections
	}
	out.GetRoute().RetryPolicy = policy
	// A retry sends the body again, so the buffer must hold all of it.
	out.RequestBodyBufferLimit = wrapperspb.UInt64(uint64(w.limits.ResendBytes()))
}

// overrides changes a filter's configuration for a route.
func (w *writer) overrides(out *routev3.Route, filter string, own proto.Message) {
	if out.TypedPerFilterConfig == nil {
		out.TypedPerFilterConfig = map[string]*anypb.Any{}
	}
	out.TypedPerFilterConfig[filter] = w.pack(own)
}

func headerIs(name string, value *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: value}}
}

func exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func regex(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{
		MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: s}}}
}
