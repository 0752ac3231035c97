package envoy

import (
	keysv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/api_key_auth/v3"

	"github.com/windtunnel/windtunnel/core/gateway"
)

// keyFilter lets those pass who have one of the keys. Envoy takes each key once.
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
