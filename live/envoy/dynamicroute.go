package envoy

import (
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	keysv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/windtunnel/windtunnel/core/gateway"
	"github.com/windtunnel/windtunnel/live/serve"
)

// unusable names a cluster that never exists. Envoy answers its requests with the code that the route sets (500).
const unusable = "unusable"

// route translates a route to Envoy's. The result has two routes if a prefix and the path without a suffix are
// rewritten differently.
func (t *translation) route(r *gateway.Route, at string) []*routev3.Route {
	out := &routev3.Route{Name: r.Name, Match: matchOf(r)}
	out.RequestHeadersToAdd, out.RequestHeadersToRemove = headersOf(r.RequestHeaders)
	out.ResponseHeadersToAdd, out.ResponseHeadersToRemove = headersOf(r.ResponseHeaders)
	if r.Keys != nil {
		f := keyFilter(r.Keys)
		t.overrides(out, keysFilter, &keysv3.ApiKeyAuthPerRoute{Credentials: f.Credentials, KeySources: f.KeySources,
			Forwarding: f.Forwarding})
	}
	if r.RateLimit != nil {
		t.overrides(out, rateLimitFilter, rateFilter(r.RateLimit))
	}
	if r.Redirect != nil {
		return redirects(r, out, at)
	}
	if len(r.Shares) == 0 {
		out.Action = &routev3.Route_DirectResponse{
			DirectResponse: &routev3.DirectResponseAction{Status: gateway.StatusUnusable}}
		return []*routev3.Route{out}
	}
	action := t.action(out)
	action.ClusterNotFoundResponseCode = routev3.RouteAction_INTERNAL_SERVER_ERROR
	attempts := r.Attempts() // Envoy's 0 is no timeout
	action.Timeout = duration(attempts.Whole)
	if r.Retrying != nil {
		t.retries(out, &attempts, true)
	}
	for _, m := range r.Mirrors {
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies,
			&routev3.RouteAction_RequestMirrorPolicy{Cluster: m.Backend.Key, DisableShadowHostSuffixAppend: true,
				RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: fraction(m.Numerator, m.Denominator)}})
	}
	t.shares(r, out, action)
	rewriteOf(r, action)
	return []*routev3.Route{out}
}

// shares sets the clusters that get the requests, and the pickers that Envoy asks for them.
func (t *translation) shares(r *gateway.Route, out *routev3.Route, action *routev3.RouteAction) {
	if s := &r.Shares[0]; len(r.Shares) == 1 && s.RequestHeaders == nil && s.ResponseHeaders == nil {
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: clusterOf(s)}
		if s.Hostname != "" {
			action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: s.Hostname}
		}
		if own := t.asks(r, s); own != nil {
			t.overrides(out, askingFilter(r), own)
		}
		return
	}
	weighted := &routev3.WeightedCluster{}
	for i := range r.Shares {
		s := &r.Shares[i]
		w := &routev3.WeightedCluster_ClusterWeight{Name: clusterOf(s), Weight: count(s.Weight)}
		w.RequestHeadersToAdd, w.RequestHeadersToRemove = headersOf(s.RequestHeaders)
		w.ResponseHeadersToAdd, w.ResponseHeadersToRemove = headersOf(s.ResponseHeaders)
		if s.Hostname != "" {
			w.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{
				HostRewriteLiteral: s.Hostname}
		}
		if own := t.asks(r, s); own != nil {
			w.TypedPerFilterConfig = map[string]*anypb.Any{askingFilter(r): t.pack(own)}
		}
		weighted.Clusters = append(weighted.Clusters, w)
	}
	action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
}

func clusterOf(s *gateway.Share) string {
	if s.Backend == nil {
		return unusable
	}
	return s.Backend.Key
}

// asks makes the requests for a share's pool ask the pool's picker. It returns nil for a share without a picker.
func (t *translation) asks(r *gateway.Route, s *gateway.Share) proto.Message {
	if s.Backend == nil || s.Backend.Pool == nil {
		return nil
	}
	p := t.Pickers[s.Backend.Key]
	if p.FailOpen = s.Backend.FailOpen; r.Asking != nil {
		p.Asking = *r.Asking
	}
	return askingOverride(pickerCluster(s.Backend.Key), p.withDefaults().Asking, pickerMetadata())
}

// askingFilter returns the name of the filter that asks a route's picker. A timeout belongs to a filter and not to a
// route, so each timeout has a filter of its own.
func askingFilter(r *gateway.Route) string {
	if r.Asking == nil || r.Asking.Timeout == 0 {
		return pickerFilter
	}
	return pickerFilter + "/" + r.Asking.Timeout.String()
}

func fraction(numerator, denominator int) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: uint32(int64(numerator) * 1_000_000 / int64(denominator)),
		Denominator: typev3.FractionalPercent_MILLION}
}

