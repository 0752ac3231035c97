package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	keysv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"
	ratev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// rateFilter answers requests beyond a rate with 429; without a limit it does nothing.
func rateFilter(l *gateway.RateLimit) *ratev3.LocalRateLimit {
	out := &ratev3.LocalRateLimit{StatPrefix: "requests"}
	if l != nil {
		all := &corev3.RuntimeFractionalPercent{DefaultValue: fraction(1, 1)}
		out.FilterEnabled, out.FilterEnforced = all, all
		out.TokenBucket = &typev3.TokenBucket{MaxTokens: uint32(l.Requests), TokensPerFill: count(l.Requests),
			FillInterval: duration(l.Every())}
	}
	return out
}

// keyFilter accepts requests with one of the keys. Envoy accepts each key only once in its list.
func keyFilter(k *gateway.APIKeys) *keysv3.ApiKeyAuth {
	out := &keysv3.ApiKeyAuth{Forwarding: &keysv3.Forwarding{Header: k.ForwardID, HideCredentials: k.Sanitize}}
	known := map[string]bool{}
	k.Each(func(client string, key []byte) {
		if text := string(key); text != "" && !known[text] {
			known[text] = true
			out.Credentials = append(out.Credentials, &keysv3.Credential{Client: client, Key: text})
		}
	})
	for _, s := range k.From {
		for _, name := range s.Headers {
			out.KeySources = append(out.KeySources, &keysv3.KeySource{Header: name})
		}
		for _, name := range s.Params {
			out.KeySources = append(out.KeySources, &keysv3.KeySource{Query: name})
		}
		for _, name := range s.Cookies {
			out.KeySources = append(out.KeySources, &keysv3.KeySource{Cookie: name})
		}
	}
	return out
}