func matchOf(r *gateway.Route) *routev3.RouteMatch {
	m := &routev3.RouteMatch{}
	prefix := r.Prefix()
	switch {
	case r.Path.Type == gateway.Exact:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: r.Path.Value}
	case r.Path.Type == gateway.Regex:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: r.Path.Value}}
	case prefix == "":
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	default:
		m.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: prefix}
	}
	if r.Match.Method != "" {
		m.Headers = append(m.Headers, headerIs(":method", exactly(r.Match.Method)))
	}
	for _, h := range r.Match.Headers {
		m.Headers = append(m.Headers, headerIs(strings.ToLower(h.Name), valueOf(&h)))
	}
	for _, q := range r.Match.Query {
		m.QueryParameters = append(m.QueryParameters, &routev3.QueryParameterMatcher{Name: q.Name,
			QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{StringMatch: valueOf(&q)}})
	}
	return m
}

func valueOf(m *gateway.ValueMatch) *matcherv3.StringMatcher {
	if m.Type == gateway.Regex {
		return regex(m.Value)
	}
	return exactly(m.Value)
}

// headersOf translates a header modifier. It doubles percent signs, because a single one would begin one of Envoy's
// variables.
func headersOf(m *gateway.HeaderModifier) (add []*corev3.HeaderValueOption, remove []string) {
	if m == nil {
		return nil, nil
	}
	to := func(list []gateway.HeaderValue, action corev3.HeaderValueOption_HeaderAppendAction) {
		for _, h := range list {
			x := &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: strings.ToLower(h.Name), Value: h.Value},
				AppendAction: action}
			if !h.Variables {
				x.Header.Value = strings.ReplaceAll(h.Value, "%", "%%")
			} else if action == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
				x.AppendAction = corev3.HeaderValueOption_ADD_IF_ABSENT
			}
			add = append(add, x)
		}
	}
	to(m.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	to(m.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	for _, name := range m.Remove {
		remove = append(remove, strings.ToLower(name))
	}
	return add, remove
}

// rewriteOf changes the host and path for the backend. A prefix's replacement has no slash at its end, because paths
// below it would then have two.
func rewriteOf(r *gateway.Route, action *routev3.RouteAction) {
	x := r.Rewrite
	if x == nil {
		return
	}
	if x.Hostname != "" {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: x.Hostname}
	}
	switch p := x.Path; {
	case p == nil:
	case p.Type == gateway.ReplaceFullPath:
		action.RegexRewrite = wholePath(*p.Full)
	default:
		action.PrefixRewrite, action.RegexRewrite = prefixFor(r, *p.Prefix)
	}
}

func wholePath(path string) *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: `^/.*$`},
		Substitution: strings.ReplaceAll(path, `\`, `\\`)}
}

// prefixFor returns the replacement of a route's prefix. For the prefix of all paths, only the slash is replaced, and
// the replacement ends with a slash. If the replacement is empty, the slash behind the prefix is removed with it.
func prefixFor(r *gateway.Route, to string) (prefix string, regex *matcherv3.RegexMatchAndSubstitute) {
	to = strings.TrimRight(to, "/")
	switch {
	case r.Prefix() == "":
		return to + "/", nil
	case to == "":
		return "", &matcherv3.RegexMatchAndSubstitute{
			Pattern: &matcherv3.RegexMatcher{Regex: "^" + regexp.QuoteMeta(r.Prefix()) + "/*"}, Substitution: "/"}
	}
	return to, nil
}

// redirects returns one redirect, or two. Envoy writes a port that a redirect names even if it is the scheme's default,
// and otherwise keeps the port of the client's Host.
func redirects(r *gateway.Route, plain *routev3.Route, at string) []*routev3.Route {
	plain.Action = &routev3.Route_Redirect{Redirect: redirectOf(r, at, false)}
	if r.Redirect.Hostname != "" || plain.GetRedirect().PortRedirect != 0 {
		return []*routev3.Route{plain}
	}
	ported := proto.Clone(plain).(*routev3.Route)
	ported.Action = &routev3.Route_Redirect{Redirect: redirectOf(r, at, true)}
	ported.Match.Headers = append(ported.Match.Headers, headerIs(":authority", regex(".*:[0-9]+")))
	return []*routev3.Route{ported, plain}
}

// redirectOf returns a redirect. With named, it contains the port even if that is the scheme's default.
func redirectOf(r *gateway.Route, at string, named bool) *routev3.RedirectAction {
	x := r.Redirect
	bound := serve.PortOf(at)
	a := &routev3.RedirectAction{ResponseCode: redirectCodes[x.Code()], HostRedirect: x.Hostname,
		PortRedirect: uint32(x.PortOf(bound))}
	if !named && x.Usual(bound, r.Secure) {
		a.PortRedirect = 0
	}
	if x.Scheme != "" {
		a.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: x.Scheme}
	}
	switch p := x.Path; {
	case p == nil:
	case p.Type == gateway.ReplaceFullPath:
		a.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: *p.Full}
	default:
		prefix, regex := prefixFor(r, *p.Prefix)
		a.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: prefix}
		if regex != nil {
			a.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: regex}
		}
	}
	return a
}

var redirectCodes = map[int]routev3.RedirectAction_RedirectResponseCode{
	301: routev3.RedirectAction_MOVED_PERMANENTLY, 302: routev3.RedirectAction_FOUND,
	303: routev3.RedirectAction_SEE_OTHER,
	307: routev3.RedirectAction_TEMPORARY_REDIRECT, 308: routev3.RedirectAction_PERMANENT_REDIRECT,
}
